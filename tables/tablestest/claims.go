package tablestest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

var claimTests = []test{
	{"EveryFieldIsKept", claimFields},
	{"TheSecondClaimantLearnsWhoHasIt", claimSecond},
	{"TheOwnerAsksAgainAndExtends", claimAgain},
	{"DoneStaysDone", claimDone},
	{"DoneEndsAfterTheWindow", claimWindow},
	{"ALapsedClaimIsTakenOver", claimLapsed},
	{"OneOfManyWins", claimRace},
	{"OneOfManyTakesOver", claimTakeOverRace},
	{"FinishOfALostClaimIsRefused", claimFinishLost},
	{"FinishOfNoClaimIsNotFound", claimFinishMissing},
	{"FinishMayBeRepeated", claimFinishAgain},
	{"FinishKeepsWhatTheOwnerFoundOut", claimFinishOutcome},
	{"ReleaseFreesTheOwnersClaimOnly", claimRelease},
	{"AnotherOwnerFinishesWhatWasReleased", claimAfterRelease},
	{"ClaimsOfDifferentTimesExcludeEachOther", claimTimes},
	{"OneOfManyOfDifferentTimesWins", claimTimesRace},
	{"ALapsedClaimOfAnotherTimeIsTakenOver", claimTimesLapsed},
	{"AClaimOverTheWindowKeepsNobodyOut", claimOutside},
	{"HostileTextsAreKept", claimHostile},
	{"ExpireRemovesWhatIsOverTheWindow", claimExpire},
	{"AnEndedContextIsAnError", claimContext},
}

// claimNow is the time of most claims: an hour after day.
var claimNow = day.Add(time.Hour)

func claimOf(owner string, key ...string) tables.Claim {
	return tables.Claim{
		Key: tables.ClaimKey(key...), Owner: owner, State: tables.Claimed, Until: claimNow.Add(time.Minute), At: day,
		MessageID: "m-" + owner, BodyHash: "0123456789abcdef",
	}
}

func mustClaim(t *testing.T, s tables.Store, c tables.Claim, now time.Time) (tables.Claim, bool) {
	t.Helper()
	current, won, err := s.Claim(t.Context(), c, now)
	if err != nil {
		t.Fatalf("Claim of %.40q: %v", c.Owner, err)
	}
	return current, won
}

// wantWon claims c and wants it won.
func wantWon(t *testing.T, s tables.Store, c tables.Claim, now time.Time) {
	t.Helper()
	current, won := mustClaim(t, s, c, now)
	if !won {
		t.Fatalf("%.40q lost to %.40q, want it to win", c.Owner, current.Owner)
	}
	if d := diff(c, current); d != "" {
		t.Errorf("the claim that was won (-want +got):\n%s", d)
	}
}

// wantLost claims c and wants to hear that it is held's.
func wantLost(t *testing.T, s tables.Store, c tables.Claim, now time.Time, held tables.Claim) {
	t.Helper()
	current, won := mustClaim(t, s, c, now)
	if won {
		t.Fatalf("%.40q won, want it to lose to %.40q", c.Owner, held.Owner)
	}
	if d := diff(held, current); d != "" {
		t.Errorf("the claim that %.40q lost to (-want +got):\n%s", c.Owner, d)
	}
}

func mustFinish(t *testing.T, s tables.Store, c tables.Claim) tables.Claim {
	t.Helper()
	if err := s.FinishClaim(t.Context(), c); err != nil {
		t.Fatalf("FinishClaim: %v", err)
	}
	c.State = tables.Done
	return c
}

func mustRelease(t *testing.T, s tables.Store, c tables.Claim) {
	t.Helper()
	if err := s.ReleaseClaim(t.Context(), c); err != nil {
		t.Fatalf("ReleaseClaim: %v", err)
	}
}

func claimFields(t *testing.T, s tables.Store) {
	c := claimOf("a", "k")
	given := c
	given.Until, given.At = c.Until.Add(789*time.Nanosecond).In(time.FixedZone("west", -5*60*60)), c.At.Add(789*time.Nanosecond)
	given.State = "" // what a claim asks for needs no word
	current, won := mustClaim(t, s, given, claimNow)
	if d := diff(c, current); !won || d != "" {
		t.Errorf("won = %v (-want +got):\n%s", won, d)
	}
	wantLost(t, s, claimOf("b", "k"), claimNow, c)
}

func claimSecond(t *testing.T, s tables.Store) {
	a := claimOf("a", "k")
	wantWon(t, s, a, claimNow)
	wantLost(t, s, claimOf("b", "k"), claimNow, a)
	wantWon(t, s, claimOf("b", "another key"), claimNow)
	// A claim ends after Until, not at it.
	wantLost(t, s, claimOf("b", "k"), a.Until, a)
}

func claimAgain(t *testing.T, s tables.Store) {
	a := claimOf("a", "k")
	wantWon(t, s, a, claimNow)
	wantWon(t, s, a, claimNow)
	a.Until = a.Until.Add(time.Hour)
	wantWon(t, s, a, claimNow)
	wantLost(t, s, claimOf("b", "k"), claimNow.Add(30*time.Minute), a)
	// The owner's claim has lapsed, and nobody else has asked.
	now := a.Until.Add(time.Minute)
	a.Until = now.Add(time.Minute)
	wantWon(t, s, a, now)
	wantLost(t, s, claimOf("b", "k"), now, a)
}

func claimDone(t *testing.T, s tables.Store) {
	a := claimOf("a", "k")
	wantWon(t, s, a, claimNow)
	done := mustFinish(t, s, a)
	for _, now := range []time.Time{claimNow, claimNow.Add(time.Hour), a.At.Add(tables.ClaimWindow)} {
		b := claimOf("b", "k")
		b.At = now
		wantLost(t, s, b, now, done)
		again := a
		again.Until = now.Add(time.Minute)
		current, won := mustClaim(t, s, again, now)
		if d := diff(done, current); !won || d != "" {
			t.Errorf("the owner that asks again: won = %v (-want +got):\n%s", won, d)
		}
	}
}

func claimWindow(t *testing.T, s tables.Store) {
	a := claimOf("a", "k")
	wantWon(t, s, a, claimNow)
	mustFinish(t, s, a)
	now := a.At.Add(tables.ClaimWindow + time.Second)
	b := claimOf("b", "k")
	b.At, b.Until = now, now.Add(time.Minute)
	wantWon(t, s, b, now)
	c := claimOf("c", "k")
	c.At, c.Until = now, now.Add(time.Minute)
	wantLost(t, s, c, now, b)
}

func claimLapsed(t *testing.T, s tables.Store) {
	a, b := claimOf("a", "k"), claimOf("b", "k")
	wantWon(t, s, a, claimNow)
	now := a.Until.Add(time.Millisecond)
	b.Until = now.Add(time.Minute)
	wantWon(t, s, b, now)
	wantLost(t, s, a, now, b)
	mustRelease(t, s, b)
	wantWon(t, s, a, claimNow)
}

// wantOneClaim claims for all at once: one wins, and the others hear its name.
func wantOneClaim(t *testing.T, s tables.Store, claimants []tables.Claim, now time.Time) (winner tables.Claim) {
	t.Helper()
	type outcome struct {
		current tables.Claim
		won     bool
	}
	outcomes := make([]outcome, len(claimants))
	var wg sync.WaitGroup
	for i, c := range claimants {
		wg.Go(func() {
			current, won, err := s.Claim(t.Context(), c, now)
			if err != nil {
				t.Errorf("Claim of %s: %v", c.Owner, err)
			}
			outcomes[i] = outcome{current, won}
		})
	}
	wg.Wait()
	winners := 0
	for i, o := range outcomes {
		if o.won {
			winners++
			winner = claimants[i]
		}
	}
	if winners != 1 {
		t.Errorf("%d of %d claimants won, want 1", winners, len(claimants))
	}
	for i, o := range outcomes {
		if !o.won && o.current.Owner == claimants[i].Owner {
			t.Errorf("%s lost to itself", claimants[i].Owner)
		}
	}
	return winner
}

func claimants(n int, key string) (cs []tables.Claim) {
	for i := range n {
		cs = append(cs, claimOf(fmt.Sprint("racer", i), key))
	}
	return cs
}

func claimRace(t *testing.T, s tables.Store) {
	for round := range 4 {
		k := fmt.Sprint("k", round)
		winner := wantOneClaim(t, s, claimants(8, k), claimNow)
		wantLost(t, s, claimOf("late", k), claimNow, winner)
		mustFinish(t, s, winner)
	}
}

func claimTakeOverRace(t *testing.T, s tables.Store) {
	for round := range 4 {
		k := fmt.Sprint("k", round)
		dead := claimOf("dead", k)
		wantWon(t, s, dead, claimNow)
		now := dead.Until.Add(time.Second)
		cs := claimants(8, k)
		for i := range cs {
			cs[i].Until = now.Add(time.Minute)
		}
		winner := wantOneClaim(t, s, cs, now)
		wantLost(t, s, claimOf("late", k), now, winner)
	}
}

func claimFinishLost(t *testing.T, s tables.Store) {
	a, b := claimOf("a", "k"), claimOf("b", "k")
	wantWon(t, s, a, claimNow)
	now := a.Until.Add(time.Second)
	b.Until = now.Add(time.Minute)
	wantWon(t, s, b, now)
	if err := s.FinishClaim(t.Context(), a); !errors.Is(err, tables.ErrConflict) {
		t.Errorf("FinishClaim = %v, want ErrConflict", err)
	}
	wantLost(t, s, claimOf("c", "k"), now, b)
}

func claimFinishMissing(t *testing.T, s tables.Store) {
	a := claimOf("a", "k")
	if err := s.FinishClaim(t.Context(), a); !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("FinishClaim in an empty store = %v, want ErrNotFound", err)
	}
	wantWon(t, s, a, claimNow)
	mustRelease(t, s, a)
	if err := s.FinishClaim(t.Context(), a); !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("FinishClaim after the release = %v, want ErrNotFound", err)
	}
}

func claimFinishAgain(t *testing.T, s tables.Store) {
	a := claimOf("a", "k")
	wantWon(t, s, a, claimNow)
	done := mustFinish(t, s, a)
	mustFinish(t, s, a)
	wantLost(t, s, claimOf("b", "k"), claimNow, done)
}

func claimFinishOutcome(t *testing.T, s tables.Store) {
	a := claimOf("a", "k")
	a.MessageID = ""
	wantWon(t, s, a, claimNow)
	a.MessageID, a.BodyHash, a.Until = "made under the claim", "fedcba9876543210", day.Add(-time.Hour)
	done := mustFinish(t, s, a)
	wantLost(t, s, claimOf("b", "k"), claimNow, done)
	a.MessageID = "another"
	mustFinish(t, s, a)
	wantLost(t, s, claimOf("b", "k"), claimNow, done)
}

func claimRelease(t *testing.T, s tables.Store) {
	a, b := claimOf("a", "k"), claimOf("b", "k")
	mustRelease(t, s, a)
	wantWon(t, s, a, claimNow)
	mustRelease(t, s, b)
	wantLost(t, s, b, claimNow, a)
	mustRelease(t, s, a)
	wantWon(t, s, b, claimNow)
	mustRelease(t, s, a)
	wantLost(t, s, a, claimNow, b)
	b = mustFinish(t, s, b)
	mustRelease(t, s, b) // by a holder that does not know that another one has delivered the owner's message
	wantLost(t, s, a, claimNow, b)
}

// claimAfterRelease is what becomes of an event that nobody got, and that is replayed later:
// the replay claims it as another owner, from another time, and others are duplicates then.
func claimAfterRelease(t *testing.T, s tables.Store) {
	acrossEachMidnight(t, func(t *testing.T, key string, early, late, now time.Time) {
		a := claimAt("a", key, early, now)
		wantWon(t, s, a, now)
		mustRelease(t, s, a)
		b := claimAt("b", key, late, now)
		if err := s.FinishClaim(t.Context(), b); !errors.Is(err, tables.ErrNotFound) {
			t.Errorf("FinishClaim of what was never claimed = %v, want ErrNotFound", err)
		}
		wantWon(t, s, b, now)
		b = mustFinish(t, s, b)
		mustRelease(t, s, a) // late: it is not its claim any more
		wantLost(t, s, a, now, b)
		wantLost(t, s, claimAt("c", key, late.Add(6*24*time.Hour), late.Add(6*24*time.Hour)), late.Add(6*24*time.Hour), b)
	})
}

// acrossEachMidnight calls f with times on both sides of seven midnights in a row:
// however a store divides time, by days or weeks, one of them is a boundary.
func acrossEachMidnight(t *testing.T, f func(t *testing.T, key string, early, late, now time.Time)) {
	midnight := day.Truncate(24 * time.Hour)
	for i := range 7 {
		at := midnight.AddDate(0, 0, -i)
		f(t, "midnight "+at.Format(time.DateOnly), at.Add(-time.Second), at.Add(time.Second), at.Add(2*time.Second))
	}
}

func claimAt(owner, key string, at, now time.Time) tables.Claim {
	c := claimOf(owner, key)
	c.At, c.Until = at, now.Add(time.Minute)
	return c
}

func claimTimes(t *testing.T, s tables.Store) {
	acrossEachMidnight(t, func(t *testing.T, key string, early, late, now time.Time) {
		for _, order := range []struct {
			name          string
			first, second time.Time
		}{{"forward", early, late}, {"backward", late, early}} {
			k := key + order.name
			a, b := claimAt("a", k, order.first, now), claimAt("b", k, order.second, now)
			wantWon(t, s, a, now)
			wantLost(t, s, b, now, a)
			wantWon(t, s, a, now) // what b left behind does not stand in its way
			a = mustFinish(t, s, a)
			wantLost(t, s, b, now, a)
			wantLost(t, s, b, now.Add(6*24*time.Hour), a)
		}
	})
}

func claimTimesRace(t *testing.T, s tables.Store) {
	acrossEachMidnight(t, func(t *testing.T, key string, early, late, now time.Time) {
		cs := claimants(6, key)
		for i := range cs {
			cs[i] = claimAt(cs[i].Owner, key, early, now)
			if i%2 == 1 {
				cs[i].At = late
			}
		}
		winner := mustFinish(t, s, wantOneClaim(t, s, cs, now))
		for _, at := range []time.Time{early, late} {
			wantLost(t, s, claimAt("afterwards", key, at, now), now, winner)
		}
	})
}

func claimTimesLapsed(t *testing.T, s tables.Store) {
	acrossEachMidnight(t, func(t *testing.T, key string, early, late, now time.Time) {
		for _, order := range []struct {
			name          string
			first, second time.Time
		}{{"forward", early, late}, {"backward", late, early}} {
			k := key + order.name
			a := claimAt("a", k, order.first, now)
			wantWon(t, s, a, now)
			later := a.Until.Add(time.Second)
			b := claimAt("b", k, order.second, later)
			wantWon(t, s, b, later)
			if err := s.FinishClaim(t.Context(), a); !errors.Is(err, tables.ErrConflict) {
				t.Errorf("%s: FinishClaim of the lapsed claim = %v, want ErrConflict", k, err)
			}
			a.Until = b.Until
			wantLost(t, s, a, later, b)
			b = mustFinish(t, s, b)
			wantLost(t, s, a, later, b)
		}
	})
}

func claimOutside(t *testing.T, s tables.Store) {
	old := claimAt("old", "k", claimNow.Add(-tables.ClaimWindow-time.Second), claimNow)
	wantWon(t, s, old, claimNow)
	a := claimAt("a", "k", claimNow, claimNow)
	wantWon(t, s, a, claimNow)
	wantLost(t, s, old, claimNow, a)
	if err := s.FinishClaim(t.Context(), old); !errors.Is(err, tables.ErrConflict) && !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("FinishClaim of the old claim = %v, want ErrConflict or ErrNotFound", err)
	}
	a = mustFinish(t, s, a)
	wantLost(t, s, old, claimNow, a)
}

func claimHostile(t *testing.T, s tables.Store) {
	var cs []tables.Claim
	for i, text := range append(hostile(), "", longID("o"), longID("é")) {
		c := claimOf(text, "hostile", text)
		c.MessageID, c.BodyHash = text, fmt.Sprint(i)
		cs = append(cs, c)
		wantWon(t, s, c, claimNow)
	}
	for _, c := range cs {
		wantLost(t, s, tables.Claim{Key: c.Key, Owner: c.Owner + "x", Until: c.Until, At: c.At}, claimNow, c)
		wantWon(t, s, c, claimNow)
		done := mustFinish(t, s, c)
		wantLost(t, s, tables.Claim{Key: c.Key, Owner: c.Owner + "x", Until: c.Until, At: c.At}, claimNow, done)
	}
}

func claimExpire(t *testing.T, s tables.Store) {
	old, kept := claimOf("old", "k-old"), claimOf("kept", "k-kept")
	wantWon(t, s, old, claimNow)
	now := old.At.Add(3 * tables.ClaimWindow)
	kept.At, kept.Until = now.Add(-tables.ClaimWindow), now.Add(-tables.ClaimWindow).Add(time.Minute)
	wantWon(t, s, kept, kept.At)
	doneKept := mustFinish(t, s, kept)
	mustFinish(t, s, old)

	if n, err := s.ExpireClaims(t.Context(), old.At.Add(tables.ClaimWindow)); err != nil || n != 0 {
		t.Errorf("ExpireClaims within the window = %d, %v, want nothing removed", n, err)
	}
	if err := s.FinishClaim(t.Context(), old); err != nil {
		t.Errorf("the claim is gone within the window: %v", err)
	}
	if n, err := s.ExpireClaims(t.Context(), now); err != nil || (n != 0 && n != 1) {
		t.Errorf("ExpireClaims = %d, %v, want 1 row (or 0 from a store that can't count)", n, err)
	}
	if err := s.FinishClaim(t.Context(), old); !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("FinishClaim of an expired claim = %v, want ErrNotFound", err)
	}
	other := claimAt("other", "k-kept", now, now)
	wantLost(t, s, other, now, doneKept)
	if _, err := s.ExpireClaims(t.Context(), now); err != nil {
		t.Errorf("second ExpireClaims: %v", err)
	}
}

func claimContext(t *testing.T, s tables.Store) {
	a := claimOf("a", "k")
	wantWon(t, s, a, claimNow)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []tables.Claim{a, claimOf("b", "k"), claimOf("b", "free")} {
		if _, won, err := s.Claim(ended, c, claimNow); won || !errors.Is(err, context.Canceled) {
			t.Errorf("Claim of %s with an ended context = %v, %v, want context.Canceled", c.Owner, won, err)
		}
	}
	if err := s.FinishClaim(ended, a); !errors.Is(err, context.Canceled) {
		t.Errorf("FinishClaim with an ended context = %v, want context.Canceled", err)
	}
	wantLost(t, s, claimOf("b", "k"), claimNow, a)
}

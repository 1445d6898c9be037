package azuretable_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable"
)

// weekStart is the beginning of a bucket of claims.
var weekStart = time.Unix(2968*7*24*60*60, 0).UTC()

func claimBy(owner string, at time.Time) tables.Claim {
	return tables.Claim{Key: tables.ClaimKey("k"), Owner: owner, State: tables.Claimed, Until: at.Add(time.Minute), At: at, MessageID: owner}
}

// wantClaim claims c at its own time and wants the outcome.
func wantClaim(t *testing.T, s *azuretable.Store, c tables.Claim, owner string) {
	t.Helper()
	current, won, err := s.Claim(t.Context(), c, c.At)
	if err != nil || current.Owner != owner || won != (owner == c.Owner) {
		t.Fatalf("Claim of %s = %s, %v, %v; want it to be %s's", c.Owner, current.Owner, won, err, owner)
	}
}

func TestClaimsTakeFewRequests(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	middle := weekStart.Add(3 * 24 * time.Hour)
	early, late := weekStart.Add(-2*time.Hour), weekStart.Add(2*time.Hour)
	for _, at := range []time.Time{middle, early} { // creates the tables
		c := claimBy("first", at)
		c.Key = tables.ClaimKey("first")
		if _, _, err := s.Claim(t.Context(), c, at); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(c tables.Claim, owner string) func(*testing.T) {
		return func(t *testing.T) { wantClaim(t, s, c, owner) }
	}
	noError := func(f func() error) func(*testing.T) {
		return func(t *testing.T) {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		}
	}
	a, b, c := claimBy("a", middle), claimBy("b", middle), claimBy("c", early)
	d := claimBy("d", late)
	c.Key = tables.ClaimKey("another")
	d.Key = c.Key
	for _, step := range []struct {
		name string
		call func(t *testing.T)
		most int
	}{
		{"a free key", claim(a, "a"), 2},
		{"a key that is taken", claim(b, "a"), 2},
		{"the owner asks again", claim(a, "a"), 4},
		{"release", noError(func() error { return s.ReleaseClaim(t.Context(), a) }), 2},
		{"a key that is free again", claim(a, "a"), 2},
		{"finish", noError(func() error { return s.FinishClaim(t.Context(), a) }), 2},
		{"a finished key", claim(b, "a"), 2},
		{"the owner of a finished key asks again", claim(a, "a"), 2},
		{"a finished key is not released", noError(func() error { return s.ReleaseClaim(t.Context(), a) }), 1},
		{"a free key at the end of a week", claim(c, "c"), 2},
		{"its owner finishes", noError(func() error { return s.FinishClaim(t.Context(), c) }), 2},
		{"a key that is taken in the week before", claim(d, "c"), 3},
		{"expire, nothing to drop", noError(func() error { _, err := s.ExpireClaims(t.Context(), middle); return err }), 1},
	} {
		t.Run(step.name, func(t *testing.T) {
			before := proxy.Count("table", "")
			step.call(t)
			if n := proxy.Count("table", "") - before; n > step.most {
				t.Errorf("%d requests, want at most %d", n, step.most)
			}
		})
	}
}

func TestAClaimWhoseAnswerWasLostIsNotADuplicateOfItself(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	a := claimBy("a", weekStart.Add(24*time.Hour))
	wantClaim(t, s, a, "a") // creates the table
	if err := s.ReleaseClaim(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	proxy.Fault(azuritetest.Match{Operation: "insert", From: 1, To: 1}, azuritetest.FailAfter())
	wantClaim(t, s, a, "a")
	if err := s.ReleaseClaim(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	proxy.Heal()
	// The answer is lost to the repetition too: the store can't tell, and the owner asks again.
	proxy.Fault(azuritetest.Match{Operation: "insert", From: 1, To: 2}, azuritetest.FailAfter())
	proxy.Fault(azuritetest.Match{Operation: "get", From: 1, To: 2}, azuritetest.CutBefore())
	if _, won, err := s.Claim(t.Context(), a, a.At); err == nil || won {
		t.Fatalf("Claim = %v, %v; want an error", won, err)
	}
	wantClaim(t, s, a, "a")
	wantClaim(t, s, claimBy("b", a.At), "a")

	proxy.Heal()
	for _, operation := range []string{"replace", "delete-entity"} {
		proxy.Fault(azuritetest.Match{Operation: operation, From: 1, To: 1}, azuritetest.FailAfter())
	}
	if err := s.ReleaseClaim(t.Context(), a); err != nil {
		t.Errorf("ReleaseClaim: %v", err)
	}
	b := claimBy("b", a.At)
	wantClaim(t, s, b, "b")
	if err := s.FinishClaim(t.Context(), b); err != nil {
		t.Errorf("FinishClaim: %v", err)
	}
	wantClaim(t, s, a, "b")
}

// Another claimant's row stood in the way of the repeated insert, and its owner gave
// way before it could be read.
func TestAClaimWhoseRivalGaveWayMeanwhileIsNoFault(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	a := claimBy("a", weekStart.Add(24*time.Hour))
	wantClaim(t, s, a, "a") // creates the table
	if err := s.ReleaseClaim(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	proxy.Fault(azuritetest.Match{Operation: "insert", From: 1, To: 1}, azuritetest.CutBefore())
	proxy.Fault(azuritetest.Match{Operation: "insert", From: 2, To: 2}, azuritetest.FailBefore(409, "EntityAlreadyExists"))
	wantClaim(t, s, a, "a")
	proxy.Heal()
	proxy.Fault(azuritetest.Match{Operation: "insert", From: 1, To: 1}, azuritetest.CutBefore())
	proxy.Fault(azuritetest.Match{Operation: "insert", From: 2, To: 2}, azuritetest.FailBefore(409, "EntityAlreadyExists"))
	if _, err := s.PutWebhook(t.Context(), hook("wh")); !errors.Is(err, tables.ErrExists) {
		t.Errorf("insert of a webhook = %v, want ErrExists", err)
	}
}

func TestAFaultIsNeitherAClaimNorADuplicate(t *testing.T) {
	for _, fault := range []struct {
		name  string
		fault azuritetest.Fault
	}{{"503", azuritetest.Throttle()}, {"no answer", azuritetest.CutBefore()}, {"403", azuritetest.FailBefore(403, "AuthorizationFailure")}} {
		for _, operation := range []string{"insert", "get", "replace"} {
			t.Run(fmt.Sprint(fault.name, " of ", operation), func(t *testing.T) {
				proxy, s := behindProxy(t, azuretable.Options{})
				a := claimBy("a", weekStart.Add(24*time.Hour))
				wantClaim(t, s, a, "a")
				proxy.Fault(azuritetest.Match{Operation: operation}, fault.fault)
				b := claimBy("b", a.Until.Add(time.Second)) // takes it over
				current, won, err := s.Claim(t.Context(), b, b.At)
				if err == nil || won || current != (tables.Claim{}) || errors.Is(err, tables.ErrNotFound) || errors.Is(err, tables.ErrConflict) {
					t.Errorf("Claim = %+v, %v, %v; want an error and nothing else", current, won, err)
				}
				if operation != "insert" {
					if err := s.FinishClaim(t.Context(), a); err == nil || errors.Is(err, tables.ErrNotFound) || errors.Is(err, tables.ErrConflict) {
						t.Errorf("FinishClaim = %v, want an error that says nothing about the claim", err)
					}
				}
				proxy.Heal()
				wantClaim(t, s, b, "b")
			})
		}
	}
}

func TestOneThrottledRequestOfAClaimIsRepeated(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	a := claimBy("a", weekStart.Add(24*time.Hour))
	for _, operation := range []string{"insert", "get", "replace"} {
		proxy.Fault(azuritetest.Match{Operation: operation, From: 1, To: 1}, azuritetest.Throttle())
	}
	wantClaim(t, s, a, "a")
	wantClaim(t, s, claimBy("b", a.At), "a")
	if err := s.FinishClaim(t.Context(), a); err != nil {
		t.Error(err)
	}
}

// A claimant of the week before writes its row after the other has looked there, and
// so has won. The late one sees it, and must not take the earlier week for its right.
func TestAWinnerOfTheLaterWeekKeepsItsClaim(t *testing.T) {
	s := open(t, azuritetest.Start(t).ConnectionString(), azuretable.Options{})
	late, early := claimBy("late", weekStart.Add(2*time.Hour)), claimBy("early", weekStart.Add(-2*time.Hour))
	wantClaim(t, s, late, "late")
	for range 2 {
		if current, won, err := s.Claim(t.Context(), early, late.At); err != nil || won || current.Owner != "late" {
			t.Fatalf("Claim = %s, %v, %v; want it to be late's", current.Owner, won, err)
		}
	}
	wantClaim(t, s, late, "late")
	if err := s.FinishClaim(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	if err := s.FinishClaim(t.Context(), early); !errors.Is(err, tables.ErrConflict) {
		t.Errorf("FinishClaim of the loser = %v, want ErrConflict", err)
	}
}

// The claimant of the later week dies after it has written its row. The other gives
// way to it, and has the key once that row has lapsed.
func TestARowLeftBehindInTheLaterWeekLapses(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	early, late := claimBy("early", weekStart.Add(-2*time.Hour)), claimBy("late", weekStart.Add(2*time.Hour))
	early.Until = late.Until
	wantClaim(t, s, late, "late") // creates the table
	if err := s.ReleaseClaim(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	proxy.Fault(azuritetest.Match{Operation: "get"}, azuritetest.Throttle())
	if _, won, err := s.Claim(t.Context(), late, late.At); err == nil || won {
		t.Fatalf("Claim = %v, %v; want an error", won, err)
	}
	proxy.Heal()
	if _, won, err := s.Claim(t.Context(), early, late.At); err != nil || won {
		t.Errorf("Claim while the other's row is there = %v, %v; want it lost", won, err)
	}
	now := late.Until.Add(time.Second)
	early.Until = now.Add(time.Minute)
	if current, won, err := s.Claim(t.Context(), early, now); err != nil || !won {
		t.Errorf("Claim after the other's row has lapsed = %s, %v, %v; want it won", current.Owner, won, err)
	}
}

// Both have written their rows when either looks at the other's: the later one gives
// way, and the earlier one waits for that.
func TestOfTwoThatSeeEachOtherTheEarlierWeekWins(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	early, late := claimBy("early", weekStart.Add(-2*time.Hour)), claimBy("late", weekStart.Add(2*time.Hour))
	early.Until = late.Until
	for _, c := range []tables.Claim{early, late} { // creates the tables
		wantClaim(t, s, c, c.Owner)
		if err := s.ReleaseClaim(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Fault(azuritetest.Match{Operation: "get", From: 1, To: 1}, azuritetest.Delay(300*time.Millisecond))
	gets := proxy.Count("table", "get")
	var wg sync.WaitGroup
	wg.Go(func() {
		if current, won, err := s.Claim(t.Context(), late, late.At); err != nil || won || current.Owner != "early" {
			t.Errorf("Claim of late = %s, %v, %v; want it to be early's", current.Owner, won, err)
		}
	})
	for deadline := time.Now().Add(10 * time.Second); proxy.Count("table", "get") == gets; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("late does not look at the week before")
		}
	}
	if current, won, err := s.Claim(t.Context(), early, late.At); err != nil || !won {
		t.Errorf("Claim of early = %s, %v, %v; want it won", current.Owner, won, err)
	}
	wg.Wait()
}

func TestExpireClaimsDropsTheTablesOfOldWeeksOnly(t *testing.T) {
	proxy, s := behindProxy(t, azuretable.Options{})
	old := claimBy("old", weekStart.Add(-time.Second))
	wantClaim(t, s, old, "old")
	end := weekStart.Add(tables.ClaimWindow)
	for _, step := range []struct {
		now   time.Time
		drops int
	}{
		{end, 0},
		{end.Add(30 * time.Minute), 0}, // another instance's clock may be behind
		{end.Add(2 * time.Hour), 1},
		{end.Add(3 * time.Hour), 0},
	} {
		before := proxy.Count("table", "delete-table")
		if _, err := s.ExpireClaims(t.Context(), step.now); err != nil {
			t.Fatal(err)
		}
		if n := proxy.Count("table", "delete-table") - before; n != step.drops {
			t.Errorf("at %s %d tables were dropped, want %d", step.now.Sub(end), n, step.drops)
		}
	}
	if err := s.Record(t.Context(), record("m", 1)); err != nil {
		t.Fatal(err)
	}
	proxy.Fault(azuritetest.Match{Operation: "list-tables"}, azuritetest.Throttle())
	if _, err := s.ExpireClaims(t.Context(), end.Add(24*time.Hour)); err == nil {
		t.Error("ExpireClaims that can't list the tables succeeded, want an error")
	}
}

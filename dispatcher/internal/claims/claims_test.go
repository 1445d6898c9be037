package claims

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/sqlite/sqlitetest"
	"github.com/pushlease/pushlease/tables"
)

// shop is a store that can be away, and counts what it is asked.
type shop struct {
	*sqlite.DB
	away  bool
	until time.Time // away, too
	takes time.Duration

	mu    sync.Mutex
	asked int
}

func (s *shop) ask() error {
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.away || time.Now().Before(s.until) {
		return errors.New("away")
	}
	return nil
}

func (s *shop) Claim(ctx context.Context, c tables.Claim, now time.Time) (tables.Claim, bool, error) {
	if err := s.ask(); err != nil {
		return tables.Claim{}, false, err
	}
	return s.DB.Claim(ctx, c, now)
}

func (s *shop) FinishClaim(ctx context.Context, c tables.Claim) error {
	if err := s.ask(); err != nil {
		return err
	}
	return s.DB.FinishClaim(ctx, c)
}

func (s *shop) ReleaseClaim(ctx context.Context, c tables.Claim) error {
	if err := s.ask(); err != nil {
		return err
	}
	return s.DB.ReleaseClaim(ctx, c)
}

// inShop runs f with two processes on one store.
func inShop(t *testing.T, f func(t *testing.T, s *shop, here, there *Claims)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), sqlitetest.File(t), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		m, err := meter.New(noop.NewMeterProvider().Meter(""))
		if err != nil {
			t.Fatal(err)
		}
		s, log := &shop{DB: db}, slog.New(slog.DiscardHandler)
		f(t, s, New(s, m, log), New(s, m, log))
	})
}

// by is a claim of a message on the one event, for a minute.
func by(owner string) Claim {
	now := time.Now()
	return Claim{ExpiresAt: now.Add(24 * time.Hour), Claim: tables.Claim{
		Key: "event", Owner: owner, At: now, Until: now.Add(time.Minute), MessageID: owner, BodyHash: "same",
	}}
}

// takes reports who has the event when a message asks for it, and whether it was delivered.
func takes(t *testing.T, cs *Claims, owner string) (who string, won, done bool) {
	t.Helper()
	current, won, err := cs.Take(t.Context(), by(owner), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return current.Owner, won, current.State == tables.Done
}

func wantTaken(t *testing.T, what string, cs *Claims, owner, who string, won, done bool) {
	t.Helper()
	if gotWho, gotWon, gotDone := takes(t, cs, owner); gotWho != who || gotWon != won || gotDone != done {
		t.Errorf("%s: %s has the event, won %t, delivered %t; want %s, %t, %t", what, gotWho, gotWon, gotDone, who, won, done)
	}
}

func TestOneMessageHasAnEventUntilItsClaimLapses(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop, here, there *Claims) {
		wantTaken(t, "the first message", here, "first", "first", true, false)
		asked := s.asked
		wantTaken(t, "another one of the same process", here, "second", "first", false, false)
		want(t, "questions to the store about what this process knows", s.asked-asked, 0)
		wantTaken(t, "one of another process", there, "third", "first", false, false)
		wantTaken(t, "the first one again", here, "first", "first", true, false)
		wantTaken(t, "the first one again, which another process received", there, "first", "first", true, false)
		time.Sleep(time.Minute + time.Second)
		wantTaken(t, "another one when the claim has lapsed", there, "third", "third", true, false)
		wantTaken(t, "the first one, which comes back then", here, "second", "third", false, false)
	})
}

func TestAClaimEndsWithWhatBecameOfItsMessage(t *testing.T) {
	for _, delivered := range []bool{true, false} {
		inShop(t, func(t *testing.T, _ *shop, here, there *Claims) {
			wantTaken(t, "the first message", here, "first", "first", true, false)
			ends := by("first")
			ends.Delivered = delivered
			here.End(t.Context(), &ends)
			if delivered {
				wantTaken(t, "a copy in another process", there, "copy", "first", false, true)
				time.Sleep(memoryAge + time.Second)
				wantTaken(t, "a copy when memory has forgotten", here, "copy", "first", false, true)
				return
			}
			wantTaken(t, "the event published again", there, "copy", "copy", true, false)
		})
	}
}

// Nobody else may end or keep what it lost meanwhile.
func TestAClaimThatWasTakenOverIsLeftAlone(t *testing.T) {
	inShop(t, func(t *testing.T, _ *shop, here, there *Claims) {
		slow := by("slow")
		wantTaken(t, "the slow message", here, "slow", "slow", true, false)
		time.Sleep(time.Minute + time.Second)
		wantTaken(t, "another one", there, "next", "next", true, false)
		here.Keep(t.Context(), &slow, time.Hour, time.Minute)
		here.End(t.Context(), &slow) // not delivered: it would release the event
		wantTaken(t, "a third one", there, "third", "next", false, false)
		slow.Delivered = true
		here.End(t.Context(), &slow)
		wantTaken(t, "a third one after the slow one was delivered", there, "third", "next", false, false)
	})
}

func TestAClaimIsKeptForAsLongAsItsMessageWaits(t *testing.T) {
	inShop(t, func(t *testing.T, _ *shop, here, there *Claims) {
		waits := by("waits")
		wantTaken(t, "the message", here, "waits", "waits", true, false)
		here.Keep(t.Context(), &waits, time.Hour, time.Minute)
		time.Sleep(time.Hour + time.Minute + Margin - time.Second)
		wantTaken(t, "a copy before its wait, a lease and the margin are over", there, "copy", "waits", false, false)
		time.Sleep(2 * time.Second)
		wantTaken(t, "a copy after that", there, "copy", "copy", true, false)

		half := by("copy")
		half.Delivered = true // to one of its webhooks
		there.Keep(t.Context(), &half, time.Minute, time.Minute)
		time.Sleep(23 * time.Hour)
		wantTaken(t, "a copy of what one webhook has, while the message lives", here, "another", "copy", false, false)
	})
}

func TestAReplayKeepsCopiesAwayAndEndsTheClaimOnlyWhereItWasDelivered(t *testing.T) {
	inShop(t, func(t *testing.T, _ *shop, here, there *Claims) {
		replay := by("first replayed")
		replay.Replay = true
		if _, _, err := here.Take(t.Context(), replay, time.Now()); err != nil {
			t.Fatal(err)
		}
		wantTaken(t, "a copy meanwhile", there, "copy", "first replayed", false, false)
		here.End(t.Context(), &replay) // it failed: who else has got the event nobody knows
		wantTaken(t, "a copy after a replay in vain", there, "copy", "first replayed", false, false)
		time.Sleep(time.Minute + time.Second)
		wantTaken(t, "a copy when that claim has lapsed", there, "copy", "copy", true, false)
		if _, _, err := here.Take(t.Context(), replay, time.Now()); err != nil {
			t.Errorf("an event that another message has: %v, want the replay to go on", err)
		}
		replay.Delivered = true
		time.Sleep(time.Minute + time.Second)
		here.End(t.Context(), &replay)
		wantTaken(t, "a copy after a replay that was delivered", there, "third", "first replayed", false, true)
	})
}

// While the store is away one process still knows its own messages, and what it could not end lapses.
func TestWhileTheStoreIsAwayMemoryKeepsCopiesApart(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop, here, there *Claims) {
		s.away = true
		if _, _, err := here.Take(t.Context(), by("first"), time.Now()); err == nil {
			t.Fatal("the store was away, and the claim is sure")
		}
		wantTaken(t, "a copy in the same process", here, "copy", "first", false, false)
		ends := by("first")
		ends.Delivered = true
		here.End(t.Context(), &ends)
		wantTaken(t, "a copy after the delivery", here, "copy", "first", false, true)
		s.away = false
		wantTaken(t, "a copy in a process that could know nothing", there, "copy", "copy", true, false)
		time.Sleep(2 * time.Minute)
		here.End(t.Context(), &ends) // the message came back, and storage answers
		wantTaken(t, "a copy when that is on record at last", there, "third", "first", false, true)
	})
}

// Its message is not deleted before, but for longer than a record is tried for.
func TestAnOutageOfSecondsDelaysTheEndOfAClaim(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop, here, there *Claims) {
		wantTaken(t, "the first message", here, "first", "first", true, false)
		s.until = time.Now().Add(15 * time.Second)
		ends := by("first")
		ends.Delivered = true
		here.End(t.Context(), &ends)
		wantTaken(t, "a copy in another process, when this one is killed at once", there, "copy", "first", false, true)
	})
}

// What one of its webhooks has taken is known to every process soon after an outage, however long it lasted.
func TestWhatWasDeliveredIsWrittenAfterAnOutage(t *testing.T) {
	for name, tt := range map[string]struct{ delivered, over, known bool }{
		"to all webhooks":   {true, true, true},
		"to one of several": {true, false, true},
		"to none":           {false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			inShop(t, func(t *testing.T, s *shop, here, there *Claims) {
				wantTaken(t, "the first message", here, "first", "first", true, false)
				s.away = true
				first := by("first")
				if first.Delivered = tt.delivered; tt.over {
					here.End(t.Context(), &first)
				} else {
					here.Keep(t.Context(), &first, time.Minute, time.Minute)
				}
				time.Sleep(time.Hour) // the claim has lapsed
				asked := s.asked
				here.Flush(t.Context())
				want(t, "questions to a store that is away", s.asked > asked, tt.known)
				s.away = false
				here.Flush(t.Context())
				asked = s.asked
				here.Flush(t.Context())
				want(t, "questions when all is written", s.asked-asked, 0)
				who, _, done := takes(t, there, "copy")
				want(t, "the event is known to be taken", who == "first", tt.known)
				want(t, "it is done", done, tt.over)
			})
		})
	}
}

// What is lost then may be delivered once more; memory has an end.
func TestWhatIsWrittenLaterIsBounded(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop, here, _ *Claims) {
		s.away = true
		var told bytes.Buffer
		here.log = slog.New(slog.NewTextHandler(&told, nil))
		for i := range memorySize + 10 {
			here.write(t.Context(), retry.Policy{}, Claim{Delivered: true, over: true, Claim: tables.Claim{Key: fmt.Sprint(i), Owner: "m"}})
		}
		want(t, "claims to be written", len(here.late), memorySize)
		want(t, "claims of which the log says so", strings.Count(told.String(), "written_later=true"), memorySize)
		asked := s.asked
		here.Flush(t.Context())
		want(t, "questions to a store that is away", s.asked-asked, 3)
	})
}

// Copies of all events that were delivered during an outage are known to every process within seconds after it.
func TestAllEndsThatWaitAreWrittenSoon(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop, here, _ *Claims) {
		const many = 1000
		s.away = true
		for i := range many {
			c := by("m")
			c.Key, c.Delivered, c.over = fmt.Sprint(i), true, true
			here.write(t.Context(), retry.Policy{}, c)
		}
		s.away, s.takes = false, 100*time.Millisecond
		began := time.Now()
		here.Flush(t.Context())
		if took := time.Since(began); took > 15*time.Second { // one by one they take 5 minutes
			t.Errorf("%d claims took %s", many, took)
		}
		want(t, "claims that wait still", len(here.late), 0)
		for _, key := range []string{"0", fmt.Sprint(many - 1)} {
			copied := by("copy")
			copied.Key = key
			current, won, err := s.DB.Claim(t.Context(), copied.Claim, time.Now())
			if err != nil || won || current.State != tables.Done {
				t.Errorf("the event of claim %s is %s, had by its copy: %t, %v", key, current.State, won, err)
			}
		}
	})
}

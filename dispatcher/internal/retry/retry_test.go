package retry

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
)

func TestTriesGoOnForAsLongAsThePolicySays(t *testing.T) {
	for name, tt := range map[string]struct {
		p           Policy
		err         error
		tries       int
		least, most time.Duration
	}{
		"a call":             {Call, errors.New("busy"), 3, 500 * time.Millisecond, time.Second},
		"a refusal for good": {Call, queue.ErrDenied, 1, 0, 0},
		"what has ended":     {Ended, errors.New("busy"), 0, 20 * time.Second, 25 * time.Second},
		"giving back":        {GiveBack, errors.New("busy"), 3, time.Second, 1400 * time.Millisecond},
		"a lost lease":       {Delete, queue.ErrLeaseLost, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				start, tries := time.Now(), 0
				err := Do(t.Context(), tt.p, func(context.Context, int) error { tries++; return tt.err })
				took := time.Since(start)
				if !errors.Is(err, tt.err) || tt.tries != 0 && tries != tt.tries || took < tt.least || took > tt.most {
					t.Errorf("%v after %d tries and %s", err, tries, took)
				}
			})
		})
	}
}

func TestADeleteIsTriedUntilItsContextEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		tries, last := 0, time.Now()
		err := Do(ctx, Delete, func(context.Context, int) error {
			if gap := time.Since(last); tries > 0 && (gap < 500*time.Millisecond || gap > 30*time.Second) {
				t.Errorf("try %d came after %s", tries+1, gap)
			}
			tries, last = tries+1, time.Now()
			return errors.New("busy")
		})
		if err == nil || tries < 100 || tries > 300 {
			t.Errorf("%v after %d tries", err, tries)
		}
	})
}

func TestEachTryHasItsOwnBound(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := Get(t.Context(), Policy{Each: time.Second, Tries: 2, First: time.Second, Max: time.Second}, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 3*time.Second {
			t.Errorf("%v after %s", err, took)
		}
	})
}

func TestBackoffNeverPassesItsLimit(t *testing.T) {
	for n := range 100 {
		if d := Backoff(n+1, time.Second, time.Minute); d < time.Second || d > time.Minute {
			t.Errorf("pause %d is %s", n+1, d)
		}
	}
}

func TestPausesDoubleWithinTheirBounds(t *testing.T) {
	const first, limit = 100 * time.Millisecond, 30 * time.Second
	for n := 1; n < 100; n++ {
		longest := limit
		if n < 10 {
			longest = min(limit, first<<(n-1))
		}
		for range 100 {
			if got := Backoff(n, first, limit); got < max(first, longest/2) || got > longest {
				t.Fatalf("pause %d is %s, want %s to %s", n, got, max(first, longest/2), longest)
			}
		}
	}
	if got := Backoff(3, time.Second, 10*time.Millisecond); got > 10*time.Millisecond {
		t.Errorf("a pause of %s is over its limit", got)
	}
}

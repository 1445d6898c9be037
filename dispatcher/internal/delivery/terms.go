package delivery

import (
	"context"
	"errors"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook"
)

// ErrStopping is the cause with which work is cut short at the end of a drain.
var ErrStopping = errors.New("stopping")

// Terms say with less than how much of its life left a message becomes a dead letter instead of
// being held once more, as whoever received it looks at its queue again.
type Terms struct {
	// Held is for one that nobody takes, Postponed for one whose webhook can't be sent to now.
	Held, Postponed time.Duration
	// Untouched: it is nobody's here, and is given back as it came.
	Untouched bool
	// Shown: when it is held, it is shown again at once.
	Shown bool
}

const (
	// holdDelay is how long a held message is given back for before it is looked at
	// again, at most, and holdLeast at least.
	holdDelay = 10 * time.Minute
	holdLeast = time.Minute
	// holdEach is what each message that is held already adds: a look costs about four
	// storage transactions, and with this all of them together cost no more than some 13 a second.
	holdEach = 300 * time.Millisecond
	// heldMargin is how long before its expiry a held message that no webhook takes is
	// dead-lettered where its queue is polled.
	heldMargin = time.Minute
)

// Usual are the terms of a message that is received again when its time has come, by a process
// that looks at its queue at least every lookGap; zero where it polls.
func Usual(m *queue.Message, lookGap time.Duration) Terms {
	lastLook := LastLook(m, lookGap)
	return Terms{Held: max(LastOfLife(m.InsertedAt, m.ExpiresAt, heldMargin), lastLook), Postponed: lastLook}
}

// PostponeMargin is with less than how much of its life left a message is given up whose webhook
// can't be sent to now.
func PostponeMargin(m *queue.Message) time.Duration {
	return LastOfLife(m.InsertedAt, m.ExpiresAt, policy.ExpiryMargin)
}

// LastLook is with less than how much of its life left a message may not be seen in time again, where
// its queue is looked at every lookGap.
func LastLook(m *queue.Message, lookGap time.Duration) time.Duration {
	return PostponeMargin(m) + lookSlack(m, lookGap)
}

// holdFor is how long a message is given back for, at most, that waits for a webhook to be there, to
// be enabled, or to take messages again, where held are held already. While they are few it is short: if this process dies,
// nobody can show them before. Under a host each look is an invocation.
func holdFor(held int, hosted bool) time.Duration {
	if hosted {
		return holdDelay
	}
	return min(max(time.Duration(held)*holdEach, holdLeast), holdDelay)
}

// lookSlack is how much of its life a message has left at least when it is shown again,
// besides policy.ExpiryMargin: lookGap, or a quarter of its life if that is less.
func lookSlack(m *queue.Message, lookGap time.Duration) time.Duration {
	return min(lookGap, max(m.ExpiresAt.Sub(m.InsertedAt)/4, 0))
}

// LastOfLife is how long before its expiry a message that nobody receives is dead-lettered:
// margin, or half of its life if that is less.
func LastOfLife(inserted, expires time.Time, margin time.Duration) time.Duration {
	return min(margin, max(expires.Sub(inserted)/2, 0))
}

type postDeadlineKey struct{}

type postDeadline struct {
	by    time.Time
	least time.Duration
}

// WithPostDeadline makes every POST under ctx end by then, whatever its webhook's own
// timeout allows. A POST that ends so is a timeout like any other: it is charged, or a
// receiver that is slower than the host allows would be tried for ever. For that it
// has to be given a fair time: none is begun with less than the webhook's timeout, or
// least if that is shorter.
func WithPostDeadline(ctx context.Context, by time.Time, least time.Duration) context.Context {
	return context.WithValue(ctx, postDeadlineKey{}, postDeadline{by, least})
}

// fairTime reports whether a POST may begin under ctx's deadline.
func fairTime(ctx context.Context, w *webhook.Webhook) bool {
	d, ok := ctx.Value(postDeadlineKey{}).(postDeadline)
	return !ok || time.Until(d.by) >= min(w.Timeout, d.least)
}

// postBy is when a POST under ctx has to be over; zero where nothing but its webhook's
// timeout says so.
func postBy(ctx context.Context) time.Time {
	d, _ := ctx.Value(postDeadlineKey{}).(postDeadline)
	return d.by
}

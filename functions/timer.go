package functions

import (
	"context"
	"fmt"
	"time"

	"github.com/pushlease/pushlease/dispatcher"
)

// timer runs what the function is named after. Late and double runs do no harm: a
// pump competes with others under leases, and housekeeping removes what is old, however
// often it is asked to.
func (h *Handler) timer(ctx context.Context, in run, inv invocation, _ func()) error {
	in.log.Debug("timer", "past_due", pastDue(inv, in.f.Binding))
	ctx, cancel := context.WithDeadlineCause(ctx, in.cutShort(), dispatcher.ErrStopping)
	defer cancel()
	return h.tick(ctx, in)
}

// longestTick is how long a timer's run takes at most, however long the host would wait.
const longestTick = 30 * time.Minute

// tickTimeout is the time for a timer's run where the function timeout is this; zero is for ever.
func tickTimeout(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return longestTick
	}
	return min(timeout, longestTick)
}

// tick is one run.
func (h *Handler) tick(ctx context.Context, in run) error {
	switch in.f.Name {
	case timerPump:
		return h.pump(ctx, in)
	case timerHousekeeping:
		ctx, cancel := h.work.beginning(ctx)
		defer cancel()
		return h.parts.Housekeep(ctx)
	}
	return fmt.Errorf("there is no timer named %s; name the folder %s or %s", in.f.Name, timerPump, timerHousekeeping)
}

// pump receives for a quarter of the function timeout at most, so that the last POST
// that it begins still has half of it. What waits for webhooks that can't be sent to is
// guarded for as long as that takes.
func (h *Handler) pump(ctx context.Context, in run) error {
	select {
	case h.pumps <- struct{}{}:
		defer func() { <-h.pumps }()
	default:
		in.log.Info("the pump is running already")
		return nil
	}
	receive, cancel := h.work.beginning(ctx)
	defer cancel()
	defer time.AfterFunc(time.Until(in.began.Add(in.timeout/4)), cancel).Stop()
	work := dispatcher.WithPostDeadline(ctx, in.postsEnd(), in.timeout/4)
	handled, err := h.parts.Dispatcher.Pump(receive, work)
	if handled > 0 {
		in.log.Info("pump", "messages", handled, "took", time.Since(in.began).Round(time.Millisecond).String())
	}
	if err != nil {
		return fmt.Errorf("pump: %w", err)
	}
	return nil
}

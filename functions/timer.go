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
func (h *Handler) timer(ctx context.Context, in run, inv invocation) error {
	in.log.Debug("timer", "past_due", pastDue(inv, in.f.Binding))
	ctx, cancel := context.WithDeadlineCause(ctx, in.share(17, 20), dispatcher.ErrStopping)
	defer cancel()
	return in.within(func() error { return h.tick(ctx, in) })
}

// tick is one run.
func (h *Handler) tick(ctx context.Context, in run) error {
	switch in.f.Name {
	case timerPump:
		return h.pump(ctx, in)
	case timerHousekeeping:
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
	receive, cancel := context.WithDeadline(ctx, in.share(1, 4))
	defer cancel()
	work := dispatcher.WithPostDeadline(ctx, in.share(3, 4), in.timeout/4)
	handled, err := h.parts.Dispatcher.Pump(receive, work)
	if handled > 0 {
		in.log.Info("pump", "messages", handled, "took", time.Since(in.arrived).Round(time.Millisecond).String())
	}
	if err != nil {
		return fmt.Errorf("pump: %w", err)
	}
	return nil
}

package flow

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// takeChange returns the health to write: if it has changed since it was last asked for, always while the webhook
// is limited, which tells other instances that its limit is still shared, and where nothing was written for long: by
// it a later start knows that the webhook was there.
func (f *Flow) takeChange() (tables.Health, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !f.changed && !f.pacer.Limited() && now.Sub(f.savedAt) < savedAgain {
		return tables.Health{}, false
	}
	f.changed, f.savedOK, f.savedAt = false, f.lastOK, now
	return tables.Health{
		WebhookID: f.id, Queue: f.queue, Breaker: f.breaker.State(now), Refusing: f.refusing, Throttles: f.tooMany > 0, PausedUntil: f.pause.Until(now), Failing: f.auto.State(), Pace: f.pacer.State(),
		LastFailureAt: f.lastFailure, Window: f.limit(), InFlight: f.inFlight,
		Delivered: f.delivered, Failed: f.failed, Postponed: f.postponed, UpdatedAt: now,
	}, true
}

func (f *Flow) markChanged() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.changed = true
}

// LastDelivered is when a POST last completed its message; zero when none did.
func (f *Flow) LastDelivered() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lastOK
}

// begun is the ResetAt that the webhook is known with.
func (f *Flow) begun() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.resetAt
}

func (f *Flow) isFailing() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.enabled && !f.auto.State().FailingSince.IsZero()
}

func (f *Flow) isLimited() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.enabled && f.pacer.Limited()
}

// shares reports whether it is time to tell other instances more often what was learned of the
// webhook: some are limited by it, too, or do not know yet that this one is. Where nothing is
// sent there is nothing to share.
func (f *Flow) shares(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.enabled && f.pacer.Limited() && now.Sub(f.moved) < healthEvery && (f.pacer.Shared() || now.Sub(f.pacer.State().Since).Abs() < healthEvery)
}

// newlyLimited reports whether the webhook has been limited for a short while only.
func (f *Flow) newlyLimited(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.enabled && f.pacer.Limited() && now.Sub(f.pacer.State().Since).Abs() < sharedNew
}

// hear takes in what all instances have written of the webhook, and reports what share does.
func (f *Flow) hear(rows []policy.PeerRow, now time.Time) (released bool) {
	f.mu.Lock()
	others := f.peers.Read(rows, now)
	f.mu.Unlock()
	return f.share(others, now)
}

// share tells what other instances have learned of the webhook, and reports whether what is held for it can go on sooner.
func (f *Flow) share(others policy.Others, now time.Time) (released bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unsure = time.Time{}
	f.pacer.Share(others, now)
	if !f.faster(now) {
		return false
	}
	f.release(now)
	return true
}

// ask is called when a POST was refused over a limit. Where this instance has had nothing taken,
// that is a sign of a breakdown, unless others are sent what the limit allows: nothing more is sent
// until their rows tell, for 2 s at most. It reports whether they are to be read.
func (f *Flow) ask(now time.Time) bool {
	if !f.settings.Adaptive || f.pacer.Limited() || f.pacer.Shared() || now.Before(f.unsure) || now.Sub(f.asked[0]) < healthEvery ||
		f.breaker.State(now).Phase != policy.BreakerClosed {
		return false
	}
	f.asked, f.unsure = [2]time.Time{f.asked[1], now}, now.Add(2*healthSoon)
	return true
}

// asks reports whether it is waited for what other instances have learned.
func (f *Flow) asks() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.enabled && f.unsure.After(time.Now())
}

// overdue reports whether the webhook has failed for too long, with what others have seen.
func (f *Flow) overdue(others []policy.AutoDisableState, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return policy.Together(f.since, append(others, f.auto.State())...).Due(f.settings, now)
}

const (
	// healthEvery is how often the health of webhooks that has changed is written, and
	// that of failing ones compared with what the other instances have seen.
	healthEvery = time.Minute
	// sharedEvery is how often instances tell each other what they learn of a webhook that limits
	// several of them. What they tell may not be older where noise is to be told from a limit.
	sharedEvery = 10 * time.Second
	// sharedSoon is how often they do in the first sharedNew of a limit: the one that is sent most puts up with as many refusals
	// as the others are sent, which falls by half in some seconds.
	sharedSoon = 2 * time.Second
	sharedNew  = 30 * time.Second
	// healthSoon is how often it is written at most because a breaker has turned, or a
	// webhook has asked for a pause.
	healthSoon = time.Second
	// savedAgain is how often it is written where nothing changes. Rows are kept for twice as long.
	savedAgain = 5 * 24 * time.Hour
	// healthTimeout bounds one reading or writing of health.
	healthTimeout = 10 * time.Second
)

// load reads what was known before the restart, once, however little time who asks has left for
// the registrations. When it can't, the webhooks that are known by then begin anew, and it is tried
// again once a minute: the registrations wait for it.
func (fs *Flows) load(ctx context.Context) {
	now := time.Now()
	fs.mu.Lock()
	wait := fs.stored != nil || now.Sub(fs.loadedAt) < healthEvery
	if !wait {
		fs.loadedAt = now
	}
	fs.mu.Unlock()
	if wait {
		return
	}
	callCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healthTimeout)
	defer cancel()
	rows, err := retry.Get(callCtx, retry.Call, fs.o.Store.ListHealth)
	if err != nil {
		fs.o.Log.Warn("how the webhooks did before the start can't be read; those that are met now begin anew", "error", err)
		return
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.stored = map[string][]tables.Health{}
	for _, h := range rows {
		fs.stored[h.WebhookID] = append(fs.stored[h.WebhookID], h)
	}
}

// save writes the health that has changed, for the next start and for other instances.
func (fs *Flows) save(ctx context.Context) error {
	var rows []tables.Health
	var changed []*Flow
	for _, f := range fs.All() {
		if h, ok := f.takeChange(); ok {
			h.Instance, h.StartedAt = fs.o.Instance, fs.started
			rows = append(rows, h)
			changed = append(changed, f)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if err := fs.o.Store.PutHealth(ctx, rows...); err != nil {
		for _, f := range changed {
			f.markChanged()
		}
		return fmt.Errorf("save the health of webhooks: %w", err)
	}
	return nil
}

// those are the flows of which that is so.
func (fs *Flows) those(is func(*Flow) bool) []*Flow {
	return slices.DeleteFunc(fs.All(), func(f *Flow) bool { return !is(f) })
}

// learnRates is tellRates at once, since a webhook has become limited, or may be.
func (fs *Flows) learnRates(ctx context.Context) {
	limited := fs.those(func(f *Flow) bool { return f.isLimited() || f.asks() })
	if len(limited) == 0 {
		return
	}
	callCtx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if rows, err := fs.o.Store.ListHealth(callCtx); err == nil { // otherwise the next minute tells
		fs.tellRates(limited, rows, time.Now())
	}
}

// overdue are the webhooks that have failed for too long, by what all instances have seen
// together. It asks the store only while a webhook is failing or limited, and tells the
// limited ones what others have learned.
func (fs *Flows) overdue(ctx context.Context, now time.Time) ([]*Flow, error) {
	failing, limited := fs.those((*Flow).isFailing), fs.those((*Flow).isLimited)
	if len(failing)+len(limited) == 0 {
		return nil, nil
	}
	rows, err := fs.o.Store.ListHealth(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the health of webhooks: %w", err)
	}
	others := map[string][]policy.AutoDisableState{}
	for _, h := range rows {
		if h.Instance != fs.o.Instance {
			others[h.WebhookID] = append(others[h.WebhookID], h.Failing)
		}
	}
	fs.tellRates(limited, rows, now)
	return slices.DeleteFunc(failing, func(f *Flow) bool { return !f.overdue(others[f.id], now) }), nil
}

// saveSoon has health written at once, or with what else is written in this second.
func (fs *Flows) saveSoon() {
	select {
	case fs.turned <- struct{}{}:
	default:
	}
}

// Watch saves health and disables what has failed for too long, until ctx ends.
func (fs *Flows) Watch(ctx context.Context) {
	t, shared := time.NewTicker(healthEvery), time.NewTicker(sharedEvery)
	defer t.Stop()
	defer shared.Stop()
	var soon <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-fs.turned:
			fs.saveHealth(ctx)
			retry.Await(ctx.Done(), healthSoon) // what turns meanwhile goes together
			fs.learnRates(ctx)                  // which others have written in that time, too
			soon = fs.soon()
		case <-soon:
			fs.saveHealth(ctx)
			fs.learnRates(ctx)
			soon = fs.soon()
		case <-shared.C:
			if now := time.Now(); slices.ContainsFunc(fs.All(), func(f *Flow) bool { return f.shares(now) }) {
				fs.saveHealth(ctx)
				fs.learnRates(ctx)
			}
		case <-t.C:
			fs.Tend(ctx)
		}
	}
}

// soon tells when rates are to be shared again because a limit is new; nil when none is.
func (fs *Flows) soon() <-chan time.Time {
	now := time.Now()
	if !slices.ContainsFunc(fs.All(), func(f *Flow) bool { return f.newlyLimited(now) }) {
		return nil
	}
	return time.After(sharedSoon)
}

func (fs *Flows) saveHealth(ctx context.Context) {
	callCtx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if err := fs.save(callCtx); err != nil && ctx.Err() == nil {
		fs.o.Log.Warn("trying again in a minute", "error", err)
	}
}

// Tend saves health once, and disables what has failed for too long.
func (fs *Flows) Tend(ctx context.Context) {
	fs.saveHealth(ctx)
	callCtx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	due, err := fs.overdue(callCtx, time.Now())
	if len(due) > 0 { // nobody is disabled by a registry that is behind: it may have been enabled elsewhere
		if !fs.o.Fresh(callCtx, time.Now()) {
			return
		}
		due, err = fs.overdue(callCtx, time.Now())
	}
	if err != nil && ctx.Err() == nil {
		fs.o.Log.Warn("trying again in a minute", "error", err)
	}
	for _, f := range due {
		fs.o.Disable(ctx, f.id, f.begun())
	}
}

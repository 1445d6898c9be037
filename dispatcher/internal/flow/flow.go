package flow

import (
	"log/slog"
	"sync"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

const (
	// flowPatience is how long a POST waits, holding its lease, until its webhook can take
	// it. What would wait longer is given back.
	flowPatience = 2 * time.Second
	// unknownWaiters bounds those that wait for a webhook of which nothing is known yet, in
	// multiples of what it may have in flight.
	unknownWaiters = 4
	// pauseWorthSaving is the shortest pause that is saved when it is asked for.
	pauseWorthSaving = 5 * time.Second
	// okSavedEvery is how often it is saved when a webhook last took a message.
	okSavedEvery = 10 * time.Minute
	// releaseAfter is how long a webhook has taken nothing when the next 2xx shows that it
	// takes messages again.
	releaseAfter = 30 * time.Second
	// A webhook stalls when none of its POSTs has ended for stallTimes what one takes on
	// average, at least stallMin and at most flowPatience.
	stallTimes = 8
	stallMin   = 250 * time.Millisecond
	// tookWeight is the share of a new measurement in what a POST takes, failed or not.
	tookWeight = 8
)

// Flow is how one webhook fares in this process, and what it may be sent. Each POST of a
// leased message asks it for a ticket first, and hands that back; a test POST that an
// operator asks for does not pass here.
type Flow struct {
	tell  *listeners
	id    string
	queue string

	mu       sync.Mutex
	url      string
	enabled  bool
	why      string // it is disabled
	settings policy.Flow
	resetAt  time.Time // of the registration
	since    time.Time // when it was registered, or began anew

	window  policy.Window
	bucket  policy.Bucket
	pacer   policy.Pacer
	peers   policy.Peers // with whom its limit is shared
	singles policy.Singles
	round   policy.Round
	breaker policy.Breaker
	// refusals tell that it refuses everything for good, and refusing that it does: since then the
	// breaker is open, or half open.
	refusals policy.Refusals
	refusing bool
	pause    policy.Pause
	waited   time.Time // when a POST was last refused with a wait
	waitedAt int64     // what was delivered by then
	// waits is how many were refused so, or with 429, one after the other, since an answer that was no failure: from waitsSince until waitsLast.
	// Of these so many are fresh, and waitsOf is the message of the last one.
	waits, fresh          int
	waitsOf               string
	waitsSince, waitsLast time.Time
	slots                 policy.Slots
	spreadAt              float64 // the lowest learned rate by which slots were given; 0: none was
	meter                 policy.Meter
	auto                  policy.AutoDisable

	inFlight, waiting            int
	moved                        time.Time     // when a POST last began or ended
	took                         time.Duration // by a POST on average, also one that fails
	freed                        chan struct{} // closed when a POST has ended; nil while nobody waits
	delivered, failed, postponed int64
	refused                      int64         // answers that say nothing about the receiver, a 400 for instance
	answers                      policy.Lately // POSTs, and those of them that were refused
	lastFailure, lastUnlimited   time.Time     // of any kind, and of one that is none of a limit
	tooMany                      int           // so many answers, one after the other and up to the last one, said that it is sent too much
	token                        policy.Tokenless
	unfit                        policy.Unfit
	updatedAt                    time.Time // of the registration
	// releasedAt is when the webhook was last found to take messages again: what was held
	// before is due.
	releasedAt time.Time
	lastOK     time.Time    // when a POST was last answered 2xx, also to another instance before the start
	savedOK    time.Time    // lastOK as it was last written
	savedAt    time.Time    // when it was last written, by any instance before the start
	limitTold  bool         // that it is limited, to other instances
	asked      [2]time.Time // when it was asked the last two times what other instances have learned, as nothing was taken
	unsure     time.Time    // until then that is waited for; zero when it is known
	changed    bool         // since its health was last written
}

// listeners hear what happens to a webhook, without its lock held. Those of all webhooks are
// the same.
type listeners struct {
	log *slog.Logger
	// turned: its breaker went into another phase.
	turned func(webhookID string, phase policy.BreakerPhase)
	// room: a POST to a webhook of the queue is over.
	room func(queueName string)
	// released: what is held for it can go on.
	released func(webhookID string)
	// save: its health is to be written soon.
	save func()
	// ours takes in what a POST said, and reports whether a failure is our own network's.
	ours func(webhookID string, s policy.Sign, now time.Time) bool
}

func newFlow(tell *listeners, r tables.Registration) *Flow {
	f := &Flow{
		tell: tell, id: r.ID, queue: r.Queue, url: r.URL, enabled: r.Enabled, why: r.DisabledReason,
		settings: r.Flow.OrDefault(), resetAt: r.ResetAt, since: r.CreatedAt, updatedAt: r.UpdatedAt,
	}
	if !r.ResetAt.IsZero() {
		f.since = r.ResetAt
	}
	return f
}

// update takes in the registration as it is now. A webhook that was enabled, though it was
// so already, or has another URL, begins anew; reset tells. released tells whether what is
// held for it can go on.
func (f *Flow) update(r tables.Registration) (reset, released bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	anew := !r.ResetAt.Equal(f.resetAt)
	moved := r.URL != f.url
	reset = anew || moved || r.Enabled && !f.enabled
	more := f.settings != r.Flow.OrDefault() || f.token.Held() && !r.UpdatedAt.Equal(f.updatedAt) // it may be mended
	if f.updatedAt = r.UpdatedAt; more || reset {
		f.token.Reset()
	}
	f.url, f.enabled, f.why, f.settings, f.resetAt = r.URL, r.Enabled, r.DisabledReason, r.Flow.OrDefault(), r.ResetAt
	if !f.settings.Adaptive && f.pacer.Limited() {
		f.pacer.Reset()
		f.changed = true
	}
	if !reset {
		if more {
			f.release(time.Now())
		}
		if !f.settings.Breaker.Enabled && f.breaker.State(time.Now()).Phase != policy.BreakerClosed {
			f.breaker.Reset() // nothing waits for a probe any more
			f.refusals, f.refusing = policy.Refusals{}, false
			f.changed = true
		}
		return false, more
	}
	f.since = time.Now()
	if anew {
		f.since = r.ResetAt
	}
	f.release(time.Now())
	f.window.Reset()
	f.pacer.Reset()
	f.singles, f.round, f.waited, f.waits, f.tooMany = policy.Singles{}, policy.Round{}, time.Time{}, 0, 0
	f.breaker.Reset()
	f.refusals, f.refusing = policy.Refusals{}, false
	f.pause.Reset()
	f.auto.Reset()
	f.answers = policy.Lately{}
	if moved { // what another receiver took says nothing about this one
		f.lastOK = time.Time{}
	}
	f.changed = true
	return true, true
}

// release makes what was held before now due: the webhook takes messages again, or more.
// f.mu is held; who releases it tells held.
func (f *Flow) release(now time.Time) {
	f.slots.Reset()
	f.spreadAt, f.releasedAt = 0, now
}

// limit is how many POSTs may be in flight now. f.mu is held.
func (f *Flow) limit() int {
	if !f.settings.Adaptive {
		return f.settings.Concurrency
	}
	return f.window.Size(f.settings.Concurrency)
}

// closed says why nothing may be sent now, whatever is in flight; nil when it may.
func (f *Flow) closed(now time.Time) *Refusal {
	if until := f.token.Until(now); !until.IsZero() {
		return &Refusal{policy.NoToken, until}
	}
	if until := f.pause.Until(now); !until.IsZero() {
		return &Refusal{policy.WebhookPaused, until}
	}
	if next := f.breaker.Next(f.settings.Breaker, now); next.After(now) {
		return &Refusal{policy.WebhookFailing, next}
	}
	if f.unsure.After(now) {
		return &Refusal{policy.WebhookBusy, f.unsure}
	}
	return nil
}

// AskPause keeps everything from the webhook for as long as it asked.
func (f *Flow) AskPause(d time.Duration, now time.Time) {
	if d <= 0 {
		return
	}
	f.mu.Lock()
	f.pause.Ask(d, now)
	f.changed = true
	f.mu.Unlock()
	if d >= pauseWorthSaving {
		f.tell.save()
	}
}

// TellUnusable notes why no request can be made, and reports whether the log is to say it now.
func (f *Flow) TellUnusable(why string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unfit.Tell(why, now)
}

// ID is the webhook's id.
func (f *Flow) ID() string { return f.id }

// Refusal says why a webhook is not sent to now, and when it is worth asking again.
type Refusal struct {
	Reason policy.Reason
	Until  time.Time
}

// paced tells whether POSTs go at the learned rate. What finds out whether a webhook takes
// messages again does not.
func (f *Flow) paced(now time.Time) bool {
	return f.breaker.Room(f.settings.Breaker, now) < 0 || f.breaker.Ramping()
}

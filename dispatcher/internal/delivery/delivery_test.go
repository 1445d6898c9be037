package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/pushlease/pushlease/dispatcher/internal/admission"
	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/dispatcher/internal/flow"
	"github.com/pushlease/pushlease/dispatcher/internal/journal"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/dispatcher/internal/registry"
	"github.com/pushlease/pushlease/dispatcher/internal/settle"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/sqlite/sqlitetest"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

const testQueue = "orders"

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// answers is a Sender that gives each webhook its own answer.
type answers map[string]webhook.Result

func (a answers) Send(_ context.Context, w *webhook.Webhook, _ webhook.Request) webhook.Result {
	res := a[w.ID]
	if res.Status == 1 {
		panic("the sender is broken")
	}
	res.StartedAt, res.Duration = time.Now(), time.Millisecond
	return res
}

// newDeliverer makes one over a real store, alone: nothing receives, nothing settles.
func newDeliverer(t *testing.T, sender Sender, webhooks ...string) (*Deliverer, *sqlite.DB) {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlitetest.File(t), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, id := range webhooks {
		if _, err := db.PutWebhook(t.Context(), registration(id)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := meter.New(noop.NewMeterProvider().Meter(""))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	flows := flow.New(flow.Options{
		Store: db, Instance: "test", Log: log, Turned: func(string, policy.BreakerPhase) {}, Shown: func(string, string) {},
		Fresh:   func(context.Context, time.Time) bool { return true },
		Disable: func(context.Context, string, time.Time) {},
	})
	j, cs, spans := journal.New(db, m, log), claims.New(db, m, log), meter.Spans{Tracer: tracenoop.NewTracerProvider().Tracer("")}
	reg := registry.New(db, log, flows.Sync)
	if !reg.Refresh(t.Context()) {
		t.Fatal("the webhooks can't be read")
	}
	write := context.WithoutCancel(t.Context())
	return New(Options{
		Sender: sender, DeadLetters: db, Registry: reg, Journal: j, Claims: cs, Flows: flows,
		Leases: lease.New(write, func(string) time.Duration { return time.Minute }, m, log),
		Completer: settle.New(settle.Options{
			Queues: db.Queues(), DeadLetters: db, Journal: j, Claims: cs, Flows: flows, Meter: m,
			Spans: spans, Log: log,
		}),
		PutOffs: admission.NewPutOffs(), Meter: m, Spans: spans, Log: log, Instance: "test", Write: write,
		Encoding: func(string) queue.Encoding { return queue.EncodingAuto },
		ByEvent:  func(string) bool { return false }, KeepUnmatched: func(string) bool { return false },
		Hosted:  func(string) bool { return false },
		LookGap: func(string) time.Duration { return 0 },
		Disable: func(context.Context, string, time.Time, policy.Reason) {},
	}), db
}

func registration(id string) tables.Registration {
	p, err := policy.Preset("standard")
	if err != nil {
		panic(err)
	}
	f := policy.DefaultFlow()
	f.Concurrency, f.Adaptive, f.Breaker.Enabled = policy.MaxConcurrency, false, false
	return tables.Registration{
		Webhook: webhook.Webhook{ID: id, Queue: testQueue, URL: "https://example.com/" + id, Timeout: time.Second},
		Policy:  p, Flow: f, Enabled: true, CreatedAt: time.Now().UTC(), UpdatedAt: time.Now().UTC(),
	}
}

// received is a message as its first receive brings it.
func received(id string) *queue.Message {
	now := time.Now()
	return &queue.Message{
		ID: id, Text: []byte(`{"n":1}`), DequeueCount: 1, InsertedAt: now, ExpiresAt: now.Add(24 * time.Hour),
		Lease: queue.NewLease("r", now, time.Minute),
	}
}

func (d *Deliverer) deliverNow(t *testing.T, m *queue.Message) Outcome {
	t.Helper()
	return d.Deliver(t.Context(), testQueue, m, Usual(m, 0), nil)
}

// deliverAndRecord is deliverNow with what settling begins with.
func (d *Deliverer) deliverAndRecord(ctx context.Context, t *testing.T, m *queue.Message) Outcome {
	t.Helper()
	o := d.Deliver(ctx, testQueue, m, Usual(m, 0), nil)
	for _, rec := range o.Records {
		d.Completer.Record(t.Context(), m, rec)
	}
	return o
}

func stored(t *testing.T, db *sqlite.DB, m *queue.Message) map[string]tables.State {
	t.Helper()
	all, err := db.Load(t.Context(), tables.MessageKey{Queue: testQueue, MessageID: m.ID, Day: m.InsertedAt})
	if err != nil {
		t.Fatal(err)
	}
	states := map[string]tables.State{}
	for _, del := range all {
		states[del.WebhookID] = del.State
	}
	return states
}

// The record of the last answer is the outcome's: delivering writes nothing that decides.
func TestTheOutcomeHoldsTheRecordOfTheLastAnswerAndNothingIsWrittenBefore(t *testing.T) {
	for status, tt := range map[int]struct {
		action  policy.Action
		reason  policy.Reason
		state   tables.State
		letters int
	}{
		200: {policy.Complete, policy.Delivered, tables.Delivered, 0},
		500: {policy.Abandon, policy.RetryableError, tables.Pending, 0},
		400: {policy.Complete, policy.NonRetryableError, tables.DeadLettering, 1},
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			d, db := newDeliverer(t, answers{"wh_a": {Status: status}}, "wh_a")
			m := received("m1")
			o := d.deliverNow(t, m)
			want(t, "action", o.Action, tt.action)
			want(t, "reason", o.Reason, tt.reason)
			want(t, "dead letters", len(o.DeadLetters), tt.letters)
			want(t, "records", len(o.Records), 1)
			want(t, "state in the record", o.Records[0].Deliveries[0].State, tt.state)
			want(t, "attempts in the record", len(o.Records[0].Attempts), 1)
			want(t, "deliveries in the store", len(stored(t, db, m)), 0)
		})
	}
}

func TestWithSeveralWebhooksTheEarlierAnswersAreOnRecordAndTheEarliestNextTimeDecides(t *testing.T) {
	d, db := newDeliverer(t, answers{
		"wh_a": {Status: 200}, "wh_b": {Status: 500}, "wh_c": {Status: 400}, "wh_d": {Status: 503, RetryAfter: "600"},
	}, "wh_a", "wh_b", "wh_c", "wh_d")
	m := received("m1")
	o := d.deliverNow(t, m)
	want(t, "action", o.Action, policy.Abandon)
	want(t, "dead letters", len(o.DeadLetters), 1)
	want(t, "records left", len(o.Records), 1)
	want(t, "deliveries in the store", len(stored(t, db, m)), 3)
	want(t, "is tried again within a minute", o.Delay > 0 && o.Delay < time.Minute, true)
}

func TestAMessageThatNobodyTakesIsHeldAndOneThatIsNobodysIsLeftAlone(t *testing.T) {
	d, db := newDeliverer(t, answers{})
	m := received("m1")
	o := d.deliverAndRecord(t.Context(), t, m)
	want(t, "action", o.Action, policy.Hold)
	want(t, "reason", o.Reason, policy.NoWebhook)
	want(t, "waits", o.Delay > 50*time.Second && o.Delay <= time.Minute, true)
	want(t, "on record", stored(t, db, m)[""], tables.Held)
	shown := d.Deliver(t.Context(), testQueue, received("m2"), Terms{Shown: true}, nil)
	want(t, "shown again at once", shown.Action == policy.Hold && shown.Delay == 0, true)
	other := received("m3")
	want(t, "left alone", d.Deliver(t.Context(), testQueue, other, Terms{Untouched: true}, nil).Action, policy.Hold)
	want(t, "not on record", len(stored(t, db, other)), 0)
	ending := received("m4")
	ending.InsertedAt, ending.ExpiresAt = time.Now().Add(-time.Hour), time.Now().Add(50*time.Second)
	want(t, "near its end", len(d.deliverNow(t, ending).DeadLetters), 1)
}

func TestAPanicIsAFaultOfOursAndOfOneWebhookAlone(t *testing.T) {
	d, db := newDeliverer(t, answers{"wh_a": {Status: 1}, "wh_b": {Status: 200}}, "wh_a", "wh_b")
	m := received("m1")
	o := d.deliverNow(t, m)
	want(t, "action", o.Action, policy.NoVerdict)
	want(t, "reason", o.Reason, policy.InternalFault)
	states := stored(t, db, m)
	for _, rec := range o.Records {
		states[rec.Deliveries[0].WebhookID] = rec.Deliveries[0].State
	}
	want(t, "the other webhook has it", states["wh_b"], tables.Delivered)
	d.Encoding = func(string) queue.Encoding { return queue.EncodingAuto }
	d.historian.Options = nil // breaks what comes before any POST
	again := received("m2")
	again.DequeueCount = 2
	o = d.deliverNow(t, again)
	want(t, "action of a fault before any POST", o.Action, policy.NoVerdict)
	want(t, "is given back after a pause", o.Delay > 0, true)
}

func TestWhatIsGivenUpAsAWholeGoesByWhatItsWebhooksDidBefore(t *testing.T) {
	d, _ := newDeliverer(t, answers{})
	for state, copied := range map[tables.State]bool{tables.Delivered: true, tables.DeadLettered: false} {
		p := d.opener.parcel(testQueue, received(string(state)), Terms{}, nil)
		if err := d.opener.open(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		p.claim = &claims.Claim{}
		h := history{deliveries: map[string]tables.Delivery{"wh_a": {WebhookID: "wh_a", State: state}}}
		rest := []target{gone(p.newDelivery("wh_b"))}
		o := d.wholes.giveUpMessage(p, h, rest, policy.PoisonMessage)
		want(t, "its event is taken", o.Claim.Delivered, state == tables.Delivered)
		want(t, "dead letters", len(o.DeadLetters), 1)
		want(t, "it is for", o.DeadLetters[0].Row.WebhookID, "wh_b")
		want(t, "it is copied, once", o.DeadLetters[0].Copy, copied)
	}
}

// Near the end of a message's life nobody may be there to receive it again: what another instance has ended while this one stood still is
// left out, and what is left is decided by that.
func TestNearItsEndAMessageIsDecidedAnewByWhatOthersHaveEnded(t *testing.T) {
	of := func(webhook string, state tables.State) tables.Delivery {
		return tables.Delivery{WebhookID: webhook, State: state, Reason: policy.NonRetryableError, Attempts: 1, UpdatedAt: time.Now()}
	}
	anew := func(d tables.Delivery) tables.Delivery { d.Generation = 1; return d }
	one, all, whole := []string{"wh_b true"}, []string{"wh_a true", "wh_b false"}, []string{" true"}
	type others []tables.Delivery
	for name, tt := range map[string]struct {
		known   others
		each    []string // dead letters, and which has the copy, where each webhook was given up
		asWhole []string // the same where the message was
		taken   bool     // its event is delivered
	}{
		"nothing is over":                        {nil, all, whole, false},
		"one is tried":                           {others{of("wh_a", tables.Pending)}, all, whole, false},
		"one was withdrawn":                      {others{of("wh_a", tables.Withdrawn)}, one, whole, false},
		"one was delivered":                      {others{of("wh_a", tables.Delivered)}, one, one, true},
		"one was delivered, one is tried anew":   {others{of("wh_a", tables.Delivered), anew(of("wh_b", tables.Pending))}, nil, []string{"wh_b true"}, true},
		"both were delivered, one anew":          {others{of("wh_a", tables.Delivered), anew(of("wh_b", tables.Delivered))}, nil, nil, true},
		"one is a dead letter":                   {others{of("wh_b", tables.DeadLettered)}, []string{"wh_a false"}, []string{"wh_a false"}, false},
		"one is a dead letter anew, and another": {others{anew(of("wh_a", tables.DeadLettered)), of("wh_b", tables.Held)}, []string{"wh_b false"}, []string{"wh_b false"}, false},
		"another one is a dead letter":           {others{of("wh_d", tables.DeadLettered)}, []string{"wh_a false", "wh_b false"}, []string{"wh_a false", "wh_b false"}, false},
		"it is a duplicate":                      {others{of("", tables.Duplicate), of("wh_a", tables.Duplicate)}, nil, nil, false},
		"it is a dead letter as a whole":         {others{of("", tables.DeadLettered)}, nil, nil, false},
	} {
		for asWhole, letters := range map[bool][]string{false: tt.each, true: tt.asWhole} {
			t.Run(fmt.Sprint(name, " ", asWhole), func(t *testing.T) {
				d, p, o := givenUpNearTheEnd(t, asWhole)
				for _, del := range tt.known {
					del.MessageKey = p.key
					d.Journal.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{del}})
				}
				got := d.afterOthers(t.Context(), p, o)
				want(t, "dead letters", lettersOf(got), fmt.Sprint(letters))
				want(t, "its event is taken", got.Claim != nil && got.Claim.Delivered, tt.taken)
				var onRecord []string
				for _, rec := range got.Records {
					for _, del := range rec.Deliveries {
						onRecord = append(onRecord, del.WebhookID)
					}
				}
				for _, dl := range got.DeadLetters {
					want(t, "given up on record: "+dl.Row.WebhookID, slices.Contains(onRecord, dl.Row.WebhookID), true)
				}
				want(t, "given up on record", len(onRecord), len(got.DeadLetters))
			})
		}
	}
}

// The same where one webhook had ended before: what is left of the message was given up.
func TestNearItsEndWhatIsLeftOfAMessageIsDecidedAnew(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile tables.State
		away      bool
		letters   string
	}{"nobody else had it": {"", false, "[wh_b true]"}, "it was delivered": {tables.Delivered, false, "[]"}, "nothing can be looked up": {"", true, "[wh_b true]"}} {
		t.Run(name, func(t *testing.T) {
			d, p, _ := givenUpNearTheEnd(t, true)
			old := p.newDelivery("wh_old")
			old.State = tables.Withdrawn
			p.keepHeld(old)
			has := p.newDelivery("wh_a")
			has.State, has.UpdatedAt = tables.Delivered, time.Now()
			d.Journal.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{has}})
			o := d.wholes.giveUpMessage(p, history{deliveries: map[string]tables.Delivery{"wh_a": has}}, p.targets[1:], policy.EventInWork)
			o.Records = d.posts.tickets.takeHeld(t.Context(), p)
			if tt.meanwhile != "" {
				other := p.newDelivery("wh_b")
				other.State, other.UpdatedAt = tt.meanwhile, time.Now()
				d.Journal.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{other}})
			}
			if tt.away {
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				d.Write = ended
			}
			got := d.afterOthers(t.Context(), p, o)
			want(t, "dead letters", lettersOf(got), tt.letters)
			want(t, "deliveries on record, and the withdrawn one", len(got.Records[0].Deliveries), len(got.DeadLetters)+1)
			want(t, "action", got.Action, policy.Complete)
		})
	}
}

// What ends without a dead letter stays ended; but a message that no filter took, and of which a webhook is on record, is given up for that.
func TestNearItsEndADuplicateStaysOneAndWhatNoFilterTookGoesByWhatIsOnRecord(t *testing.T) {
	for _, reason := range []policy.Reason{policy.Duplicate, policy.Unmatched} {
		for _, tried := range []bool{false, true} {
			d, p, _ := givenUpNearTheEnd(t, true)
			gone := p.newDelivery("wh_gone") // says nothing of whether it goes on
			gone.State, gone.UpdatedAt = tables.Withdrawn, time.Now()
			d.Journal.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{gone}})
			var o *Outcome
			letters := "[]"
			if p.targets[0].delivery.Reason = policy.Stopping; reason == policy.Duplicate {
				o = d.events.duplicate(p, history{}, p.targets, "event", "other")
			} else {
				p.targets = nil
				o = d.wholes.unmatched(p, history{})
			}
			if tried {
				other := p.newDelivery("wh_c")
				other.Attempts, other.Reason, other.UpdatedAt = 1, policy.RetryableError, time.Now()
				d.Journal.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{other}})
				if reason == policy.Unmatched {
					letters = "[wh_c true]"
				}
			}
			got := d.afterOthers(t.Context(), p, o)
			want(t, fmt.Sprintf("dead letters of %s, tried %t", reason, tried), lettersOf(got), letters)
			want(t, "action", got.Action, policy.Complete)
			want(t, "records", len(got.Records), 1)
		}
	}
}

// Nothing may be lost because storage can't say what others have ended.
func TestNearItsEndAMessageOfWhichNothingCanBeLookedUpIsGivenUpAsItWas(t *testing.T) {
	d, p, o := givenUpNearTheEnd(t, false)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	d.Write = ended
	want(t, "dead letters", lettersOf(d.afterOthers(t.Context(), p, o)), lettersOf(o))
}

// givenUpNearTheEnd is a message with two webhooks that has seconds to live, and what was decided about it: each is given up, or the message.
func givenUpNearTheEnd(t *testing.T, asWhole bool) (*Deliverer, *parcel, *Outcome) {
	t.Helper()
	d, _ := newDeliverer(t, answers{}, "wh_a", "wh_b")
	m := received("m")
	m.ExpiresAt = time.Now().Add(20 * time.Second)
	p := d.opener.parcel(testQueue, m, Terms{}, nil)
	if err := d.opener.open(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	p.claim = &claims.Claim{}
	h := history{known: true, deliveries: map[string]tables.Delivery{}}
	for _, id := range []string{"wh_a", "wh_b"} {
		p.targets = append(p.targets, gone(p.newDelivery(id)))
	}
	if asWhole {
		return d, p, d.wholes.giveUpMessage(p, h, p.targets, policy.PoisonMessage)
	}
	for i := range p.targets {
		p.giveUp(&p.targets[i].delivery, policy.MessageExpiring, time.Now())
		p.keepHeld(p.targets[i].delivery)
	}
	o := fold(p, h, p.targets)
	o.Records = d.posts.tickets.takeHeld(t.Context(), p)
	return d, p, o
}

// lettersOf are the dead letters of an outcome, and which has the copy.
func lettersOf(o *Outcome) string {
	var all []string
	for _, dl := range o.DeadLetters {
		all = append(all, fmt.Sprint(dl.Row.WebhookID, " ", dl.Copy))
	}
	slices.Sort(all)
	return fmt.Sprint(all)
}

// atPost does something at the end of a POST to the webhook, which takes its time.
type atPost struct {
	webhook string
	takes   time.Duration
	do      func()
}

func (a atPost) Send(_ context.Context, w *webhook.Webhook, _ webhook.Request) webhook.Result {
	if w.ID == a.webhook {
		time.Sleep(a.takes)
		a.do()
	}
	return webhook.Result{Status: 500, StartedAt: time.Now()}
}

// What is held beside a POST excuses no receive, whichever way it comes to be held: that POST is what ends the
// process, if anything does (ADR 0006). wh_b is full, waits for a place in vain, and is held after 2 s.
func TestWhatIsHeldAfterItsWaitExcusesNoReceiveInWhichAnotherIsPOSTed(t *testing.T) {
	for _, takes := range []time.Duration{3 * time.Second, 10 * time.Millisecond, 0} { // with 0 there is no POST
		posted := takes > 0
		bubble.Test(t, func(t *testing.T) {
			var d *Deliverer
			var db *sqlite.DB
			m := received("m1")
			asked := false
			d, db = newDeliverer(t, atPost{"wh_a", takes, func() {
				asked = true
				if all := stored(t, db, m); len(all) > 0 {
					t.Errorf("on record while the POST is under way: %v", all)
				}
			}})
			list := []string{"wh_b"}
			if posted {
				list = append(list, "wh_a")
			}
			for _, id := range list {
				r := registration(id)
				r.Flow.Concurrency = 1
				if _, err := db.PutWebhook(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			d.Registry.Refresh(t.Context())
			b := registration("wh_b")
			full, refused := d.Flows.Of(&b).Enter(time.Now())
			if full == nil || refused != nil {
				t.Fatal("wh_b had no place to take")
			}
			m = received("m1")
			d.deliverAndRecord(t.Context(), t, m)
			want(t, "a POST was under way", asked, posted)
			all, err := db.Load(t.Context(), tables.MessageKey{Queue: testQueue, MessageID: m.ID, Day: m.InsertedAt})
			if err != nil {
				t.Fatal(err)
			}
			all = slices.DeleteFunc(all, func(del tables.Delivery) bool { return del.WebhookID != "wh_b" })
			want(t, "records of wh_b", len(all), 1)
			want(t, "its state", all[0].State, tables.Held)
			want(t, "the receive is excused", all[0].Excused > 0, !posted)
		})
	}
}

// Not in a bubble, where nothing runs at the same moment; the race detector has to see it.
func TestPOSTsSideBySideShareNothing(t *testing.T) {
	d, _ := newDeliverer(t, answers{})
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(ErrStopping)
	for range 20 {
		p := d.opener.parcel(testQueue, received("m"), Terms{}, nil)
		var targets []target
		for i := range 50 {
			r := registration(fmt.Sprint("wh_", i))
			targets = append(targets, target{registration: &r, delivery: p.newDelivery(r.ID)})
		}
		d.posts.post(ended, p, targets)
		for i := range targets {
			want(t, "reason", targets[i].delivery.Reason, policy.Stopping)
		}
	}
}

// After a lease that has ended nothing unfinished is recorded that was decided under it: another instance may have gone on.
func TestWhatIsHeldIsNotRecordedAfterTheLease(t *testing.T) {
	for left, want := range map[time.Duration][]tables.State{
		time.Minute: {tables.Held, tables.Pending, tables.Withdrawn}, -time.Second: {tables.Withdrawn},
	} {
		d, _ := newDeliverer(t, answers{})
		m := received("m")
		m.Lease = queue.NewLease("r", time.Now(), left)
		p := d.opener.parcel(testQueue, m, Terms{}, nil)
		for i, state := range []tables.State{tables.Held, tables.Pending, tables.Withdrawn} {
			del := p.newDelivery(fmt.Sprint("wh_", i))
			del.State = state
			p.keepHeld(del)
		}
		var got []tables.State
		for _, del := range d.posts.tickets.takeSomeHeld(t.Context(), p, 10) {
			got = append(got, del.State)
		}
		if !slices.Equal(got, want) {
			t.Errorf("with %s left: %v are recorded, want %v", left, got, want)
		}
	}
}

// A webhook that is deleted before its turn has lost no lease.
func TestAWebhookThatIsDeletedBeforeItsTurnIsSaidToBe(t *testing.T) {
	d, _ := newDeliverer(t, answers{"wh_a": {Status: 200}}, "wh_a")
	p := d.opener.parcel(testQueue, received("m"), Terms{}, nil)
	r := registration("wh_gone")
	target := target{registration: &r, delivery: p.newDelivery(r.ID), later: true, flow: d.Flows.Of(&r)}
	want(t, "begins", d.posts.tickets.waitToEnter(t.Context(), p, &target), false)
	want(t, "reason", target.delivery.Reason, policy.WebhookDeleted)
	want(t, "state", target.delivery.State, tables.Pending)
}

// The record of the POST that ends as the last one of a message is the outcome's, and no other.
func TestTheOutcomeTakesTheLastRecordAlong(t *testing.T) {
	rec := tables.Record{Deliveries: []tables.Delivery{{WebhookID: "wh_a"}}}
	p := &parcel{underWay: 2}
	want(t, "kept while another POST is under way", p.keepLast(rec), false)
	want(t, "kept as the last", p.keepLast(rec), true)
	want(t, "taken along", len(p.takeLast()), 1)
	want(t, "taken along once", len(p.takeLast()), 0)
	suspected := &parcel{underWay: 1, alone: true}
	want(t, "kept where the note about the message has to be taken back", suspected.keepLast(rec), false)
}

func TestEveryReasonOfADeadLetterIsExplained(t *testing.T) {
	otherwise := policy.Reason("nothing").Explain(policy.Tried{})
	for _, reason := range policy.Reasons() {
		del := tables.Delivery{Reason: reason}
		if actionOf(del) == policy.NoVerdict {
			continue
		}
		if text := reason.Explain(policy.Tried{}); text == otherwise && !slices.Contains(neverGivenUp, reason) || !strings.HasSuffix(text, ".") {
			t.Errorf("%s: %q", reason, text)
		}
	}
}

// neverGivenUp are reasons that no dead letter of ours has.
var neverGivenUp = []policy.Reason{policy.Delivered, policy.RetryableError, policy.ReceiverBusy, policy.Duplicate, policy.ReplayEnded, policy.Expired}

// What a stop cuts short near its end is on record as given up before its dead letter: a process
// that dies between the two leaves a redelivery that goes on with the same row.
func TestWhatAStopGivesUpIsOnRecordBeforeItsDeadLetter(t *testing.T) {
	d, db := newDeliverer(t, answers{}, "wh_a")
	stopped, cancel := context.WithCancelCause(t.Context())
	cancel(ErrStopping)
	m := received("m1")
	m.ExpiresAt = m.InsertedAt.Add(20 * time.Second)
	o := d.Deliver(stopped, testQueue, m, Usual(m, 0), nil)
	want(t, "dead letters", len(o.DeadLetters), 1)
	for _, rec := range o.Records {
		if err := db.Record(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
	want(t, "on record", stored(t, db, m)["wh_a"], tables.DeadLettering)
	time.Sleep(2 * time.Millisecond) // another time would give another id
	m.DequeueCount++
	again := d.deliverNow(t, m)
	want(t, "dead letters of the redelivery", len(again.DeadLetters), 1)
	want(t, "dead letter", again.DeadLetters[0].Row.ID, o.DeadLetters[0].Row.ID)
}

// A message that is handed on while no POST can begin is handed on with the next receive.
func TestAMessageThatIsHandedOnInVainIsHandedOnAgain(t *testing.T) {
	d, db := newDeliverer(t, answers{"wh_b": {Status: 200}}, "wh_b")
	m := received("m1")
	m.InsertedAt, m.DequeueCount = m.InsertedAt.Add(-time.Hour), 2
	key := tables.MessageKey{Queue: testQueue, MessageID: m.ID, Day: m.InsertedAt}
	held := tables.Delivery{MessageKey: key, WebhookID: "wh_a", State: tables.Held, Reason: policy.WebhookDeleted, Excused: 1, UpdatedAt: m.InsertedAt}
	if err := db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{held}}); err != nil {
		t.Fatal(err)
	}
	late := WithPostDeadline(t.Context(), time.Now(), time.Second)
	o := d.deliverAndRecord(late, t, m)
	want(t, "action", o.Action, policy.NoVerdict)
	want(t, "on record", stored(t, db, m)["wh_a"], tables.Withdrawn)
	m.DequeueCount++
	o = d.deliverNow(t, m)
	want(t, "action", o.Action, policy.Complete)
	want(t, "reason", o.Reason, policy.Delivered)
}

// Too little of a host's time is no lost lease: near the end of its life, where nobody may look at it again, the
// message becomes a dead letter. A lease that ends is left to who comes next.
func TestTooLittleOfAHostsTimeIsNoLostLease(t *testing.T) {
	late := WithPostDeadline(t.Context(), time.Now(), time.Second)
	for name, tt := range map[string]struct {
		left   time.Duration
		lease  time.Duration
		action policy.Action
		reason policy.Reason
	}{
		"young":                     {8 * time.Minute, time.Minute, policy.NoVerdict, policy.Stopping},
		"near its end":              {2 * time.Minute, time.Minute, policy.Complete, policy.MessageExpiring},
		"near its end, lease short": {2 * time.Minute, time.Second, policy.NoVerdict, policy.LeaseLost},
	} {
		d, _ := newDeliverer(t, answers{"wh_a": {Status: 200}}, "wh_a")
		d.LookGap = func(string) time.Duration { return 6 * time.Minute }
		m := received("m1")
		m.InsertedAt, m.ExpiresAt = time.Now().Add(tt.left-10*time.Minute), time.Now().Add(tt.left)
		m.Lease = queue.NewLease("r", time.Now().Add(tt.lease-time.Minute), time.Minute)
		o := d.Deliver(late, testQueue, m, Usual(m, 0), nil)
		want(t, name+": action", o.Action, tt.action)
		want(t, name+": reason", o.Reason, tt.reason)
		want(t, name+": dead letters", len(o.DeadLetters), map[policy.Action]int{policy.Complete: 1}[tt.action])
	}
}

// What was due to a deleted webhook ends with its message, also where that ends as a duplicate of
// one that the new webhook took.
func TestADuplicateEndsWhatADeletedWebhookHeld(t *testing.T) {
	d, db := newDeliverer(t, answers{"wh_b": {Status: 200}}, "wh_b")
	d.ByEvent = func(string) bool { return true }
	text := []byte(`{"specversion":"1.0","type":"order.placed","source":"/shop","id":"1"}`)
	other, m := received("m1"), received("m2")
	other.Text, m.Text = text, text
	o := d.deliverNow(t, other)
	want(t, "reason of the other message", o.Reason, policy.Delivered)
	d.Claims.End(t.Context(), o.Claim)
	m.InsertedAt, m.DequeueCount = m.InsertedAt.Add(-time.Hour), 2
	key := tables.MessageKey{Queue: testQueue, MessageID: m.ID, Day: m.InsertedAt}
	held := tables.Delivery{MessageKey: key, WebhookID: "wh_a", State: tables.Held, Reason: policy.WebhookDeleted, Excused: 1, UpdatedAt: m.InsertedAt}
	if err := db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{held}}); err != nil {
		t.Fatal(err)
	}
	o = d.deliverAndRecord(t.Context(), t, m)
	want(t, "reason", o.Reason, policy.Duplicate)
	want(t, "state for the deleted webhook", stored(t, db, m)["wh_a"], tables.Withdrawn)
}

func TestTheAnswerThatDisablesAWebhookIsOnRecordBeforeThat(t *testing.T) {
	d, db := newDeliverer(t, answers{"wh_a": {Status: 410}}, "wh_a")
	m := received("m1")
	var state tables.State
	d.Disable = func(context.Context, string, time.Time, policy.Reason) { state = stored(t, db, m)["wh_a"] }
	o := d.deliverNow(t, m)
	want(t, "state when it is disabled", state, tables.DeadLettering)
	want(t, "records left", len(o.Records), 0)
	want(t, "dead letters", len(o.DeadLetters), 1)
}

func TestWhatANewerVersionWroteIsHeld(t *testing.T) {
	want(t, "action", actionOf(tables.Delivery{State: tables.Held, Reason: policy.Undecodable}), policy.Hold)
	want(t, "action", actionOf(tables.Delivery{State: tables.Held, Reason: policy.StorageFault}), policy.NoVerdict)
	want(t, "action", actionOf(tables.Delivery{State: tables.Pending, Reason: policy.RetryableError}), policy.Abandon)
}

// A suspected message's POST is noted before it begins. Where none begins after all, because too
// little of the lease is left, the note is taken back: three that stay would make a poison
// message of one that was never POSTed.
func TestANoteOfAPostThatDoesNotBeginIsTakenBack(t *testing.T) {
	d, db := newDeliverer(t, answers{"wh_a": {Status: 200}}, "wh_a")
	m := received("m1")
	m.DequeueCount = 100
	m.Lease = queue.NewLease("r", time.Now().Add(2*time.Second-time.Minute), time.Minute)
	for range poisonProofs + 1 {
		o := d.deliverNow(t, m)
		want(t, "action", o.Action, policy.NoVerdict)
		want(t, "reason", o.Reason, policy.LeaseLost)
	}
	all, err := db.Load(t.Context(), tables.MessageKey{Queue: testQueue, MessageID: m.ID, Day: m.InsertedAt})
	if err != nil || len(all) != 1 || all[0].MissingRecords != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// No POST begins after the machine was suspended past the lease, and the message is not taken to end under it.
func TestNoPostBeginsAfterTheMachineWasSuspended(t *testing.T) {
	for slept, leased := range map[int]bool{0: true, 600: false} {
		now := time.Now()
		p := &parcel{m: &queue.Message{Lease: queue.NewLease("r", bubble.Suspended(now, slept), time.Minute), ExpiresAt: now.Add(policy.ExpiryMargin / 2)}}
		want(t, "leased", p.leased(), leased)
		want(t, "ends", p.ends(now), leased)
	}
}

// unbegun is a Sender that finds the lease over before the first byte is written.
type unbegun struct{ m *queue.Message }

func (s *unbegun) Send(_ context.Context, _ *webhook.Webhook, r webhook.Request) webhook.Result {
	s.m.Lease.Renewed("r", time.Now().Add(-2*time.Minute), time.Minute)
	return webhook.Result{NotBegun: !r.Begin(), ErrorClass: string(policy.ClassCanceled), StartedAt: time.Now()}
}

// A POST had no time to begin before the message's end. That its delivery is given up is the outcome's to record: another instance may
// have the message.
func TestWhatIsGivenUpWithoutAPostIsOnNoRecordBefore(t *testing.T) {
	m := received("m")
	m.ExpiresAt = time.Now().Add(20 * time.Second)
	d, db := newDeliverer(t, late{}, "wh_a")
	o := d.deliverNow(t, m)
	want(t, "dead letters", len(o.DeadLetters), 1)
	want(t, "records", len(o.Records), 1)
	want(t, "state in the record", o.Records[0].Deliveries[0].State, tables.DeadLettering)
	want(t, "deliveries in the store", len(stored(t, db, m)), 0)
}

// late is a Sender that finds the lease too short, and the message near its end.
type late struct{}

func (late) Send(context.Context, *webhook.Webhook, webhook.Request) webhook.Result {
	return webhook.Result{NotBegun: true, ErrorClass: string(policy.ClassCanceled), StartedAt: time.Now()}
}

// Another holder had found a webhook for a message that was given up as a whole, or that no filter took.
func TestAMessageThatWasGivenUpGoesOnWhereAWebhookIsOnRecord(t *testing.T) {
	d, _ := newDeliverer(t, answers{})
	for _, tt := range []struct {
		whole, of tables.State
		ended     bool
	}{
		{tables.DeadLettering, "", true}, {tables.DeadLettering, tables.Pending, true}, {tables.DeadLettering, tables.Delivered, false},
		{tables.Unmatched, "", true}, {tables.Unmatched, tables.Pending, false}, {tables.Duplicate, tables.Delivered, true},
	} {
		p := d.opener.parcel(testQueue, received("m"), Terms{}, nil)
		h := history{deliveries: map[string]tables.Delivery{"": {State: tt.whole}}}
		if tt.of != "" {
			h.deliveries["wh_a"] = tables.Delivery{WebhookID: "wh_a", State: tt.of}
		}
		want(t, fmt.Sprintf("%s, a webhook %q: it has ended", tt.whole, tt.of), endedBefore(p, h) != nil, tt.ended)
		held := d.wholes.untaken(p, h, false)
		want(t, fmt.Sprintf("%s, a webhook %q, and none is there: it is held", tt.whole, tt.of), held.Action == policy.Hold, !tt.ended)
	}
}

// Three notes that stay make a poison message: one of a POST that was not begun is taken back, also where the lease is over.
func TestASuspectWhosePostsDoNotBeginIsNoPoison(t *testing.T) {
	sender := &unbegun{}
	d, db := newDeliverer(t, sender, "wh_a", "wh_b")
	for i := range int64(6) {
		sender.m = received("m")
		sender.m.DequeueCount = 20 + i
		o := d.deliverAndRecord(t.Context(), t, sender.m)
		want(t, "dead letters", len(o.DeadLetters), 0)
		known, err := db.Load(t.Context(), tables.MessageKey{Queue: testQueue, MessageID: sender.m.ID, Day: sender.m.InsertedAt})
		if err != nil || len(known) != 2 {
			t.Fatal(known, err)
		}
		want(t, "notes that stay", known[0].MissingRecords+known[1].MissingRecords, 0)
	}
}

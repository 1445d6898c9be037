package settle

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/pushlease/pushlease/dispatcher/internal/claims"
	"github.com/pushlease/pushlease/dispatcher/internal/journal"
	"github.com/pushlease/pushlease/dispatcher/internal/lease"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// stage notes what is asked of storage, in order; down calls fail.
type stage struct {
	queue.Queue
	tables.Deliveries
	tables.DeadLetters
	asked []string
	down  string
	// renewing is what a renewal is answered.
	renewing error
	// cameBack is by how many receives the message's count had risen when it came back while it was in work; 0 where it did not.
	cameBack int64
	// whenDeleted is done while the message is deleted together with its record, for which its lease is over.
	whenDeleted func()
	// slow is how long a record takes.
	slow time.Duration
	// putOff counts messages that were given back without a record.
	putOff int
}

func (s *stage) do(what string) error {
	s.asked = append(s.asked, what)
	if what == s.down {
		return errors.New("away")
	}
	return nil
}

func (s *stage) Name() string                                   { return "orders" }
func (s *stage) Complete(context.Context, *queue.Message) error { return s.do("complete") }
func (s *stage) Abandon(_ context.Context, _ *queue.Message, _ time.Duration) error {
	return s.do("abandon")
}
func (s *stage) Renew(_ context.Context, m *queue.Message, length time.Duration) error {
	if s.renewing == nil {
		m.Lease.Renewed("renewed", time.Now(), length)
	}
	return s.renewing
}
func (s *stage) Record(_ context.Context, r tables.Record) error {
	time.Sleep(s.slow)
	return s.do("record " + string(r.Deliveries[0].State))
}
func (s *stage) Load(context.Context, tables.MessageKey) ([]tables.Delivery, error) {
	return nil, nil
}
func (s *stage) PutDeadLetter(_ context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	return d, s.do("dead letter")
}

func (s *stage) GetDeadLetter(context.Context, string) (tables.DeadLetter, error) {
	return tables.DeadLetter{ReplayToken: "t"}, nil
}

func (s *stage) UpdateDeadLetter(_ context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	return d, s.do("replay ended")
}

func (s *stage) CompleteRecorded(context.Context, string, *queue.Message, tables.Record) error {
	err := s.do("complete with record")
	if s.whenDeleted != nil {
		s.whenDeleted()
		return queue.ErrLeaseLost
	}
	return err
}

// settleOn settles a message on s.
func settleOn(t *testing.T, s *stage, recorded RecordedCompletes, o *Outcome) Result {
	t.Helper()
	return settleWith(t, s, s, recorded, o)
}

// settleWith settles a message of q, with its records in s.
func settleWith(t *testing.T, s *stage, q queue.Queue, recorded RecordedCompletes, o *Outcome) Result {
	t.Helper()
	return settleSince(t, s, q, recorded, o, &queue.Message{ID: "m", DequeueCount: 1, Lease: queue.NewLease("r", time.Now(), time.Minute)})
}

// settleSince is settleWith for a message that was received before.
func settleSince(t *testing.T, s *stage, q queue.Queue, recorded RecordedCompletes, o *Outcome, message *queue.Message) Result {
	t.Helper()
	m, err := meter.New(metricnoop.NewMeterProvider().Meter(""))
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(&bytes.Buffer{}, nil))
	c := New(Options{
		DeadLetters: s, Recorded: recorded, Journal: journal.New(s, m, log), Claims: claims.New(nil, m, log), Meter: m,
		Spans: meter.Spans{Tracer: tracenoop.NewTracerProvider().Tracer("")}, Log: log,
		GivenBack: func(string, *queue.Message, time.Duration, bool) {},
		PutOff:    func(string, *queue.Message) { s.putOff++ },
	})
	ls := lease.New(t.Context(), func(string) time.Duration { return time.Minute }, m, log)
	l := ls.Keep(t.Context(), q, message)
	defer l.Stop()
	if !l.Begin() {
		t.Fatal("in work already")
	}
	comeBack := func() {
		again := ls.Keep(t.Context(), q, &queue.Message{ID: "m", DequeueCount: message.DequeueCount + s.cameBack, Lease: queue.NewLease("again", time.Now(), time.Minute)})
		want(t, "another one begins", again.Begin(), false)
		again.Stop()
	}
	if s.whenDeleted != nil {
		s.whenDeleted = comeBack
	} else if s.cameBack > 0 {
		comeBack()
	}
	if o.DecideAnew == nil {
		o.DecideAnew = func(context.Context, *Outcome) bool { return false }
	}
	result := c.Settle(t.Context(), l, o)
	if n := ls.InWork(); n != 0 {
		t.Errorf("%d messages are in work after settling", n)
	}
	return result
}

func delivered() tables.Record {
	return tables.Record{Deliveries: []tables.Delivery{{MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m"}, State: tables.Delivered}}}
}

// What follows from what: nothing is done before what it depends on is durable.
func TestSettlingKeepsItsOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		o        Outcome
		recorded bool
		down     string
		asked    []string
		result   Result
	}{
		"delivered": {Outcome{Action: policy.Complete, Records: []tables.Record{delivered()}}, false, "",
			[]string{"record delivered", "complete"}, "deleted"},
		"delivered, on one file": {Outcome{Action: policy.Complete, Records: []tables.Record{delivered()}}, true, "",
			[]string{"complete with record"}, "deleted"},
		"delivered to one of two": {Outcome{Action: policy.Abandon, Records: []tables.Record{delivered()}}, true, "",
			[]string{"record delivered", "abandon"}, "abandoned"},
		"a replay": {Outcome{Action: policy.Complete, Records: []tables.Record{delivered()}, ReplayEnds: &tables.DeadLetter{ReplayToken: "t"}}, true, "",
			[]string{"record delivered", "replay ended", "complete"}, "deleted"},
		"a replay whose end can't be written": {Outcome{Action: policy.Complete, ReplayEnds: &tables.DeadLetter{ReplayToken: "t"}}, true, "replay ended",
			[]string{"replay ended", "replay ended", "replay ended", "abandon"}, "abandoned"},
		"a dead letter": {Outcome{Action: policy.Complete, DeadLetters: []DeadLetter{{}}}, true, "",
			[]string{"dead letter", "record dead_lettered", "complete"}, "deleted"},
		"a dead letter that can't be written": {Outcome{Action: policy.Complete, DeadLetters: []DeadLetter{{}}}, true, "dead letter",
			[]string{"dead letter", "dead letter", "dead letter", "record ", "abandon"}, "abandoned"},
		"one step that fails is two": {Outcome{Action: policy.Complete, Records: []tables.Record{delivered()}}, true, "complete with record",
			[]string{"complete with record", "record delivered", "complete"}, "deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				s := &stage{down: tt.down}
				var recorded RecordedCompletes
				if tt.recorded {
					recorded = s
				}
				if got := settleOn(t, s, recorded, &tt.o); got != tt.result || !slices.Equal(s.asked, tt.asked) {
					t.Errorf("%s after %q, want %s after %q", got, s.asked, tt.result, tt.asked)
				}
				if given := tt.o.Action == policy.NoVerdict && tt.o.Reason == policy.StorageFault; given != (tt.down == "dead letter" || tt.down == "replay ended") {
					t.Errorf("the outcome is told as %s %s", tt.o.Action, tt.o.Reason)
				}
			})
		})
	}
}

// unanswering is a queue whose first settling call is not answered, and which knows no receipt then.
type unanswering struct {
	*stage
	after time.Duration
}

func (s unanswering) settle(what string) error {
	if len(s.asked) > 0 {
		return queue.ErrLeaseLost
	}
	time.Sleep(s.after)
	return errors.Join(s.do(what), errors.New("no answer"))
}

func (s unanswering) Complete(context.Context, *queue.Message) error { return s.settle("complete") }
func (s unanswering) Abandon(context.Context, *queue.Message, time.Duration) error {
	return s.settle("abandon")
}
func (s unanswering) Renew(context.Context, *queue.Message, time.Duration) error {
	return errors.New("no answer")
}

// What storage did not answer counts as done only while nobody else can have received the message.
func TestACallThatWasNotAnsweredCountsAsDoneWhileTheLeaseLasts(t *testing.T) {
	for _, c := range []struct {
		action policy.Action
		after  time.Duration
		result Result
	}{
		{policy.Complete, 0, "deleted"},
		{policy.Abandon, 0, "abandoned"},
		{policy.Complete, time.Minute, "lease_lost"},
		{policy.Abandon, time.Minute, "lease_lost"},
	} {
		bubble.Test(t, func(t *testing.T) {
			s := &stage{}
			if got := settleWith(t, s, unanswering{s, c.after}, nil, &Outcome{Action: c.action}); got != c.result {
				t.Errorf("%s after %s: %s, want %s", c.action, c.after, got, c.result)
			}
		})
	}
}

// A machine was suspended during the work, so that its monotonic clock says nothing: another instance may have had the message meanwhile.
func TestAMessageMayBeAnothersAfterTheMachineWasSuspended(t *testing.T) {
	for slept, asked := range map[int][]string{0: {"dead letter", "record dead_lettered", "complete"}, 600: nil} {
		s := &stage{renewing: queue.ErrLeaseLost}
		m := &queue.Message{ID: "m", DequeueCount: 1, Lease: queue.NewLease("r", bubble.Suspended(time.Now(), slept), time.Minute)}
		o := Outcome{Action: policy.Complete, DeadLetters: []DeadLetter{{Delivery: tables.Delivery{WebhookID: "wh_a"}}}}
		if settleSince(t, s, s, nil, &o, m); !slices.Equal(s.asked, asked) {
			t.Errorf("suspended for %d s: asked was %q, want %q", slept, s.asked, asked)
		}
		if done := tookEffect(&lease.Lease{Message: m}, queue.ErrLeaseLost, true); done != (slept == 0) {
			t.Errorf("suspended for %d s: a call that was not answered counts as done: %t", slept, done)
		}
	}
}

// A renewal that storage did not answer replaced the receipt, as far as anybody knows: then a delete that finds another one has done nothing.
func TestACallDoesNotCountAsDoneWhereARenewalWasNotAnswered(t *testing.T) {
	for received, result := range map[time.Duration]Result{0: Deleted, 40 * time.Second: LeaseLost} { // ago: the renewal comes at 30 s
		bubble.Test(t, func(t *testing.T) {
			s := &stage{}
			m := &queue.Message{ID: "m", DequeueCount: 1, Lease: queue.NewLease("r", time.Now().Add(-received), time.Minute)}
			if got := settleSince(t, s, unanswering{s, time.Second}, nil, &Outcome{Action: policy.Complete}, m); got != result {
				t.Errorf("received %s ago: %s, want %s", received, got, result)
			}
		})
	}
}

// What ends by no POST was decided by what was known then: it is not done, and not on record, where another instance may know more. What
// was POSTed is on record all the same.
func TestWhatEndsByNoPostStandsOnlyWhileTheMessageIsOurs(t *testing.T) {
	letter := func(r tables.Record) []DeadLetter { return []DeadLetter{{Delivery: r.Deliveries[0]}} }
	unmatched, whole := ofWebhook("", tables.Unmatched, false), ofWebhook("", tables.DeadLettering, false)
	taken, posted := ofWebhook("wh_a", tables.Delivered, true), ofWebhook("wh_a", tables.DeadLettering, true)
	lost := queue.ErrLeaseLost
	for name, tt := range map[string]struct {
		record   tables.Record
		letters  []DeadLetter
		renewing error
		cameBack int64
		asked    []string
		result   Result
	}{
		"no filter takes it, and it is another's":     {unmatched, nil, lost, 0, nil, LeaseLost},
		"no filter takes it":                          {unmatched, nil, nil, 0, []string{"record unmatched", "complete"}, Deleted},
		"no filter took it before another one had it": {unmatched, nil, nil, 2, []string{"abandon"}, Abandoned},
		"it is given up, and another's":               {whole, letter(whole), lost, 0, nil, LeaseLost},
		"it is given up, and gone with its queue":     {whole, letter(whole), queue.ErrQueueNotFound, 0, []string{"record dead_lettering", "dead letter", "record dead_lettered", "complete"}, Deleted},
		"it was given up before another one had it":   {whole, letter(whole), nil, 2, []string{"abandon"}, Abandoned},
		"it was refused, and is another's":            {posted, letter(posted), lost, 0, []string{"record dead_lettering"}, LeaseLost},
		"it was refused":                              {posted, letter(posted), nil, 0, []string{"record dead_lettering", "dead letter", "record dead_lettered", "complete"}, Deleted},
		"it was refused, after another one had it":    {posted, letter(posted), nil, 2, []string{"record dead_lettering", "dead letter", "record dead_lettered", "abandon"}, Abandoned},
		"it was taken, after another one had it":      {taken, nil, nil, 2, []string{"record delivered", "abandon"}, Abandoned},
	} {
		for _, together := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					s := &stage{renewing: tt.renewing, cameBack: tt.cameBack}
					var recorded RecordedCompletes
					if together {
						recorded = s
					}
					o := Outcome{Action: policy.Complete, Records: []tables.Record{tt.record}, DeadLetters: slices.Clone(tt.letters)}
					m := &queue.Message{ID: "m", DequeueCount: 1, Lease: queue.NewLease("r", time.Now().Add(-time.Hour), time.Minute)}
					if got := settleSince(t, s, s, recorded, &o, m); got != tt.result || !slices.Equal(s.asked, tt.asked) {
						t.Errorf("%s after %q, want %s after %q", got, s.asked, tt.result, tt.asked)
					}
				})
			})
		}
	}
}

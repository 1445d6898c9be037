package dispatcher

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// What is given back for want of a place was received many times, which says nothing against it: it
// is POSTed like any other afterwards. People are told once a minute, and all of it is counted.
func TestWhatIsPutOffIsNotSuspectedOfKillingItsProcess(t *testing.T) {
	inBubble(t, func(b *bench) {
		reader := metric.NewManualReader()
		d, down, ended, stop := b.limited(func(o *Options) { o.Meter = metric.NewMeterProvider(metric.WithReader(reader)).Meter("") })
		defer stop()
		b.send("more")
		const times = 30
		for range times {
			want(t, "over the limit", b.hand(d, b.receiveOne()), invoked{"put_off", nil})
			time.Sleep(5*time.Minute + time.Second)
		}
		down.end()
		<-ended
		<-ended
		want(t, "afterwards", b.hand(d, b.receiveOne()), invoked{"deleted", nil})
		want(t, "POSTs", b.sender.count(), 3)
		want(t, "noted as suspected", strings.Contains(b.log.String(), "many times without an outcome"), false)
		want(t, "told", strings.Count(b.log.String(), "more messages than max_in_flight allows"), times)
		want(t, "counted", counted(t, reader, "pushlease.messages.put_off", "queue", testQueue), times)
	})
}

// Nothing was begun of a message that could not be taken over: the receives of an outage say nothing
// against it either.
func TestWhatCanNotBeTakenOverIsNotSuspectedOfKillingItsProcess(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.queues.on("renew", always(failBefore))
		d, stop := b.startHosted()
		defer stop()
		b.send("x")
		for range 30 {
			m := b.receiveOne()
			if got := b.hand(d, m); !errors.Is(got.err, queue.ErrBusy) {
				t.Fatalf("the invocation: %+v", got)
			}
			if err := b.queue(testQueue).Abandon(b.t.Context(), m, 0); err != nil { // as a host does
				t.Fatal(err)
			}
		}
		b.queues.on("renew", nil)
		want(t, "afterwards", b.hand(d, b.receiveOne()), invoked{"deleted", nil})
		want(t, "POSTs", b.sender.count(), 1)
		want(t, "noted as suspected", strings.Contains(b.log.String(), "many times without an outcome"), false)
	})
}

func TestManyPutOffsAreOneLineAMinute(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, down, ended, stop := b.limited()
		defer stop()
		for range 20 {
			b.send("more")
			want(t, "over the limit", b.hand(d, b.receiveOne()), invoked{"put_off", nil})
		}
		want(t, "told", strings.Count(b.log.String(), "more messages than max_in_flight allows"), 1)
		down.end()
		<-ended
		<-ended
	})
}

// A message that expires is shown again before the last look that is sure to come, however rarely
// the host looks.
func TestNoPutOffTakesAMessagesLastLook(t *testing.T) {
	inBubble(t, func(b *bench) {
		d, down, ended, stop := b.limited(func(o *Options) { o.LookGap = func(string) time.Duration { return 6 * time.Minute } })
		defer stop()
		const life, lastLook = 20 * time.Minute, 5*time.Minute + 30*time.Second // a quarter of it, and 30 s
		sent, err := b.queue(testQueue).Send(b.t.Context(), []byte("short"), queue.SendOptions{TTL: life})
		if err != nil {
			t.Fatal(err)
		}
		expires := time.Now().Add(life)
		for putOffs := 0; ; putOffs++ {
			for len(b.visible()) == 0 {
				time.Sleep(time.Second)
			}
			if left := time.Until(expires); left < lastLook-5*time.Second {
				t.Fatalf("after %d it was shown again %s before its end", putOffs, left)
			}
			m := b.receiveOne()
			if time.Until(m.ExpiresAt) <= lastLook {
				go func() { ended <- b.hand(d, m) }()
				break
			}
			want(t, "over the limit", b.hand(d, m), invoked{"put_off", nil})
		}
		time.Sleep(time.Second)
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		down.end()
		for range 3 {
			want(t, "in the end", <-ended, invoked{"deleted", nil})
		}
	})
}

// Whoever else received it would POST it again: what this process alone knows to be delivered is
// taken over, and deleted without a POST.
func TestTheLimitRefusesNoMessageWhoseRecordTheStoreLacks(t *testing.T) {
	inBubble(t, func(b *bench) {
		down := &outage{}
		b.store.on("record", down.rule(failBefore))
		b.together.on("complete-recorded", down.rule(failBefore))
		b.queues.on("complete", firstCalls(1, panics))
		d, stop := b.run(b.options(func(o *Options) { o.MaxInFlight = 2 }), hostedAlone)
		defer stop()
		time.Sleep(time.Second)
		b.send("delivered")
		m := b.receiveOne()
		func() {
			defer func() { _ = recover() }() // as an app does
			b.hand(d, m)
		}()
		want(t, "POSTs", b.sender.count(), 1)
		b.queues.on("complete", down.rule(failBefore))
		ended := make(chan invoked, 3)
		for range 2 {
			b.send("stuck")
			m := b.receiveOne()
			go func() { ended <- b.hand(d, m) }()
			time.Sleep(time.Second)
		}
		b.send("another")
		want(t, "over the limit", b.hand(d, b.receiveOne()), invoked{"put_off", nil})
		var back *queue.Message
		for back == nil || back.ID != m.ID {
			time.Sleep(time.Second)
			messages, err := b.queue(testQueue).Receive(b.t.Context(), 1, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if len(messages) == 1 {
				back = messages[0]
			}
		}
		go func() { ended <- b.hand(d, back) }()
		time.Sleep(10 * time.Second)
		down.end()
		for range 3 {
			want(t, "in the end", <-ended, invoked{"deleted", nil})
		}
		want(t, "POSTs", b.sender.count(), 3)
	})
}

package dispatcher

import (
	"context"
	"encoding/hex"
	"strings"
	"sync"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

// taking gives a webhook a filter on the event's type.
func taking(types ...string) func(*tables.Registration) {
	return func(r *tables.Registration) { r.Filter.Types = types }
}

// refilter changes the filter of wh_a.
func (b *bench) refilter(types ...string) {
	b.t.Helper()
	b.webhook.Filter.Types = types
	b.webhook = b.update(b.webhook)
}

const paid = `{"specversion":"1.0","id":"7","source":"/shop","type":"order.paid","data":{"total":12}}`

func TestEachWebhookGetsWhatItsFilterTakesInItsFormat(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.refilter("order.*")
		b.register("wh_b", taking("order.refunded"))
		b.register("wh_c", func(r *tables.Registration) {
			r.Filter.Fields = []content.Condition{{Field: "data.total", Op: content.OpGreater, Value: []byte("10")}}
			r.Format = content.FormatBinary
		})
		b.register("wh_d", func(r *tables.Registration) { r.Format = content.FormatStructured })
		_, stop := b.start(nil)
		event := b.send(paid)
		text := b.send("plain")
		time.Sleep(time.Minute)
		stop()
		got := map[string]string{}
		for _, p := range b.sender.posts {
			got[p.webhook+" "+p.request.MessageID] = p.request.ContentType + " " + p.request.Headers["ce-type"] + " " + string(p.request.Body)
		}
		want(t, "POSTs", len(b.sender.posts), 4)
		want(t, "raw", got["wh_a "+event.ID], "application/json  "+paid)
		want(t, "binary", got["wh_c "+event.ID], `application/json order.paid {"total":12}`)
		want(t, "structured", got["wh_d "+event.ID], "application/cloudevents+json  "+paid)
		if wrapped := got["wh_d "+text.ID]; !strings.Contains(wrapped, `"data":"plain"`) || !strings.Contains(wrapped, `"id":"`+text.ID+`"`) {
			t.Errorf("a raw body became %s", wrapped)
		}
		want(t, "a delivery of wh_b", b.delivery(event, "wh_b").State, "")
		want(t, "messages left", b.total(testQueue), 0)
	})
}

func TestMessageThatNoFilterTakesIsCompletedAndRecorded(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.refilter("order.*")
		b.register("wh_b", taking("never"))
		b.queues.on("complete", firstCalls(3, failBefore)) // it heals without a second look
		_, stop := b.start(nil)
		sent := b.send(`{"specversion":"1.0","id":"7","source":"/shop","type":"other"}`)
		time.Sleep(time.Minute)
		stop()
		del := b.delivery(sent, "")
		want(t, "state", del.State, tables.Unmatched)
		want(t, "reason", del.Reason, policy.Unmatched)
		want(t, "POSTs", b.sender.count(), 0)
		want(t, "messages left", b.total(testQueue), 0)
		want(t, "dead letters", len(b.deadLetters()), 0)
	})
}

// A registry that is not surely whole and new must not decide that nobody wants it.
func TestUnmatchedIsDecidedOnlyOnARegistryThatWasJustRead(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.refilter("never")
		_, stop := b.start(func(o *Options) { o.RegistryRefresh = time.Hour })
		time.Sleep(10 * time.Second)
		b.refilter("order.*") // by another process: nobody tells this one
		first := b.send(paid)
		time.Sleep(time.Minute)
		want(t, "with a filter that was changed meanwhile", b.delivery(first, "wh_a").State, tables.Delivered)

		b.refilter("never")
		var down outage
		b.store.on("list-webhooks", func(n int) fault {
			if n > 1 {
				return down.rule(failBefore)(n)
			}
			return 0
		})
		second := b.send(`{"specversion":"1.0","id":"8","source":"/shop","type":"other"}`)
		time.Sleep(time.Minute)
		want(t, "while the registry can't be read", b.delivery(second, "").State, tables.Held)
		want(t, "messages left", b.total(testQueue), 1)
		down.end()
		time.Sleep(30 * time.Minute)
		stop()
		want(t, "when it can be read again", b.delivery(second, "").State, tables.Unmatched)
		want(t, "messages left", b.total(testQueue), 0)
	})
}

// partialList leaves one row out as unreadable.
type partialList struct{ Store }

func (s partialList) ListWebhooks(ctx context.Context) ([]tables.Registration, []tables.RowError, error) {
	list, bad, err := s.Store.ListWebhooks(ctx)
	return list, append(bad, tables.RowError{ID: "wh_bad", Err: tables.ErrConflict}), err
}

func TestUnmatchedIsNotDecidedWhileARowCannotBeRead(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.refilter("never")
		_, stop := b.start(func(o *Options) { o.Store = partialList{b.store} })
		sent := b.send(paid)
		time.Sleep(time.Minute)
		stop()
		want(t, "state", b.delivery(sent, "").State, tables.Held)
		want(t, "messages left", b.total(testQueue), 1)
	})
}

func TestDisabledWebhookThatWouldTakeItHoldsTheMessage(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.refilter("never")
		b.register("wh_b", func(r *tables.Registration) { r.Enabled = false })
		_, stop := b.start(nil)
		sent := b.send(paid)
		time.Sleep(time.Minute)
		stop()
		want(t, "state", b.delivery(sent, "wh_b").State, tables.Held)
		want(t, "messages left", b.total(testQueue), 1)
	})
}

func TestDeliveryUnderWayOutlivesAChangeOfTheFilter(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(503, 200)
		_, stop := b.start(nil)
		sent := b.send(paid)
		time.Sleep(time.Second)
		b.refilter("never")
		time.Sleep(5 * time.Minute)
		stop()
		want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
		want(t, "attempts", b.delivery(sent, "wh_a").Attempts, 2)
	})
}

func TestReplayGoesToItsWebhookWhateverTheFilterSays(t *testing.T) {
	inBubble(t, func(b *bench) {
		b.sender.answer = statuses(400, 200)
		b.webhook.Format = content.FormatStructured
		b.webhook = b.update(b.webhook)
		_, stop := b.start(nil)
		b.send("plain")
		time.Sleep(10 * time.Second)
		b.refilter("never")
		b.replay(b.deadLetters()[0].ID, "token-1")
		time.Sleep(time.Minute)
		stop()
		want(t, "dead letter", b.deadLetters()[0].Status, tables.Replayed)
		want(t, "POSTs", b.sender.count(), 2)
		first, again := b.sender.posts[0].request, b.sender.posts[1].request
		want(t, "the replayed event", string(again.Body), string(first.Body))
	})
}

// spanned notes the span in whose context each POST is made.
type spanned struct {
	*scripted
	mu    sync.Mutex
	spans []trace.SpanContext
}

func (s *spanned) Send(ctx context.Context, w *webhook.Webhook, r webhook.Request) webhook.Result {
	s.mu.Lock()
	s.spans = append(s.spans, trace.SpanContextFromContext(ctx))
	s.mu.Unlock()
	return s.scripted.Send(ctx, w, r)
}

// C38: each attempt has its own span in the trace that the event names.
func TestAttemptsBelongToTheTraceOfTheEvent(t *testing.T) {
	const traceID, spanID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for name, value := range map[string]string{
		"a traceparent": "00-" + traceID + "-" + spanID + "-01", "one that is not sampled": "00-" + traceID + "-" + spanID + "-00",
		"a malformed one": "00-" + traceID + "-" + spanID, "none": "",
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				b.sender.answer = statuses(500, 200)
				s := &spanned{scripted: b.sender}
				ended := tracetest.NewSpanRecorder()
				provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended))
				_, stop := b.start(func(o *Options) { o.Sender, o.Tracer = s, provider.Tracer("") })
				sent := b.send(strings.Replace(paid, `"data"`, `"traceparent":"`+value+`","data"`, 1))
				time.Sleep(time.Minute)
				stop()
				want(t, "state", b.delivery(sent, "wh_a").State, tables.Delivered)
				if len(s.spans) != 2 {
					t.Fatalf("%d POSTs", len(s.spans))
				}
				for _, span := range s.spans {
					want(t, "in the event's trace", span.TraceID().String() == traceID, strings.HasPrefix(name, "a traceparent") || strings.HasPrefix(name, "one"))
					want(t, "a valid span of its own", span.IsValid() && span.SpanID().String() != spanID, true)
				}
				want(t, "the same span twice", s.spans[0].SpanID() == s.spans[1].SpanID(), false)
				for _, span := range ended.Ended() {
					if span.Name() == "attempt "+testQueue && name == "a traceparent" {
						want(t, "parent", span.Parent().SpanID().String(), spanID)
						want(t, "links to the handling of the message", len(span.Links()), 1)
					}
				}
			})
		})
	}
}

// A bucket of a histogram names the trace of a message that took so long.
func TestHistogramsNameTheTraceOfAMessage(t *testing.T) {
	inBubble(t, func(b *bench) {
		reader, ended := sdkmetric.NewManualReader(), tracetest.NewSpanRecorder()
		_, stop := b.start(func(o *Options) {
			o.Meter = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("")
			o.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(ended)).Tracer("")
		})
		b.send("m")
		time.Sleep(time.Minute)
		stop()
		traces := map[string]bool{}
		for _, span := range ended.Ended() {
			traces[span.SpanContext().TraceID().String()] = strings.HasPrefix(span.Name(), "process ")
		}
		var all metricdata.ResourceMetrics
		if err := reader.Collect(b.t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		named := map[string]bool{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
					for _, e := range h.DataPoints[0].Exemplars {
						named[m.Name] = traces[hex.EncodeToString(e.TraceID)]
					}
				}
			}
		}
		for _, name := range []string{"pushlease.webhook.attempt.duration", "pushlease.message.process.duration", "pushlease.message.delivery.duration", "pushlease.message.first_attempt.delay"} {
			want(t, name, named[name], true)
		}
	})
}

func TestTheTraceStateOfAPublishReachesTheWebhook(t *testing.T) {
	inBubble(t, func(b *bench) {
		const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		for want, state := range map[string]string{"a=1,b=2": "a=1,b=2", "": "=hostile="} {
			s := &spanned{scripted: b.sender}
			_, stop := b.start(func(o *Options) { o.Sender, o.Tracer = s, sdktrace.NewTracerProvider().Tracer("") })
			text, err := queue.EncodeEnvelope(queue.EncodingNone, queue.Body{Bytes: []byte("x"), TraceParent: parent, TraceState: state})
			if err != nil {
				t.Fatal(err)
			}
			b.sendText(text, queue.SendOptions{})
			time.Sleep(time.Minute)
			stop()
			if len(s.spans) != 1 || s.spans[0].TraceState().String() != want || s.spans[0].TraceID().String() != parent[3:35] {
				t.Errorf("spans %+v, want the state %q", s.spans, want)
			}
		}
	})
}

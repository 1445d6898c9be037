package dispatcher

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// watched looks at what the store holds after every write that reached it, also after
// one whose answer was lost: within a generation no state that ends a delivery may be
// replaced, but by the end of what it began.
type watched struct {
	Store
	t    *testing.T
	mu   sync.Mutex // one write at a time, so that each is seen by itself
	ends map[string]tables.Delivery
	n    int
}

func watch(b *bench) *watched {
	w := &watched{Store: b.db, t: b.t, ends: map[string]tables.Delivery{}}
	b.store.Store = w
	return w
}

func (w *watched) Record(ctx context.Context, r tables.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.Store.Record(ctx, r)
	if len(r.Deliveries) == 0 {
		return err
	}
	stored, loadErr := w.Load(context.WithoutCancel(ctx), r.Deliveries[0].MessageKey)
	if loadErr != nil {
		w.t.Errorf("load after a write: %v", loadErr)
	}
	for _, del := range stored {
		w.see(del)
	}
	return err
}

func (w *watched) see(del tables.Delivery) {
	key := fmt.Sprintf("%s/%s/%s/%d", del.Queue, del.MessageID, del.WebhookID, del.Generation)
	before, ended := w.ends[key]
	goesOn := before.State == tables.DeadLettering && del.State == tables.DeadLettered
	if ended && before.State != del.State && !goesOn {
		w.t.Errorf("%s had ended as %q (%s, by %s) and is now %q (%s, by %s)",
			key, before.State, before.Reason, before.Instance, del.State, del.Reason, del.Instance)
	}
	if del.State.Terminal() {
		w.ends[key] = del
		w.n++
	}
}

// The first holder's lease has ended while it was at work. What it has to record is a
// failure, the store does not take it at once, and the message is delivered by another
// process before the store does.
func TestFailureThatIsWrittenLateDoesNotUndoADelivery(t *testing.T) {
	for name, how := range map[string]func(slow *slowStore){
		"tried again after a fault":       func(s *slowStore) { s.refuse = true },
		"on its way for a long time":      func(s *slowStore) {},
		"on its way, and the answer lost": func(s *slowStore) { s.lose = true },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bench) {
				watch(b)
				b.queues.on("renew", always(failBefore))
				slow := &slowStore{Store: b.store, begun: make(chan struct{}), delivered: make(chan struct{})}
				how(slow)
				first := senderFunc(func(ctx context.Context, _ webhook.Request) webhook.Result {
					retry.Sleep(ctx, 25*time.Second)
					return webhook.Result{Status: 500}
				})
				second := senderFunc(func(context.Context, webhook.Request) webhook.Result {
					<-slow.begun
					return webhook.Result{Status: 200}
				})
				sent := b.send("x")
				lease := func(o *Options) { o.Lease, o.PollMax = 10*time.Second, time.Second }
				_, stopFirst := b.start(func(o *Options) { lease(o); o.Store, o.Sender, o.Instance = slow, first, "first" })
				time.Sleep(time.Second)
				_, stopSecond := b.start(func(o *Options) {
					lease(o)
					o.Store, o.Sender, o.Instance = &telling{b.store, slow.delivered}, second, "second"
				})
				time.Sleep(5 * time.Minute)
				stopFirst()
				stopSecond()
				del := b.delivery(sent, "wh_a")
				want(t, "state", del.State, tables.Delivered)
				want(t, "by", del.Instance, "second")
				want(t, "messages left", b.total(testQueue), 0)
			})
		})
	}
}

// slowStore holds its first write back until delivered is closed.
type slowStore struct {
	Store
	refuse, lose     bool
	begun, delivered chan struct{}
	once             sync.Once
}

func (s *slowStore) Record(ctx context.Context, r tables.Record) (err error) {
	first := false
	s.once.Do(func() { first = true; close(s.begun) })
	if !first {
		return s.Store.Record(ctx, r)
	}
	<-s.delivered
	if s.refuse {
		return errBefore
	}
	err = s.Store.Record(ctx, r)
	if s.lose {
		return errLost
	}
	return err
}

// telling closes delivered once it holds that a message was delivered.
type telling struct {
	Store
	delivered chan struct{}
}

func (s *telling) Record(ctx context.Context, r tables.Record) error {
	err := s.Store.Record(ctx, r)
	if len(r.Deliveries) > 0 && r.Deliveries[0].State == tables.Delivered {
		close(s.delivered)
	}
	return err
}

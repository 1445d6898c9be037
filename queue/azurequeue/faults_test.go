package azurequeue_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"

	"github.com/pushlease/pushlease/internal/azuritetest"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/queue/azurequeue"
)

// account is one queue behind a proxy.
type account struct {
	*testing.T
	*azuritetest.Proxy
	azurite *azuritetest.Azurite
	queue   queue.Queue
}

func newAccount(t *testing.T, opts azurequeue.Options) account {
	t.Helper()
	t.Parallel()
	azurite := azuritetest.Start(t)
	p := azurite.Proxy(t)
	q, err := open(t, p.ConnectionString(), opts).Queue(azuritetest.Name("faults-"))
	if err != nil {
		t.Fatal(err)
	}
	return account{t, p, azurite, q}
}

// lease sends a text and receives it.
func (a account) lease(text string, lease time.Duration) *queue.Message {
	a.Helper()
	if _, err := a.queue.Send(a.Context(), []byte(text), queue.SendOptions{}); err != nil {
		a.Fatal(err)
	}
	ms, err := a.queue.Receive(a.Context(), 1, lease)
	if err != nil || len(ms) != 1 {
		a.Fatalf("received %d, %v", len(ms), err)
	}
	return ms[0]
}

func (a account) total() int64 {
	a.Helper()
	d, err := a.queue.Depth(a.Context())
	if err != nil {
		a.Fatal(err)
	}
	return d.Total
}

// vanish deletes the queue behind the adapter's back.
func (a account) vanish() {
	a.Helper()
	cred, err := azqueue.NewSharedKeyCredential(a.azurite.Account, a.azurite.Key)
	if err != nil {
		a.Fatal(err)
	}
	c, err := azqueue.NewServiceClientWithSharedKeyCredential(a.azurite.QueueURL, cred, nil)
	if err != nil {
		a.Fatal(err)
	}
	if _, err := c.DeleteQueue(a.Context(), a.queue.Name(), nil); err != nil {
		a.Fatal(err)
	}
}

// operations are the calls of the contract, by their name at the proxy.
func (a account) operations() map[string]func(context.Context, *queue.Message) error {
	return map[string]func(context.Context, *queue.Message) error{
		"receive": func(ctx context.Context, _ *queue.Message) error {
			_, err := a.queue.Receive(ctx, 1, time.Minute)
			return err
		},
		"update": func(ctx context.Context, m *queue.Message) error {
			return errors.Join(a.queue.Renew(ctx, m, time.Minute), a.queue.Abandon(ctx, m, time.Minute))
		},
		"delete": a.queue.Complete,
		"send": func(ctx context.Context, _ *queue.Message) error {
			_, err := a.queue.Send(ctx, []byte("more"), queue.SendOptions{})
			return err
		},
		"depth": func(ctx context.Context, _ *queue.Message) error {
			_, err := a.queue.Depth(ctx)
			return err
		},
	}
}

func TestThrottledCallsAreBusyAndHadNoEffect(t *testing.T) {
	a := newAccount(t, azurequeue.Options{})
	m := a.lease("a", time.Minute)
	a.Fault(azuritetest.Match{Service: "queue"}, azuritetest.Throttle())
	for name, call := range a.operations() {
		before := a.Count("queue", name)
		if err := call(t.Context(), m); !errors.Is(err, queue.ErrBusy) || queue.Ambiguous(err) {
			t.Errorf("%s = %v, want ErrBusy", name, err)
		}
		want := before + 1
		if name == "update" {
			want++ // renew and abandon
		}
		if got := a.Count("queue", name); got != want {
			t.Errorf("%s took %d requests, want %d", name, got-before, want-before)
		}
	}
	a.Heal()
	if err := a.queue.Complete(t.Context(), m); err != nil {
		t.Errorf("Complete after the throttling: %v", err)
	}
}

func TestLostCallsAreAmbiguousAndSentOnce(t *testing.T) {
	for name, fault := range map[string]azuritetest.Fault{
		"request lost": azuritetest.CutBefore(), "answer lost": azuritetest.FailAfter(),
	} {
		t.Run(name, func(t *testing.T) {
			a := newAccount(t, azurequeue.Options{})
			for operation, call := range a.operations() {
				m := a.lease("a", time.Minute)
				a.Fault(azuritetest.Match{Operation: operation}, fault)
				before := a.Count("queue", operation)
				if err := call(t.Context(), m); !queue.Ambiguous(err) {
					t.Errorf("%s = %v, want an ambiguous error", operation, err)
				}
				sent := a.Count("queue", operation) - before
				if operation == "update" {
					sent-- // renew and abandon
				}
				if sent != 1 {
					t.Errorf("%s was sent %d times, want 1", operation, sent)
				}
				a.Heal()
			}
		})
	}
}

func TestCompleteAfterALostAnswerIsLeaseLost(t *testing.T) {
	a := newAccount(t, azurequeue.Options{})
	m := a.lease("a", time.Minute)
	a.Fault(azuritetest.Match{Operation: "delete", To: 1}, azuritetest.FailAfter())
	if err := a.queue.Complete(t.Context(), m); !queue.Ambiguous(err) {
		t.Errorf("Complete with a lost answer = %v", err)
	}
	if err := a.queue.Complete(t.Context(), m); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("Complete again = %v, want ErrLeaseLost", err)
	}
	if n := a.total(); n != 0 {
		t.Errorf("%d messages left", n)
	}
}

func TestRenewalWithALostAnswerLeavesAStaleReceipt(t *testing.T) {
	a := newAccount(t, azurequeue.Options{})
	m := a.lease("a", time.Minute)
	before, until := m.Lease.Receipt(), m.Lease.Until()
	a.Fault(azuritetest.Match{Operation: "update", To: 1}, azuritetest.FailAfter())
	if err := a.queue.Renew(t.Context(), m, time.Hour); !queue.Ambiguous(err) {
		t.Errorf("Renew with a lost answer = %v", err)
	}
	if m.Lease.Receipt() != before || !m.Lease.Until().Equal(until) {
		t.Error("a renewal without an answer changed the lease")
	}
	if err := a.queue.Renew(t.Context(), m, time.Minute); !errors.Is(err, queue.ErrLeaseLost) {
		t.Errorf("Renew with the old receipt = %v, want ErrLeaseLost", err)
	}
}

func TestStaleReceiptIsLeaseLostInBothShapes(t *testing.T) {
	for name, documented := range map[string]bool{"404 as seen": false, "400 as documented": true} {
		t.Run(name, func(t *testing.T) {
			a := newAccount(t, azurequeue.Options{})
			if documented {
				a.StaleReceipt400()
			}
			m := a.lease("a", time.Minute)
			old := &queue.Message{ID: m.ID, Lease: queue.NewLease(m.Lease.Receipt(), time.Now(), time.Minute)}
			if err := a.queue.Renew(t.Context(), m, time.Minute); err != nil {
				t.Fatal(err)
			}
			for call, err := range map[string]error{
				"Complete": a.queue.Complete(t.Context(), old),
				"Abandon":  a.queue.Abandon(t.Context(), old, 0),
				"Renew":    a.queue.Renew(t.Context(), old, time.Minute),
			} {
				if !errors.Is(err, queue.ErrLeaseLost) {
					t.Errorf("%s = %v, want ErrLeaseLost", call, err)
				}
			}
		})
	}
}

func TestUnreachableStorageIsBusyAndRecovers(t *testing.T) {
	a := newAccount(t, azurequeue.Options{})
	m := a.lease("a", time.Minute)
	a.Down()
	// The first call may find a connection that is just breaking.
	_, _ = a.queue.Depth(t.Context())
	for name, call := range a.operations() {
		if err := call(t.Context(), m); !errors.Is(err, queue.ErrBusy) {
			t.Errorf("%s = %v, want ErrBusy", name, err)
		}
	}
	a.Up()
	if err := a.queue.Complete(t.Context(), m); err != nil {
		t.Errorf("Complete after storage is back: %v", err)
	}
}

func TestSendCreatesAQueueThatVanished(t *testing.T) {
	a := newAccount(t, azurequeue.Options{})
	for range 2 {
		if _, err := a.queue.Send(t.Context(), []byte("a"), queue.SendOptions{}); err != nil {
			t.Fatal(err)
		}
		if n := a.total(); n != 1 {
			t.Errorf("%d messages, want 1", n)
		}
		a.vanish()
		if _, err := a.queue.Receive(t.Context(), 1, time.Minute); !errors.Is(err, queue.ErrQueueNotFound) {
			t.Errorf("Receive = %v, want ErrQueueNotFound", err)
		}
	}
	if n := a.Count("queue", "create"); n != 2 {
		t.Errorf("created %d times, want 2", n)
	}
}

func TestSendWaitsForAQueueThatIsBeingDeleted(t *testing.T) {
	a := newAccount(t, azurequeue.Options{})
	a.Fault(azuritetest.Match{Operation: "create", To: 1}, azuritetest.FailBefore(409, "QueueBeingDeleted"))
	if _, err := a.queue.Send(t.Context(), []byte("a"), queue.SendOptions{}); !errors.Is(err, queue.ErrBusy) {
		t.Errorf("Send = %v, want ErrBusy", err)
	}
	// Somebody else creates it in between, with other metadata.
	a.Fault(azuritetest.Match{Operation: "create", To: 1}, azuritetest.FailBefore(409, "QueueAlreadyExists"))
	if _, err := a.queue.Send(t.Context(), []byte("a"), queue.SendOptions{}); !errors.Is(err, queue.ErrQueueNotFound) {
		t.Errorf("Send = %v, want what the second try said", err)
	}
	if n := a.Count("queue", "send"); n != 3 {
		t.Errorf("%d sends, want 3: one, then one and one more", n)
	}
}

// C21: the deadline of a request covers its answer's body, no more, no less.
func TestLateBodyWithinTheTimeoutIsRead(t *testing.T) {
	a := newAccount(t, azurequeue.Options{Timeout: 4 * time.Second})
	a.Fault(azuritetest.Match{Operation: "receive", To: 1}, azuritetest.LateBody(600*time.Millisecond))
	if m := a.lease("late", time.Minute); string(m.Text) != "late" {
		t.Errorf("text %q", m.Text)
	}
	a.Fault(azuritetest.Match{Operation: "receive"}, azuritetest.LateBody(time.Minute))
	start := time.Now()
	_, err := a.queue.Receive(t.Context(), 1, time.Minute)
	if d := time.Since(start); !queue.Ambiguous(err) || d < 3900*time.Millisecond || d > 30*time.Second {
		t.Errorf("Receive = %v after %v, want an ambiguous error after 4 s", err, d)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v looks like the end of the caller's own context", err)
	}
}

func TestCallersContextEndsACallInFlight(t *testing.T) {
	a := newAccount(t, azurequeue.Options{})
	m := a.lease("a", time.Minute)
	a.Fault(azuritetest.Match{}, azuritetest.Late(time.Minute))
	for name, call := range a.operations() {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		start := time.Now()
		err := call(ctx, m)
		if d := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || d > 5*time.Second {
			t.Errorf("%s = %v after %v, want the context's end", name, err, d)
		}
		cancel()
	}
}

func TestEveryRequestIsCountedOnce(t *testing.T) {
	var mu sync.Mutex
	counted := map[string]int{}
	a := newAccount(t, azurequeue.Options{OnTransaction: func(queue, operation string, status int, err error) {
		mu.Lock()
		defer mu.Unlock()
		counted[operation]++
		if queue == "" || (status == 0) != (err != nil) {
			t.Errorf("counted %s %s %d %v", queue, operation, status, err)
		}
	}})
	m := a.lease("a", time.Minute) // send, create, send, receive
	a.Fault(azuritetest.Match{Operation: "receive", To: 1}, azuritetest.FailAfter())
	_, _ = a.queue.Receive(t.Context(), 1, time.Minute)
	err := errors.Join(a.queue.Renew(t.Context(), m, time.Minute), a.queue.Abandon(t.Context(), m, 0))
	if err != nil {
		t.Fatal(err)
	}
	a.total()                                 // depth, peek
	_ = a.queue.Complete(t.Context(), m)      // refused
	_, _ = a.queue.Receive(t.Context(), 0, 0) // not sent
	want := map[string]int{
		"send": 2, "create": 1, "receive": 2, "renew": 1, "abandon": 1, "depth": 1, "peek": 1, "complete": 1,
	}
	sum := 0
	for operation, n := range want {
		sum += n
		if counted[operation] != n {
			t.Errorf("%s counted %d times, want %d", operation, counted[operation], n)
		}
	}
	if n := a.Count("", ""); n != sum {
		t.Errorf("%d requests on the wire, want %d", n, sum)
	}
}

// The self-test of what update relies on, against a real service: a renewal
// sends no body and storage keeps the text.
func TestRenewalSendsNoBodyAndKeepsTheText(t *testing.T) {
	a := newAccount(t, azurequeue.Options{})
	const text = "kept: <&> \r\n é"
	m := a.lease(text, time.Minute)
	if err := errors.Join(a.queue.Renew(t.Context(), m, time.Minute), a.queue.Abandon(t.Context(), m, 0)); err != nil {
		t.Fatal(err)
	}
	for _, r := range a.Requests() {
		if r.Operation == "update" && (r.BodySize != 0 || r.Method != "PUT") {
			t.Errorf("%s of %d bytes", r.Method, r.BodySize)
		}
	}
	ms, err := a.queue.Receive(t.Context(), 1, time.Minute)
	if err != nil || len(ms) != 1 || string(ms[0].Text) != text {
		t.Errorf("received %v, %v, want the same text", ms, err)
	}
}

func TestOnlyUpdateCallsUpdateMessage(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	calls := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range tree.Decls {
			ast.Inspect(decl, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "UpdateMessage" {
					calls++
					if f, ok := decl.(*ast.FuncDecl); !ok || f.Name.Name != "update" {
						t.Errorf("%s uses UpdateMessage outside update, which keeps it from erasing messages", file)
					}
				}
				return true
			})
		}
	}
	if calls != 1 {
		t.Errorf("UpdateMessage is used %d times, want once", calls)
	}
}

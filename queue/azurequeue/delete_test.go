package azurequeue

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azureconn"
	"github.com/pushlease/pushlease/queue"
)

// takesAll is a queue service that takes everything, and what it was sent last.
type takesAll struct {
	*httptest.Server
	last atomic.Pointer[http.Request]
}

func newTakesAll(tb testing.TB) *takesAll {
	tb.Helper()
	s := &takesAll{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.last.Store(r)
		w.WriteHeader(http.StatusNoContent)
	}))
	tb.Cleanup(s.Close)
	return s
}

// queue opens the queue "orders".
func (s *takesAll) queue(tb testing.TB, credential string) *azureQueue {
	tb.Helper()
	cfg, err := azureconn.Parse("QueueEndpoint=" + s.URL + "/devstoreaccount1;" + credential)
	if err != nil {
		tb.Fatal(err)
	}
	service, err := Open(cfg, Options{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(service.Close)
	q, err := service.Queue("orders")
	if err != nil {
		tb.Fatal(err)
	}
	return q.(*azureQueue)
}

const (
	withKey = "AccountName=acct;AccountKey=a2V5IG9mIHRoZSBhY2NvdW50"
	withSAS = "SharedAccessSignature=sv=2024-11-04&sp=raup&se=2099-01-01&sig=a%2Bb%2Fc%3D"
)

// throughSDK deletes as the SDK does.
func (q *azureQueue) throughSDK(ctx context.Context, id, receipt string) error {
	return q.do(ctx, opComplete, func(ctx context.Context) error {
		_, err := q.client.DeleteMessage(ctx, id, receipt, nil)
		return err
	})
}

// The request and its signature are the SDK's own: should they ever differ, an update of the
// SDK has changed what it sends.
func TestADeleteIsTheSDKs(t *testing.T) {
	s := newTakesAll(t)
	for _, credential := range []string{withKey, withSAS} {
		q := s.queue(t, credential)
		for _, receipt := range []string{"AgAAAAMAAAAAAAAA5fW+/1==", "a b&c=d%20é", ""} {
			if err := q.throughSDK(t.Context(), "id-1", receipt); err != nil {
				t.Fatal(err)
			}
			theirs := s.last.Load()
			m := &queue.Message{ID: "id-1", Lease: queue.NewLease(receipt, time.Now(), time.Minute)}
			if err := q.Complete(t.Context(), m); err != nil {
				t.Fatal(err)
			}
			ours := s.last.Load()
			if got, want := shown(ours), shown(theirs); got != want {
				t.Errorf("receipt %q: sent %s, the SDK sends %s", receipt, got, want)
			}
			if q.deleter.key == nil {
				if ours.Header.Get("Authorization") != "" {
					t.Error("a request with a SAS is signed too")
				}
				continue
			}
			want := theirs.Header.Get("Authorization")
			if got := q.deleter.key.authorization(http.MethodDelete, theirs.URL, theirs.Header.Get("x-ms-date"), receipt); got != want {
				t.Errorf("receipt %q: signed %s, the SDK signs %s", receipt, got, want)
			}
			if date, err := http.ParseTime(ours.Header.Get("x-ms-date")); err != nil || time.Since(date).Abs() > time.Minute {
				t.Errorf("date %q, %v", ours.Header.Get("x-ms-date"), err)
			}
		}
	}
}

// shown is what the service looks at.
func shown(r *http.Request) string {
	return fmt.Sprintln(r.Method, r.Host, r.URL.EscapedPath(), r.URL.Query(), r.ContentLength, r.Header.Get("x-ms-version"), r.Header.Get("Accept"))
}

// Deletes are signed at the same time, each for itself.
func TestDeletesAreSignedSideBySide(t *testing.T) {
	key, err := newSharedKey("acct", "a2V5IG9mIHRoZSBhY2NvdW50")
	if err != nil {
		t.Fatal(err)
	}
	u := &url.URL{Path: "/acct/orders/messages/id-1"}
	sign := func(receipt string) string {
		return key.authorization(http.MethodDelete, u, "Sat, 28 Nov 2026 01:00:00 GMT", receipt)
	}
	want := map[string]string{}
	for i := range 8 {
		receipt := strings.Repeat(fmt.Sprint(i), 20_000)
		want[receipt] = sign(receipt)
	}
	var all sync.WaitGroup
	for receipt, signature := range want {
		all.Go(func() {
			for range 200 {
				if got := sign(receipt); got != signature {
					t.Errorf("signed %s, by itself %s", got, signature)
				}
			}
		})
	}
	all.Wait()
}

// An id is a part of the address: without one a delete clears the queue, with ".." it would
// delete the queue.
func TestWhatIsNoIDIsNeverSent(t *testing.T) {
	s := newTakesAll(t)
	q := s.queue(t, withKey)
	for _, id := range []string{"", ".", "..", "../orders", "a/b", "a?b", "a#b", "a%2Fb", "a b", "a\r\nb", "é", strings.Repeat("a", 129)} {
		m := &queue.Message{ID: id, Lease: queue.NewLease("r", time.Now(), time.Minute)}
		for operation, settle := range map[string]func() error{
			"complete": func() error { return q.Complete(t.Context(), m) },
			"abandon":  func() error { return q.Abandon(t.Context(), m, time.Second) },
			"renew":    func() error { return q.Renew(t.Context(), m, time.Minute) },
		} {
			if err := settle(); !errors.Is(err, queue.ErrLeaseLost) {
				t.Errorf("%s of %q: %v, want a lost lease", operation, id, err)
			}
			if last := s.last.Load(); last != nil {
				t.Fatalf("%s of %q was sent: %s", operation, id, last.URL.Path)
			}
		}
	}
}

func TestAnIdentitysDeletesAreTheSDKs(t *testing.T) {
	d, err := newDeleter(azureconn.Config{QueueURL: "https://acct.queue.core.windows.net", Credential: azureconn.Identity}, nil, "orders", nil)
	if d != nil || err != nil {
		t.Errorf("%v, %v", d, err)
	}
}

func BenchmarkComplete(b *testing.B) {
	s := newTakesAll(b)
	q := s.queue(b, withKey)
	receipt := url.QueryEscape(strings.Repeat("r+", 12))
	for name, remove := range map[string]func(context.Context, string, string) error{
		"SDK": q.throughSDK,
		"here": func(ctx context.Context, id, receipt string) error {
			return q.Complete(ctx, &queue.Message{ID: id, Lease: queue.NewLease(receipt, time.Time{}, 0)})
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := remove(b.Context(), "0f1e2d3c-0000-4000-8000-123456789abc", receipt); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

package azureconn

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// C89: of connections that a middle between here and storage has forgotten, one request loses its time on one, and not each
// of the next ones on another.
func TestConnectionsThatAMiddleForgotCostOneRequestItsTime(t *testing.T) {
	const burst = 8
	var forgotten atomic.Int64 // connections with such a number, or a lower one, answer nothing any more
	var dialed, asked atomic.Int64
	together, reached, end := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var once sync.Once
	type number struct{}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == burst {
			close(together)
		}
		<-together // so that each of the burst has a connection of its own
		if r.Context().Value(number{}).(int64) <= forgotten.Load() {
			once.Do(func() { close(reached) })
			<-end
		}
	}))
	s.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, number{}, dialed.Add(1))
	}
	s.Start()
	defer s.Close()
	defer close(end)
	transport := NewTransport(burst)
	ask := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL, http.NoBody)
		if err != nil {
			t.Error(err)
			return err
		}
		res, err := transport.RoundTrip(req)
		if err == nil {
			err = res.Body.Close()
		}
		return err
	}
	var all sync.WaitGroup
	for range burst {
		all.Go(func() {
			if err := ask(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	forgotten.Store(dialed.Load())
	if err := ask(overWhen{t.Context(), reached}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("on a connection that was forgotten: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := ask(ctx); err != nil {
		t.Errorf("the next request: %v; %d connections were made", err, dialed.Load())
	}
}

// overWhen is a context whose deadline passes when a request has reached the server.
type overWhen struct {
	context.Context
	reached chan struct{}
}

func (c overWhen) Done() <-chan struct{} { return c.reached }

func (c overWhen) Err() error {
	select {
	case <-c.reached:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

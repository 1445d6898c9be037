package azureconn

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Storage that is slow answers one request late, and another: the connections of the others are closed with the first one only.
func TestSlowStorageCostsTheOtherConnectionsLittle(t *testing.T) {
	var dialed, asked, hung atomic.Int64
	end, reached := make(chan struct{}), []chan struct{}{make(chan struct{}), make(chan struct{})}
	both := []chan struct{}{make(chan struct{}), make(chan struct{})}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		switch round := r.URL.Query().Get("round"); round {
		case "hang":
			close(reached[hung.Add(1)-1])
			<-end
		case "":
		default: // two at a time, so that each has a connection of its own
			n := asked.Add(1)
			if n%2 == 0 {
				close(both[n/2-1])
			}
			<-both[(n-1)/2]
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			dialed.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	defer close(end)
	transport := NewTransport(2)
	transport.purges.every = time.Hour
	ask := func(ctx context.Context, query string) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, s.URL+"/?round="+query, http.NoBody)
		if err != nil {
			return err
		}
		res, err := transport.RoundTrip(req)
		if err == nil {
			err = res.Body.Close()
		}
		return err
	}
	for round, want := range []int64{2, 4} {
		var two sync.WaitGroup
		for range 2 {
			two.Go(func() {
				if err := ask(t.Context(), "both"); err != nil {
					t.Error(err)
				}
			})
		}
		two.Wait()
		if n := dialed.Load(); n != want {
			t.Errorf("round %d: %d connections were made, want %d", round, n, want)
		}
		if err := ask(overWhen{t.Context(), reached[round]}, "hang"); err == nil {
			t.Error("it was answered")
		}
	}
	if err := ask(t.Context(), ""); err != nil {
		t.Error(err)
	}
	if n := dialed.Load(); n != 4 {
		t.Errorf("%d connections were made, want 4: the one that was not late is kept", n)
	}
}

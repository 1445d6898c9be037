package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// What a process counted is told by those that come after it, and by its neighbours: a stop writes
// what the minute had so far.
func TestTheHistoryOutlivesItsProcess(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		r := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		t.Cleanup(r.Close)
		name := queueName("history")
		first := s.start(t)
		neighbour := s.start(t)
		hook := first.register(name, r.URL, nil)
		for range 3 {
			first.waitState(30*time.Second, name, first.publish(name, `{}`), hook.ID, "delivered")
		}
		first.terminate()
		first.ended(20 * time.Second)
		neighbour.terminate()
		neighbour.ended(20 * time.Second)
		second := s.start(t)
		var stats struct {
			Groups []struct {
				Key   string
				Total struct {
					Attempts  map[string]int
					Delivered int
					Delay     struct{ P95 string }
				}
			}
		}
		second.call(http.MethodGet, "/api/v1/stats?group_by=webhook&queue="+name, "", http.StatusOK, &stats)
		if len(stats.Groups) != 1 || stats.Groups[0].Key != hook.ID {
			t.Fatalf("%+v, want the one webhook", stats)
		}
		if total := stats.Groups[0].Total; total.Delivered != 3 || total.Attempts["2xx"] != 3 || total.Delay.P95 == "" {
			t.Errorf("%+v, want 3 delivered", total)
		}
	})
}

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/pushlease/pushlease/functions/hosttest"
	"github.com/pushlease/pushlease/queue"
)

// TestAnOrphanFinishesWhatItHasAndEnds: a host that is killed, or interrupted with a long POST
// under way, leaves the handler behind and tells it nothing (C101).
func TestAnOrphanFinishesWhatItHasAndEnds(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*hosttest.Host) <-chan struct{}{
		"killed": (*hosttest.Host).Vanish, "interrupted": (*hosttest.Host).Interrupt,
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			name := queueName("orphan")
			root := packaged(t, name)
			quickly(t, root, nil)
			h := startHosted(t, root, hosttest.Options{})
			began, release := make(chan struct{}), make(chan struct{})
			receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				close(began)
				<-release
			}))
			defer receiver.Close()
			h.register(name, receiver.URL, nil)
			q := accountQueue(t, name)
			if _, err := q.Send(t.Context(), []byte("long"), queue.SendOptions{}); err != nil {
				t.Fatal(err)
			}
			<-began
			orphan := end(h.host)
			waitUntil(t, 10*time.Second, func() string {
				if resp, err := e2eClient.Get("http://" + h.host.Address() + "/"); err == nil {
					_ = resp.Body.Close()
					return "the orphan still listens"
				}
				return ""
			})
			select {
			case <-orphan:
				t.Error("the orphan ended with its POST under way")
			default:
			}
			close(release) // a second POST would close began again, and panic
			select {
			case <-orphan:
			case <-time.After(20 * time.Second):
				t.Fatal("the orphan goes on")
			}
			waitUntil(t, 10*time.Second, func() string {
				if depth, err := q.Depth(t.Context()); err != nil || depth.Total != 0 {
					return fmt.Sprintf("%d messages are left, %v", depth.Total, err)
				}
				return ""
			})
		})
	}
}

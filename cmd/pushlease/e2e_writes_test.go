package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azuritetest"
)

// C81: while storage can be read and not written, requests should go elsewhere; when it can be
// written again, they come back by themselves.
func TestAnAccountThatCanNotBeWrittenMakesItNotReady(t *testing.T) {
	t.Parallel()
	s := faultyStore(t)
	p := s.start(t)
	in := newInbox(t, receiverOptions{})
	queue := queueName("readonly")
	p.register(queue, in.url, nil)
	p.publish(queue, `{"n":0}`)
	in.wait(t, 1)
	p.waitReady(20*time.Second, http.StatusOK, "")

	path := "/api/v1/queues/" + queue + "/messages"
	s.proxy.Fault(azuritetest.Match{Service: "queue", Operation: "send"}, azuritetest.FailBefore(http.StatusForbidden, "AuthorizationPermissionMismatch"))
	for range 3 {
		p.call(http.MethodPost, path, `{"n":1}`, http.StatusServiceUnavailable, nil)
	}
	waitUntil(t, 10*time.Second, func() string { // a write of another kind that is taken ends it for a while
		p.call(http.MethodPost, path, `{"n":1}`, http.StatusServiceUnavailable, nil)
		_, failing := p.ready()
		if !strings.Contains(failing["storage"], "Storage Queue Data Contributor") {
			return fmt.Sprintf("it says %q", failing["storage"])
		}
		return ""
	})
	s.proxy.Heal()
	p.publish(queue, `{"n":2}`)
	p.waitReady(5*time.Second, http.StatusOK, "")
	in.wait(t, 2)
}

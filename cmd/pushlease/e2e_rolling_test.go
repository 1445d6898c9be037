package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azuritetest"
)

// balancer sends each request to the next of the instances that were ready when it looked
// last, which it does once a second.
type balancer struct {
	mu    sync.Mutex
	all   []*process
	ready []*process
	next  int
}

func (b *balancer) set(all ...*process) {
	b.mu.Lock()
	b.all = all
	b.mu.Unlock()
	b.look()
}

func (b *balancer) look() {
	b.mu.Lock()
	all := b.all
	b.mu.Unlock()
	var ready []*process
	for _, p := range all {
		if a, err := p.try(http.MethodGet, "/readyz", "", ""); err == nil && a.status == http.StatusOK {
			ready = append(ready, p)
		}
	}
	b.mu.Lock()
	b.ready = ready
	b.mu.Unlock()
}

func (b *balancer) run(done <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			b.look()
		}
	}
}

func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	if len(b.ready) == 0 {
		b.mu.Unlock()
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	b.next++
	to, err := url.Parse(b.ready[b.next%len(b.ready)].url)
	b.mu.Unlock()
	if err != nil {
		panic(err)
	}
	proxy := httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }}
	proxy.ServeHTTP(w, r)
}

// A load balancer that looks at /readyz each second loses no request when one instance
// after the other is replaced.
func TestRollingRestartRefusesNobody(t *testing.T) {
	t.Parallel()
	s := sqliteStore(t)
	settings := []string{"PUSHLEASE_SHUTDOWN_DELAY=4s"}
	old := []*process{s.start(t, settings...), s.start(t, settings...)}
	in := newInbox(t, receiverOptions{})
	queue := queueName("rolling")
	old[0].register(queue, in.url, nil)
	b := &balancer{}
	b.set(old...)
	front := httptest.NewServer(b)
	defer front.Close()
	done, ended := make(chan struct{}), make(chan struct{})
	go b.run(done)
	const enough = 100
	sent, failed := 0, []string(nil)
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				if sent >= enough {
					return
				}
			case <-tick.C:
			}
			sent++
			resp, err := e2eClient.Post(front.URL+"/api/v1/queues/"+queue+"/messages", "application/json", strings.NewReader(fmt.Sprintf(`{"n":%d,"text":"%s"}`, sent, bodyMark)))
			if err != nil {
				failed = append(failed, err.Error())
				continue
			}
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusAccepted {
				failed = append(failed, fmt.Sprintf("%d %s", resp.StatusCode, body))
			}
		}
	}()
	for i := range old {
		fresh := s.start(t, settings...)
		fresh.waitReady(10*time.Second, http.StatusOK, "")
		others := append([]*process{fresh}, old...)
		b.set(others...)
		old[i].terminate()
		old[i].waitReady(3*time.Second, http.StatusServiceUnavailable, "draining")
		if _, err := old[i].try(http.MethodGet, "/api/v1/queues", "", ""); err != nil {
			t.Errorf("while it is stopping a request gets no answer: %v", err)
		}
		old[i].ended(20 * time.Second)
		old[i].exitedCleanly()
		old[i] = fresh
		b.set(old...)
	}
	close(done)
	<-ended
	if len(failed) > 0 || sent < enough {
		t.Errorf("%d of %d publishes failed: %v", len(failed), sent, failed)
	}
	in.wait(t, sent)
	if got := in.Totals(); got.Requests != sent || got.IDs != sent {
		t.Errorf("%d POSTs of %d messages, want one of each of %d", got.Requests, got.IDs, sent)
	}
}

// A request under way at the stop is answered, however long its webhook takes within the
// drain bound.
func TestStopFinishesTheRequestsUnderWay(t *testing.T) {
	t.Parallel()
	p := sqliteStore(t).start(t, "PUSHLEASE_DRAIN=20s")
	in := newInbox(t, receiverOptions{Answer: reply{Status: 200, Delay: 7 * time.Second}})
	h := p.register(queueName("tested"), in.url, nil)
	type outcome struct {
		a   e2eAnswer
		err error
	}
	answered := make(chan outcome, 1)
	go func() {
		a, err := p.try(http.MethodPost, "/api/v1/webhooks/"+h.ID+"/test", "", "")
		answered <- outcome{a, err}
	}()
	in.wait(t, 1)
	p.terminate()
	if o := <-answered; o.err != nil || o.a.status != http.StatusOK {
		t.Errorf("the test is answered %d, %v", o.a.status, o.err)
	}
	p.ended(20 * time.Second)
	p.exitedCleanly()
}

// What is known about the process goes to a collector; whether it arrives says nothing
// about the process.
func TestACollectorThatIsAwayDoesNotDecideTheExitCode(t *testing.T) {
	t.Parallel()
	p := sqliteStore(t).start(t, "PUSHLEASE_OTLP_ENDPOINT=http://127.0.0.1:1")
	p.deliverOne("untold")
	p.terminate()
	p.ended(25 * time.Second)
	p.exitedCleanly()
	for line := range strings.Lines(p.log.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line of the log is no JSON: %s", line)
		}
	}
}

// One queue that can't be received from is told, and takes no instance out of service.
func TestOneQueueThatCanNotBeReadLeavesTheAPIInService(t *testing.T) {
	t.Parallel()
	s := faultyStore(t)
	p := s.start(t, "PUSHLEASE_POLL_MAX=300ms")
	in := newInbox(t, receiverOptions{})
	var queues []string
	for range 3 {
		queues = append(queues, queueName("degraded"))
		p.register(queues[len(queues)-1], in.url, nil)
	}
	for _, q := range queues {
		p.publish(q, `{"text":"`+bodyMark+`"}`)
	}
	in.wait(t, len(queues))
	for _, refusal := range []azuritetest.Fault{azuritetest.FailBefore(http.StatusForbidden, "AuthorizationFailure"), azuritetest.Throttle()} {
		s.proxy.Fault(azuritetest.Match{Operation: "receive", Path: queues[0]}, refusal)
		p.waitReady(20*time.Second, http.StatusOK, "queue "+queues[0])
		p.publish(queues[1], `{"text":"`+bodyMark+`"}`)
		s.proxy.Fault(azuritetest.Match{Operation: "receive"}, refusal)
		p.waitReady(20*time.Second, http.StatusServiceUnavailable, "queue "+queues[2])
		s.proxy.Heal()
		p.waitReady(20*time.Second, http.StatusOK, "")
	}
}

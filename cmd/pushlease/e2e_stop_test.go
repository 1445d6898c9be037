package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azuritetest"
)

// exitedCleanly fails the test unless the process ended by itself with 0.
func (p *process) exitedCleanly() {
	p.t.Helper()
	if p.err != nil {
		p.t.Errorf("the process ended with %v:\n%s", p.err, p.log.String())
	}
}

func TestStopFinishesWhatIsInFlight(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p := s.start(t, "PUSHLEASE_CONCURRENCY=4")
		in := newInbox(t, receiverOptions{Answer: reply{Status: 200, Delay: 400 * time.Millisecond}})
		queue := queueName("drain")
		h := p.register(queue, in.url, map[string]any{"enabled": false})
		ids := p.publishMany(queue, 24)
		p.call(http.MethodPost, "/api/v1/webhooks/"+h.ID+"/enable", "", http.StatusOK, nil)
		in.wait(t, 8)
		p.terminate()
		p.ended(10 * time.Second)
		p.exitedCleanly()
		posts := len(in.all())
		if posts > 16 {
			t.Errorf("%d POSTs were made until the stop, which came after 8", posts)
		}
		p = s.start(t)
		in.wait(t, len(ids))
		p.waitEmpty(20*time.Second, queue)
		if got := in.Totals(); got.Requests != len(ids) || got.IDs != len(ids) {
			t.Errorf("%d POSTs of %d messages, want one of each of %d", got.Requests, got.IDs, len(ids))
		}
		attempts := p.attempts(queue)
		for _, a := range attempts { // one that the first process gave back without a POST may have the number 2 (ADR 0099)
			if a.Action != "complete" || !a.Charged {
				t.Errorf("an attempt is %+v", a)
			}
		}
		if len(attempts) != len(ids) {
			t.Errorf("%d attempts are on record of %d messages", len(attempts), len(ids))
		}
	})
}

// stopped publishes a message whose first POST hangs, and stops the process with
// stop while it does. The next process delivers it; the attempt that was cut short
// is charged to nobody.
func stopped(t *testing.T, s *store, recorded bool, stop func(p *process), settings ...string) {
	t.Helper()
	p := s.start(t, settings...)
	in := newInbox(t, receiverOptions{Script: []reply{{Status: 200, Delay: 40 * time.Second}, {Status: 200}}})
	queue := queueName("stop")
	h := p.register(queue, in.url, map[string]any{"timeout": "60s"})
	id := p.publish(queue, `{"text":"`+bodyMark+`"}`)
	in.wait(t, 1)
	stop(p)
	p = s.start(t, settings...)
	next := p.waitState(20*time.Second, queue, id, h.ID, "delivered")
	p.waitEmpty(10*time.Second, queue)
	if next.Charged != 1 || len(in.all()) != 2 {
		t.Errorf("%d POSTs, and the record is %+v: want two, one of them charged", len(in.all()), next)
	}
	attempts := p.attempts(queue)
	if recorded {
		if len(attempts) != 2 || attempts[0].Action != "no-verdict" || attempts[0].Reason != "Stopping" || attempts[0].Charged {
			t.Errorf("the attempts are %+v, want the first to be cut short by the stop", attempts)
		}
	} else if len(attempts) != 1 {
		t.Errorf("the attempts are %+v, want only that of the second process", attempts)
	}
}

func TestStopCutsShortAtItsBoundAndChargesNothing(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		// The lease is long: the message comes back soon only when it is given back.
		stopped(t, s, true, func(p *process) {
			start := time.Now()
			p.terminate()
			p.ended(15 * time.Second)
			p.exitedCleanly()
			if took := time.Since(start); took < time.Second || took > 6*time.Second {
				t.Errorf("the stop took %s with a drain of 1s", took)
			}
		}, "PUSHLEASE_DRAIN=1s", "PUSHLEASE_LEASE=60s")
	})
}

func TestSecondSIGTERMEndsAtOnce(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		stopped(t, s, false, func(p *process) {
			p.terminate()
			waitUntil(t, 10*time.Second, func() string {
				if strings.Contains(p.log.String(), "stopping: ") {
					return ""
				}
				return "the first signal is not logged"
			})
			start := time.Now()
			p.terminate()
			p.ended(10 * time.Second)
			if took := time.Since(start); took > 3*time.Second {
				t.Errorf("the second signal took %s", took)
			}
			if p.err == nil {
				t.Error("a process that was cut short ended with 0")
			}
		}, "PUSHLEASE_DRAIN=60s")
	})
}

// faultyStore is Azurite behind a proxy that injects faults.
func faultyStore(t *testing.T) *store {
	s := azuriteStore(t)
	s.proxy = s.account.Proxy(t)
	s.env = azuriteEnv(s.proxy.ConnectionString())
	return s
}

// waitReady waits until /readyz is so; a check that fails must say something.
func (p *process) waitReady(bound time.Duration, status int, failing string) {
	p.t.Helper()
	waitUntil(p.t, bound, func() string {
		got, checks := p.ready()
		for name, detail := range checks {
			if detail == "" || strings.Contains(detail, "AccountKey") {
				p.t.Errorf("the check %s says %q", name, detail)
			}
		}
		if _, ok := checks[failing]; got == status && (failing == "" || ok) {
			return ""
		}
		return fmt.Sprintf("/readyz is %d %v, want %d with %q failing", got, checks, status, failing)
	})
}

// deliverOne shows that the process does its job.
func (p *process) deliverOne(prefix string) {
	p.t.Helper()
	in := newInbox(p.t, receiverOptions{})
	queue := queueName(prefix)
	h := p.register(queue, in.url, nil)
	id := p.publish(queue, `{"text":"`+bodyMark+`"}`)
	p.waitState(20*time.Second, queue, id, h.ID, "delivered")
	p.waitEmpty(10*time.Second, queue)
	if n := len(in.all()); n != 1 {
		p.t.Errorf("%d POSTs, want 1", n)
	}
}

func TestStartWithADeadStoreRecoversByItself(t *testing.T) {
	t.Parallel()
	s := faultyStore(t)
	s.proxy.Down()
	p := s.start(t)
	p.waitReady(20*time.Second, http.StatusServiceUnavailable, "webhooks")
	a, err := p.try(http.MethodPost, "/api/v1/queues/"+queueName("dead")+"/messages", "application/json", `{"text":"`+bodyMark+`"}`)
	if err != nil || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("a publish is answered %v %d %s", err, a.status, a.body)
	}
	s.proxy.Up()
	p.waitReady(30*time.Second, http.StatusOK, "")
	p.deliverOne("alive")
}

func TestThrottlingStoreIsAskedLessAndRecovers(t *testing.T) {
	t.Parallel()
	s := faultyStore(t)
	settings := []string{"PUSHLEASE_POLL_MAX=2s", "PUSHLEASE_REGISTRY_REFRESH=2s"}
	p := s.start(t, settings...)
	queue := queueName("throttled")
	in := newInbox(t, receiverOptions{})
	h := p.register(queue, in.url, nil)
	id := p.publish(queue, `{"text":"`+bodyMark+`"}`)
	p.waitState(20*time.Second, queue, id, h.ID, "delivered")
	p.waitEmpty(10*time.Second, queue)

	s.proxy.Fault(azuritetest.Match{}, azuritetest.Throttle())
	p.waitReady(20*time.Second, http.StatusServiceUnavailable, "queue "+queue)
	boundedRequests(t, s.proxy, "receive", "/messages", 5)

	// The same for one that starts into it.
	p.terminate()
	p.ended(20 * time.Second)
	p.exitedCleanly()
	p = s.start(t, settings...)
	p.waitReady(20*time.Second, http.StatusServiceUnavailable, "webhooks")
	boundedRequests(t, s.proxy, "query", "Webhooks()", 14) // each is tried twice, and the counting of dead letters asks too

	s.proxy.Heal()
	p.waitReady(30*time.Second, http.StatusOK, "")
	second := p.publish(queue, `{"text":"`+bodyMark+`"}`)
	p.waitState(20*time.Second, queue, second, h.ID, "delivered")
	p.waitEmpty(10*time.Second, queue)
	if got := in.Totals(); got.Requests != 2 {
		t.Errorf("%d POSTs, want 2", got.Requests)
	}
}

// boundedRequests waits for so many more calls of an operation on one thing that
// fails, which are at least five rounds. Those are at least 0.25, 0.5, 1 and 1 seconds
// apart, and nothing else is asked much more often.
func boundedRequests(t *testing.T, proxy *azuritetest.Proxy, operation, path string, calls int) {
	t.Helper()
	all, start := len(proxy.Requests()), time.Now()
	waitUntil(t, 30*time.Second, func() string {
		n := 0
		for _, r := range proxy.Requests()[all:] {
			if r.Operation == operation && strings.HasSuffix(r.Path, path) {
				n++
			}
		}
		if n < calls {
			return fmt.Sprintf("%d calls of %s, want %d", n, operation, calls)
		}
		return ""
	})
	took := time.Since(start)
	if took < 2*time.Second {
		t.Errorf("%d failing calls of %s came within %s: it spins: %+v", calls, operation, took, proxy.Requests()[all:])
	}
	if n := len(proxy.Requests()) - all; n > 40 {
		t.Errorf("%d requests within %s while storage is throttling: %v", n, took, proxy.Requests()[all:])
	}
}

// What is answered while the store is away is on record when it is back, and is
// not POSTed again.
func TestStoreThatDiesDuringAPostCostsNothing(t *testing.T) {
	t.Parallel()
	s := faultyStore(t)
	p := s.start(t, "PUSHLEASE_LEASE=2s")
	in := newInbox(t, receiverOptions{Answer: reply{Status: 200, Delay: 2 * time.Second}})
	queue := queueName("away")
	h := p.register(queue, in.url, nil)
	id := p.publish(queue, `{"text":"`+bodyMark+`"}`)
	in.wait(t, 1)
	s.proxy.Down()
	waitUntil(t, 20*time.Second, func() string {
		if strings.Count(p.log.String(), "lease renewal failed") < 4 {
			return "too few failed renewals are logged"
		}
		return ""
	})
	s.proxy.Up()
	next := p.waitState(60*time.Second, queue, id, h.ID, "delivered")
	p.waitEmpty(20*time.Second, queue)
	if n := len(in.all()); n != 1 || next.Attempts != 1 {
		t.Errorf("%d POSTs, and the record is %+v", n, next)
	}
}

// Renewals that fail while receives work bring a message back to the process that
// is still at work on it.
func TestMessageThatComesBackDuringItsPostIsPostedOnce(t *testing.T) {
	t.Parallel()
	s := faultyStore(t)
	p := s.start(t, "PUSHLEASE_LEASE=2s")
	in := newInbox(t, receiverOptions{Answer: reply{Status: 200, Delay: 7 * time.Second}})
	queue := queueName("back")
	s.proxy.Fault(azuritetest.Match{Service: "queue", Operation: "update"}, azuritetest.Throttle())
	h := p.register(queue, in.url, nil)
	id := p.publish(queue, `{"text":"`+bodyMark+`"}`)
	in.wait(t, 1)
	waitUntil(t, 20*time.Second, func() string {
		if n := p.metric("pushlease_messages_received_total", `queue="`+queue+`"`); n < 2 {
			return fmt.Sprintf("received %v times, want 2", n)
		}
		return ""
	})
	next := p.waitState(30*time.Second, queue, id, h.ID, "delivered")
	p.waitEmpty(10*time.Second, queue)
	if n := len(in.all()); n != 1 || next.Attempts != 1 {
		t.Errorf("%d POSTs, and the record is %+v", n, next)
	}
}

// A stop is bounded although nothing can be recorded or given back.
func TestStopIsBoundedWhileTheStoreIsDead(t *testing.T) {
	t.Parallel()
	s := faultyStore(t)
	p := s.start(t, "PUSHLEASE_DRAIN=1s")
	in := newInbox(t, receiverOptions{Script: []reply{{Status: 200, Delay: 40 * time.Second}, {Status: 200}}})
	queue := queueName("dead")
	h := p.register(queue, in.url, map[string]any{"timeout": "60s"})
	id := p.publish(queue, `{"text":"`+bodyMark+`"}`)
	in.wait(t, 1)
	s.proxy.Down()
	start := time.Now()
	p.terminate()
	p.ended(40 * time.Second)
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("the stop took %s with a drain of 1s, want at most 10s more", took)
	}
	p.exitedCleanly()
	s.proxy.Up()
	p = s.start(t)
	next := p.waitState(20*time.Second, queue, id, h.ID, "delivered")
	p.waitEmpty(10*time.Second, queue)
	if next.Charged != 1 || len(in.all()) != 2 {
		t.Errorf("%d POSTs, and the record is %+v: want two, one of them charged", len(in.all()), next)
	}
}

func TestStopIsBoundedWhileTheStoreHangs(t *testing.T) {
	t.Parallel()
	s := faultyStore(t)
	p := s.start(t, "PUSHLEASE_DRAIN=1s")
	in := newInbox(t, receiverOptions{Script: []reply{{Status: 200, Delay: 40 * time.Second}, {Status: 200}}})
	queue := queueName("hangs")
	h := p.register(queue, in.url, map[string]any{"timeout": "60s"})
	id := p.publish(queue, `{"text":"`+bodyMark+`"}`)
	in.wait(t, 1)
	receives := s.proxy.Count("queue", "receive")
	s.proxy.Fault(azuritetest.Match{}, azuritetest.Delay(time.Minute))
	waitUntil(t, 10*time.Second, func() string {
		if s.proxy.Count("queue", "receive") == receives {
			return "no receive hangs yet"
		}
		return ""
	})
	start := time.Now()
	p.terminate()
	p.ended(40 * time.Second)
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("the stop took %s with a drain of 1s, want at most 10s more", took)
	}
	s.proxy.Heal()
	p = s.start(t)
	next := p.waitState(20*time.Second, queue, id, h.ID, "delivered")
	p.waitEmpty(10*time.Second, queue)
	if next.Charged != 1 || len(in.all()) != 2 {
		t.Errorf("%d POSTs, and the record is %+v: want two, one of them charged", len(in.all()), next)
	}
}

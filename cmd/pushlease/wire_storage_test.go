//go:build linux

package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// storageAt makes an account's services be reached under an address of the far end, and returns what the near end
// knows of it. Who is cut off from that address reaches the receiver all the same.
func (f *far) storageAt(a netip.Addr, s *store) *store {
	f.t.Helper()
	settings := strings.Join(s.env, "\n")
	for _, service := range []string{s.account.QueueURL, s.account.TableURL} {
		u, err := url.Parse(service)
		if err != nil {
			f.t.Fatal(err)
		}
		l, err := f.Far.Listen("tcp", net.JoinHostPort(a.String(), u.Port()))
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() { _ = l.Close() })
		go passOn(l, func() (net.Conn, error) { return net.Dial("tcp", u.Host) })
		settings = strings.ReplaceAll(settings, u.Host, net.JoinHostPort(a.String(), u.Port()))
	}
	return &store{name: s.name, account: s.account, env: strings.Split(settings, "\n")}
}

// passOn passes what comes to l on to what dial gives, until l is closed.
func passOn(l net.Listener, dial func() (net.Conn, error)) {
	for {
		here, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer here.Close()
			there, err := dial()
			if err != nil {
				return
			}
			defer there.Close()
			go func() {
				_, _ = io.Copy(there, here) // until one of the ends goes
				_ = there.Close()
			}()
			_, _ = io.Copy(here, there)
		}()
	}
}

// TestStorageThatIsCutOffLosesAndDoublesNothing: for a minute nothing comes through from or to it, while an instance
// has POSTs under way, and messages wait.
func TestStorageThatIsCutOffLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	f := startFar(t, "HTTP/1.1", time.Second)
	storage := server(60)
	p, name := f.startOn(f.storageAt(storage, azuriteStore(t)), "PUSHLEASE_LEASE=2m"), queueName("cut")
	p.register(name, f.url, map[string]any{"flow": map[string]any{}})
	published := p.steadily(name, 5*time.Second)
	f.Dead(storage)
	time.Sleep(time.Minute) // the cut
	f.Alive(storage)
	healed := time.Now()
	p.waitEmpty(150*time.Second, name) // a receive whose answer was cut off hides its message for the lease
	t.Logf("%d messages; the queue was empty %s after it healed", len(published), time.Since(healed).Round(100*time.Millisecond))
	if twice := f.noDeadLetters(p, name, published); twice > 0 {
		t.Errorf("%d messages were taken twice", twice)
	}
}

// TestConnectionsToStorageThatAMiddleForgotCostOneTimeout: a NAT or firewall before storage restarts under load (C89). What was under
// way is lost, and nothing else waits for one dead connection after the other.
func TestConnectionsToStorageThatAMiddleForgotCostOneTimeout(t *testing.T) {
	t.Parallel()
	f := startFar(t, "HTTP/1.1", 100*time.Millisecond)
	storage := server(62)
	p, name := f.startOn(f.storageAt(storage, azuriteStore(t))), queueName("forgot")
	p.register(name, f.url, map[string]any{"flow": map[string]any{}})
	published := map[string]time.Time{}
	for _, id := range p.publishMany(name, 64) { // many at once, so that there are many connections
		published[id] = time.Now()
	}
	connections, forgot := f.Forget(storage), time.Now()
	waitUntil(t, 15*time.Second, func() string {
		a, err := p.try(http.MethodPost, "/api/v1/queues/"+name+"/messages", "application/json", bodyMark)
		if err != nil || a.status != http.StatusAccepted {
			return fmt.Sprintf("publish: %v, %d %s", err, a.status, a.body)
		}
		published[locationID(a)] = time.Now()
		return ""
	})
	took := time.Since(forgot)
	p.waitReady(15*time.Second, http.StatusOK, "")
	p.waitEmpty(90*time.Second, name) // a receive whose answer was cut off hides its messages for the lease
	t.Logf("%d connections were forgotten; published after %s, empty after %s", connections, took.Round(10*time.Millisecond), time.Since(forgot).Round(10*time.Millisecond))
	if twice := f.noDeadLetters(p, name, published); twice > 0 {
		t.Errorf("%d messages were taken twice", twice)
	}
}

// TestADoubleOfAnInstanceThatWasCutOffSaysWhy: of two instances one is cut off from storage while it POSTs. The other one
// gets the messages when their leases end; the second POST can't be avoided, and the record of the first says why (C113).
func TestADoubleOfAnInstanceThatWasCutOffSaysWhy(t *testing.T) {
	t.Parallel()
	f := startFar(t, "HTTP/1.1", time.Second)
	f.receiver.gate = make(chan struct{})
	account := azuriteStore(t)
	near := server(60)
	p, name := f.startOn(f.storageAt(near, account), "PUSHLEASE_INSTANCE=first"), queueName("double")
	hook := p.register(name, f.url, map[string]any{"flow": map[string]any{}})
	ids := p.publishMany(name, 4)
	waitUntil(t, 30*time.Second, func() string {
		f.receiver.mu.Lock()
		defer f.receiver.mu.Unlock()
		if f.receiver.began < len(ids) {
			return "not all POSTs are under way"
		}
		return ""
	})
	f.Dead(near)
	close(f.receiver.gate)
	other := f.startOn(f.storageAt(server(61), account), "PUSHLEASE_INSTANCE=second")
	for _, id := range ids {
		other.waitState(2*time.Minute, name, id, hook.ID, "delivered")
	}
	f.Alive(near)
	late, twice := map[string]int{}, 0
	for _, id := range ids {
		var made []e2eEvent
		waitUntil(t, 30*time.Second, func() string {
			tl, err := other.timeline(name, id)
			if err != nil {
				return err.Error()
			}
			made = slices.DeleteFunc(tl.Events, func(e e2eEvent) bool { return e.Attempt == nil && e.Event != "delivered" })
			if len(made) < 3 {
				return "the first one's attempt is not on record"
			}
			if !slices.ContainsFunc(made, func(e e2eEvent) bool { // a record that was under way at the lease's end is written again
				return e.Attempt != nil && e.Attempt.Instance == "first" && strings.Contains(e.Attempt.Explanation, "Written late")
			}) {
				return "the first one's attempt does not say that it was written late"
			}
			return ""
		})
		for _, e := range made {
			switch {
			case e.Attempt == nil && strings.Contains(e.Text, "delivered 2 times"):
				twice++
			case e.Attempt == nil:
			case e.Attempt.Status != http.StatusOK:
				t.Errorf("an attempt is %+v", e.Attempt)
			case strings.Contains(e.Attempt.Explanation, "Written late"):
				late[e.Attempt.Instance]++
			}
		}
	}
	if late["first"] != len(ids) || twice != len(ids) {
		t.Errorf("these attempts say that they were written late: %v; %d messages are said to be delivered twice", late, twice)
	}
}

package sim

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/internal/app"
	"github.com/pushlease/pushlease/internal/config"
)

// instance is one process, from its start to its end.
type instance struct {
	w    *world
	slot int
	name string
	gate *gate

	listener *listener
	client   *http.Client
	cancel   context.CancelFunc
	done     chan struct{}
	started  time.Duration
	// died is when it was killed, stopped when it was asked to stop before the end of the
	// run, 0 for never, and ended when it had done so.
	died, stopped, ended time.Duration
	frozen               []span

	mu       sync.Mutex
	ordinals map[string]int
}

type span struct{ from, until time.Duration }

// start starts a process in a slot, as a supervisor would, where none is up.
func (w *world) start(slot int) {
	w.mu.Lock()
	if there := w.slots[slot]; there != nil && there.up() {
		w.mu.Unlock()
		return
	}
	w.started[slot]++
	i := &instance{
		w: w, slot: slot, name: fmt.Sprintf("i%d.%d", slot, w.started[slot]), gate: newGate(), listener: newListener(),
		done: make(chan struct{}), started: w.now(), ordinals: map[string]int{},
	}
	w.slots[slot] = i
	w.all = append(w.all, i)
	w.mu.Unlock()
	i.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: i.dial}}
	ctx, cancel := context.WithCancel(context.Background())
	i.cancel = cancel
	w.note(i.name, "starts")
	go i.run(ctx)
}

func (i *instance) run(ctx context.Context) {
	defer close(i.done)
	for ctx.Err() == nil {
		err := i.life(ctx)
		switch {
		case !i.gate.alive() || ctx.Err() != nil:
			if err != nil && i.gate.alive() {
				i.w.note(i.name, "ended: "+err.Error())
			}
			return
		case err != nil:
			i.w.note(i.name, "could not start: "+err.Error())
		default:
			i.w.violate("ended", i.name+" ended by itself")
			return
		}
		t := time.NewTimer(time.Second) // the supervisor starts it again
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
}

// life is a process from New to the end of Run.
func (i *instance) life(ctx context.Context) error {
	outside := app.Outside{
		Listen:   func(context.Context, string, string) (net.Listener, error) { return i.listener, nil },
		Resolver: network{i.w, i}, DialContext: network{i.w, i}.DialContext,
	}
	if i.w.plan.File {
		outside.File = i.file
	} else {
		outside.Storage = accountTransport{i}
	}
	o := app.Options{Version: "sim", LogOutput: io.Discard, Outside: outside}
	env := i.w.environment(i)
	if i.w.plan.Hosted {
		return i.hostedLife(ctx, o, env)
	}
	cfg, err := config.Load(nil, env)
	if err != nil {
		i.w.violate("plan", err.Error())
		return nil
	}
	a, err := app.New(ctx, cfg, o)
	if err != nil {
		i.mu.Lock()
		i.listener = newListener()
		i.mu.Unlock()
		return err
	}
	return a.Run(ctx)
}

// dial opens a connection to the API.
func (i *instance) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := newWire([2]net.Addr{loopback(50001), loopback(8080)})
	i.mu.Lock()
	l := i.listener
	i.mu.Unlock()
	select {
	case l.conns <- i.gate.guard(far):
		return near, nil
	case <-l.closed:
	case <-i.gate.dead:
	case <-ctx.Done():
	}
	return nil, errNobody
}

// ask makes one request to the API. The status is 0 without an answer.
func (i *instance) ask(method, path string, body []byte, headers ...string) (status int, answer []byte) {
	req, err := http.NewRequestWithContext(context.Background(), method, "http://127.0.0.1:8080"+i.w.published(path), bytes.NewReader(body))
	if err != nil {
		i.w.violate("plan", err.Error())
		return 0, nil
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) { // a name and its value
		req.Header.Set(pair[0], pair[1])
	}
	if i.w.plan.Hosted {
		req.Header.Set("Authorization", "Bearer "+hostedKey)
	}
	resp, err := i.client.Do(req)
	if err != nil {
		return 0, nil
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		i.w.note(i.name, fmt.Sprintf("the answer to %s %s breaks off after %d bytes: %v", method, path, len(answer), err))
		return 0, nil
	}
	return resp.StatusCode, i.w.later(answer, i.w.ahead(i.slot), jsonTime)
}

// ordinal counts the calls of one kind.
func (i *instance) ordinal(op string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.ordinals[op]++
	return i.ordinals[op]
}

// kill is kill -9.
func (i *instance) kill(at string) {
	if i.gate.die() {
		i.mu.Lock()
		i.died = i.w.now()
		i.mu.Unlock()
		i.w.note(i.name, "dies at "+at)
	}
}

// stop asks it to stop, and waits.
func (i *instance) stop() {
	if !i.w.ending { // what is unwritten by the end of the run is lost without an excuse
		i.mu.Lock()
		i.stopped = i.w.now()
		i.mu.Unlock()
	}
	i.w.note(i.name, "is asked to stop")
	i.cancel()
	const bound = 2 * time.Minute
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-i.done:
		i.mu.Lock()
		i.ended = i.w.now()
		i.mu.Unlock()
		i.w.note(i.name, "has stopped")
	case <-i.gate.dead:
	case <-t.C:
		i.w.mu.Lock()
		frozen := len(i.frozen) > 0
		i.w.mu.Unlock()
		if !frozen {
			i.w.violate("stop", fmt.Sprintf("%s has not stopped after %s", i.name, bound))
		}
	}
}

// release lets the goroutines of one that has died end.
func (i *instance) release() {
	i.cancel()
	close(i.gate.released)
	<-i.done
}

func (i *instance) up() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.gate.alive() && i.stopped == 0
}

// brokeBetween is whether it died or stood still within a time.
func (i *instance) brokeBetween(from, until time.Duration) bool {
	if i.died > 0 && i.died >= from && i.died <= until {
		return true
	}
	for _, s := range i.frozen {
		if s.from <= until && s.until >= from {
			return true
		}
	}
	return false
}

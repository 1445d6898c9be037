package sim

import (
	"errors"
	"net"
	"sync"
	"time"
)

// errReleased is what calls of a dead instance end with after the run, so that its
// goroutines end too. Nothing of it reaches storage or a receiver any more.
var errReleased = errors.New("this process is dead")

// gate is what stands between an instance and everything outside of it. An instance that
// has died, or is stopped for a while, gets no further than the next gate.
type gate struct {
	mu sync.Mutex
	// dead is closed when the instance dies, released when the run is over.
	dead, released chan struct{}
	died           bool
	frozenUntil    time.Time
	// left counts down to the instance's death, where that is armed.
	left  int
	armed func(at string)
	// passed are the places where the instance came by, while they are counted.
	passed  []passage
	counted bool
	conns   map[*conn]bool
}

type passage struct {
	at   string
	when time.Time
}

func newGate() *gate {
	return &gate{dead: make(chan struct{}), released: make(chan struct{}), conns: map[*conn]bool{}}
}

// pass returns when the instance may go on; at says where it is. It never returns before
// the end of the run for one that has died.
func (g *gate) pass(at string) error {
	g.mu.Lock()
	if g.counted {
		g.passed = append(g.passed, passage{at, time.Now()})
	}
	if g.armed != nil {
		if g.left--; g.left < 0 {
			armed := g.armed
			g.armed = nil
			g.mu.Unlock()
			armed(at)
			g.mu.Lock()
		}
	}
	died, frozen := g.died, time.Until(g.frozenUntil)
	g.mu.Unlock()
	if !died && frozen > 0 {
		t := time.NewTimer(frozen)
		defer t.Stop()
		select {
		case <-t.C:
			return g.pass(at)
		case <-g.dead:
		}
		died = true
	}
	if died {
		<-g.released
		return errReleased
	}
	return nil
}

// arm makes the instance die at the n-th gate from now on.
func (g *gate) arm(n int, die func(at string)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left, g.armed = n, die
}

// freeze stops the instance for a while, as SIGSTOP does.
func (g *gate) freeze(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.frozenUntil = time.Now().Add(d)
}

// die stops it for ever, and breaks its connections. It is false for one that is dead.
func (g *gate) die() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.died {
		return false
	}
	g.died, g.armed = true, nil
	close(g.dead)
	for c := range g.conns {
		c.Reset()
	}
	return true
}

func (g *gate) alive() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.died
}

// guarded is a connection of the instance, which passes the gate.
type guarded struct {
	*conn
	gate *gate
}

func (g *gate) guard(c *conn) net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[c] = true
	if g.died {
		c.Reset()
	}
	return &guarded{c, g}
}

func (c *guarded) Read(b []byte) (int, error) {
	n, err := c.conn.Read(b)
	if passErr := c.gate.pass("read"); passErr != nil {
		return 0, passErr
	}
	c.wire.mu.Lock()
	answer := c.wire.answer
	c.wire.answer = nil
	c.wire.mu.Unlock()
	if n > 0 && answer != nil {
		answer.inst.w.took(answer)
	}
	return n, err
}

func (c *guarded) Write(b []byte) (int, error) {
	if err := c.gate.pass("write"); err != nil {
		return 0, err
	}
	return c.conn.Write(b)
}

func (c *guarded) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c.conn)
	c.gate.mu.Unlock()
	return c.conn.Close()
}

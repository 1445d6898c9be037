package lease

import (
	"container/heap"
	"sync"
	"time"
)

// clock is the one clock of all leases that are kept: a timer, and the leases in the
// order in which they are next to act. A lease that is settled before its half costs an
// entry here and nothing else; only one that acts has a goroutine, while it does.
// The zero value is empty; safe for concurrent use.
type clock struct {
	mu    sync.Mutex
	next  leaseHeap
	timer *time.Timer
}

// add makes l act at that time, unless it was stopped. A lease is in here once at most.
func (c *clock) add(l *Lease, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.stopped {
		return
	}
	l.at = at
	heap.Push(&c.next, l)
	if c.next[0] == l {
		c.arm()
	}
}

// remove makes l act no more. What it is doing now goes on.
func (c *clock) remove(l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.stopped = true
	if l.index < 0 {
		return
	}
	heap.Remove(&c.next, l.index)
	if len(c.next) == 0 { // otherwise the timer fires early, which is cheaper than setting it anew each time
		c.timer.Stop()
	}
}

func (c *clock) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.next)
}

// arm sets the timer to the first lease. c.mu is held.
func (c *clock) arm() {
	wait := max(time.Until(c.next[0].at), 0)
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, c.fire)
		return
	}
	c.timer.Reset(wait)
}

// fire lets all leases act whose time has come.
func (c *clock) fire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for now := time.Now(); len(c.next) > 0 && !c.next[0].at.After(now); {
		l := heap.Pop(&c.next).(*Lease)
		l.acting.Add(1)
		go l.act()
	}
	if len(c.next) > 0 {
		c.arm()
	}
}

// leaseHeap has the lease that is to act first at its front.
type leaseHeap []*Lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *leaseHeap) Push(x any) {
	l := x.(*Lease)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *leaseHeap) Pop() any {
	last := len(*h) - 1
	l := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	l.index = -1
	return l
}

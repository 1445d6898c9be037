package dispatcher

import (
	"container/heap"
	"sync"
	"time"
)

// renewals is the one clock of all leases that are kept: a timer, and the keepers in the
// order in which they are next to act. A lease that is settled before its half costs an
// entry here and nothing else; only a keeper that acts has a goroutine, while it does.
// The zero value is empty; safe for concurrent use.
type renewals struct {
	mu    sync.Mutex
	next  keeperHeap
	timer *time.Timer
}

// add makes k act at that time, unless it was stopped. A keeper is in here once at most.
func (r *renewals) add(k *keeper, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.stopped {
		return
	}
	k.at = at
	heap.Push(&r.next, k)
	if r.next[0] == k {
		r.arm()
	}
}

// remove makes k act no more. What it is doing now goes on.
func (r *renewals) remove(k *keeper) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k.stopped = true
	if k.index < 0 {
		return
	}
	heap.Remove(&r.next, k.index)
	if len(r.next) == 0 { // otherwise the timer fires early, which is cheaper than setting it anew each time
		r.timer.Stop()
	}
}

// arm sets the timer to the first keeper. r.mu is held.
func (r *renewals) arm() {
	wait := max(time.Until(r.next[0].at), 0)
	if r.timer == nil {
		r.timer = time.AfterFunc(wait, r.fire)
		return
	}
	r.timer.Reset(wait)
}

// fire lets all keepers act whose time has come.
func (r *renewals) fire() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for now := time.Now(); len(r.next) > 0 && !r.next[0].at.After(now); {
		k := heap.Pop(&r.next).(*keeper)
		k.acting.Add(1)
		go k.act()
	}
	if len(r.next) > 0 {
		r.arm()
	}
}

// keeperHeap has the keeper that is to act first at its front.
type keeperHeap []*keeper

func (h keeperHeap) Len() int           { return len(h) }
func (h keeperHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h keeperHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *keeperHeap) Push(x any) {
	k := x.(*keeper)
	k.index = len(*h)
	*h = append(*h, k)
}

func (h *keeperHeap) Pop() any {
	last := len(*h) - 1
	k := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	k.index = -1
	return k
}

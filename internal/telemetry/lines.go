package telemetry

import (
	"io"
	"sync"
	"time"
)

const (
	// linesWait is the longest time that a line waits for others to be written with it, and
	// the most that the log of a process that dies at once lacks at its end.
	linesWait = 50 * time.Millisecond
	// linesRoom is how much waits for that at most, and linesMost where nobody reads what was written.
	linesRoom = 32 << 10
	linesMost = 1 << 20
	// linesPatience is how long it is waited for who reads.
	linesPatience = time.Second
)

// lines gathers what is logged, so that a line for each attempt is not a system call for each
// attempt. Whoever reads the log, from a pipe as under the Functions host, may stop to: then lines are
// dropped and counted, and nothing waits. Safe for concurrent use; each Write is whole lines.
type lines struct {
	to io.Writer
	// lost makes the line that tells how many were dropped; nil for none.
	lost func(n int) []byte

	mu      sync.Mutex
	held    []byte
	spare   []byte // of the writing before
	timer   *time.Timer
	direct  bool // nothing waits any more
	dropped int

	writing bool          // by a goroutine of its own, which ends when nothing is held
	stuck   bool          // nobody reads, and nobody waits for that
	current chan struct{} // closed when what is being written is written
	next    chan struct{} // closed when what is held is written; nil when nothing is
}

// Write never fails: nobody who logs could do anything about it.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	if len(l.held)+len(p) > linesMost {
		l.dropped++
		l.mu.Unlock()
		return len(p), nil
	}
	begins := len(l.held) == 0
	l.held = append(l.held, p...)
	if l.direct || len(l.held) >= linesRoom {
		l.mu.Unlock()
		l.Flush()
		return len(p), nil
	}
	switch {
	case begins && l.timer == nil:
		l.timer = time.AfterFunc(linesWait, l.Flush)
	case begins:
		l.timer.Reset(linesWait)
	}
	l.mu.Unlock()
	return len(p), nil
}

// Flush writes what waits. It returns when that is written, and when nobody reads it.
func (l *lines) Flush() {
	l.mu.Lock()
	written := l.begin()
	if l.timer != nil {
		l.timer.Stop()
	}
	stuck := l.stuck
	l.mu.Unlock()
	if written == nil || stuck {
		return
	}
	late := time.NewTimer(linesPatience)
	defer late.Stop()
	select {
	case <-written:
	case <-late.C:
		l.mu.Lock()
		l.stuck = l.writing
		l.mu.Unlock()
	}
}

// begin has what is held written, and returns what is closed then. l.mu is held.
func (l *lines) begin() (written <-chan struct{}) {
	switch {
	case len(l.held) == 0 && !l.writing:
		return nil
	case len(l.held) == 0:
		return l.current
	case l.next == nil:
		l.next = make(chan struct{})
	}
	if written = l.next; !l.writing {
		l.writing = true
		go l.write()
	}
	return written
}

// write writes until nothing is held.
func (l *lines) write() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.held) > 0 {
		text := l.held
		l.current, l.next = l.next, nil
		if l.current == nil {
			l.current = make(chan struct{})
		}
		l.held = l.spare[:0]
		l.mu.Unlock()
		_, _ = l.to.Write(text)
		l.mu.Lock()
		l.spare, l.stuck = text, false
		if l.dropped > 0 && l.lost != nil {
			l.held = append(l.held, l.lost(l.dropped)...)
			l.dropped = 0
		}
		close(l.current)
	}
	l.writing = false
}

// Direct writes what waits, and from now on each line when it comes.
func (l *lines) Direct() {
	l.mu.Lock()
	l.direct = true
	l.mu.Unlock()
	l.Flush()
}

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
	// linesRoom is how much waits at most.
	linesRoom = 32 << 10
)

// lines gathers what is logged, so that a line for each attempt is not a system call for each
// attempt. Safe for concurrent use; each Write is whole lines.
type lines struct {
	mu     sync.Mutex
	to     io.Writer
	held   []byte
	timer  *time.Timer
	direct bool // nothing waits any more
}

// Write never fails: nobody who logs could do anything about it.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begins := len(l.held) == 0
	l.held = append(l.held, p...)
	switch {
	case l.direct || len(l.held) >= linesRoom:
		l.flush()
	case begins && l.timer == nil:
		l.timer = time.AfterFunc(linesWait, l.Flush)
	case begins:
		l.timer.Reset(linesWait)
	}
	return len(p), nil
}

// Flush writes what waits.
func (l *lines) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
}

func (l *lines) flush() {
	if len(l.held) > 0 {
		_, _ = l.to.Write(l.held)
		l.held = l.held[:0]
	}
	if l.timer != nil {
		l.timer.Stop()
	}
}

// Direct writes what waits, and from now on each line when it comes.
func (l *lines) Direct() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.direct = true
	l.flush()
}

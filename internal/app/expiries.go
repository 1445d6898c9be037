package app

import (
	"log/slog"
	"sync"

	"github.com/pushlease/pushlease/dispatcher"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/tables"
)

// expiries tells of messages that an embedded file ended because their life was over. A file may do so
// before there is anybody to count them, so that they wait until then. Safe for concurrent use.
type expiries struct {
	log *slog.Logger

	mu      sync.Mutex
	count   func(sqlite.Expired) // nil until start
	waiting []sqlite.Expired
}

func (x *expiries) ended(e sqlite.Expired) {
	x.log.Warn("the life of messages has ended: what a webhook was still due is a dead letter with the reason Expired", "queue", e.Queue, "messages", e.Messages, "dead_letters", len(e.Letters))
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.count == nil {
		x.waiting = append(x.waiting, e)
		return
	}
	x.count(e)
}

// start counts what has ended so far, and from now on: in metrics and in the history, and its dead
// letters are told like others, to follow too.
func (x *expiries) start(d *dispatcher.Dispatcher, told *events, follow func(tables.DeadLetter)) {
	count := func(e sqlite.Expired) {
		d.Expired(e.Queue, e.Messages, e.DeadLettered, e.Letters)
		for i := range e.Letters {
			told.deadLetter(e.Letters[i])
			follow(e.Letters[i])
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.waiting {
		count(x.waiting[i])
	}
	x.waiting, x.count = nil, count
}

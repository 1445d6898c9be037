package publish

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

const (
	// The message is stored when its record is written, and the record is a convenience: a publish
	// waits for it for recordWait, so that whoever asks next finds it as a rule, and not while storage
	// is slow (C68). It is given up after recordTimeout.
	recordWait    = 200 * time.Millisecond
	recordTimeout = 2 * time.Second
	// maxRecording bounds the records that are being written: while storage is slow each takes
	// up to recordTimeout, and publishing goes on.
	maxRecording = 2000
)

// errTooManyRecords: as many records as may be are being written, or none may begin any more.
var errTooManyRecords = errors.New("storage is too slow: too many records wait for it already")

var errPanicked = errors.New("there was a panic")

// recording are the records that are being written, beside the answers to their publishes.
type recording struct {
	mu      sync.Mutex
	n       int
	flushed bool
	all     sync.WaitGroup
}

// begin reports whether one more may be written; end must follow then.
func (r *recording) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.flushed || r.n == maxRecording {
		return false
	}
	r.n++
	r.all.Add(1)
	return true
}

func (r *recording) end() {
	r.mu.Lock()
	r.n--
	r.mu.Unlock()
	r.all.Done()
}

// flush waits for all that have begun. No others begin.
func (r *recording) flush() {
	r.mu.Lock()
	r.flushed = true
	r.mu.Unlock()
	r.all.Wait()
}

// recordPublished records the message for its timeline, where that was not done with the
// send. The message is in the queue whatever happens here, and may have been received:
// its record never replaces what the dispatcher has found out meanwhile.
func (a *Publisher) recordPublished(r *http.Request, p publication, sent queue.Sent) {
	if a.RecordedSends != nil {
		return
	}
	d := publishedAs(newPublished(p, a.Encoding(p.queue)), p, sent)
	requestID := web.NoteOf(r).ID // the request may have ended before the record
	ctx := context.WithoutCancel(r.Context())
	if !a.recording.begin() {
		a.notRecorded(ctx, &d, requestID, errTooManyRecords)
		return
	}
	recorded := make(chan struct{})
	go func() {
		defer a.recording.end()
		defer close(recorded)
		if err := a.record(ctx, &d); err != nil {
			a.notRecorded(ctx, &d, requestID, err)
		}
	}()
	late := time.NewTimer(recordWait)
	defer late.Stop()
	select {
	case <-recorded:
	case <-late.C:
	}
}

// record writes a record in bounded time. A panic ends it as an error does: no request is there to
// catch it.
func (a *Publisher) record(ctx context.Context, d *tables.Delivery) (err error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	defer func() {
		if v := recover(); v != nil {
			a.Logger.ErrorContext(ctx, "panic while recording a publish", "panic", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
			err = errPanicked
		}
	}()
	return a.Deliveries.Record(ctx, tables.Record{Deliveries: []tables.Delivery{*d}})
}

func (a *Publisher) notRecorded(ctx context.Context, d *tables.Delivery, requestID string, err error) {
	a.unrecorded.Add(ctx, 1)
	a.Logger.WarnContext(ctx, "publish not recorded", "message", d.MessageID, "queue", d.Queue, "request_id", requestID, "error", err)
}

package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
)

const (
	// streamQuiet is the longest time between two writes: who follows knows by it that the connection lives.
	streamQuiet = 15 * time.Second
	// streamWrite bounds one write to who does not read.
	streamWrite = 30 * time.Second
	// streamLife is how long a stream is open. Who comes back for more is asked for its key again.
	streamLife = time.Hour
	// streamPause is the shortest time between two writes, streamBatch the most events that are looked at for
	// one, and streamEach the time for each event that was sent: so 1,000 a second are sent to one caller at most,
	// and what somebody watches costs the deliveries next to nothing.
	streamPause = 50 * time.Millisecond
	streamBatch = 512
	streamEach  = time.Millisecond
)

// streamFilter says which events somebody wants; nothing stands for all.
type streamFilter struct {
	kinds          []streamKind
	queue, webhook string
}

func readStreamFilter(q *web.Query) streamFilter {
	f := streamFilter{queue: q.Queue(), webhook: q.Text("webhook")}
	if text := q.Values.Get("type"); text != "" {
		for kind := range strings.SplitSeq(text, ",") {
			if !slices.Contains(streamKinds, streamKind(kind)) {
				q.Fail("type", "has a type that there is not", "use one or several of these, separated by commas: attempt, dead_letter, webhook, depth, job")
				break
			}
			f.kinds = append(f.kinds, streamKind(kind))
		}
	}
	return f
}

// wants reports whether events of a kind may be wanted.
func (f streamFilter) wants(kind streamKind) bool {
	return len(f.kinds) == 0 || slices.Contains(f.kinds, kind)
}

func (f streamFilter) takes(e streamEvent) bool {
	return f.wants(e.kind) && (f.queue == "" || f.queue == e.queue) && (f.webhook == "" || f.webhook == e.webhook)
}

// follow sends events as they happen, until the caller goes, its time is over, or the process stops.
func (a *API) follow(w http.ResponseWriter, r *http.Request) error {
	q := web.ReadQuery(r, "queue", "webhook", "type")
	filter := readStreamFilter(q)
	if err := q.Err(); err != nil {
		return err
	}
	if a.Hosted {
		return web.NewProblem(web.NotHere, "The Functions host passes an answer on when it has ended, and a stream does not end. Ask GET /api/v1/attempts and GET /api/v1/dead-letters every few seconds.")
	}
	next, resumed := a.stream.from(r.Header.Get("Last-Event-ID"))
	leave := a.stream.join()
	if leave == nil {
		return web.NewProblem(web.TooManyFollowers, fmt.Sprintf("At most %d callers follow the stream of one process at a time, and none while it stops. Close another one, or ask GET /api/v1/attempts.", maxFollowers))
	}
	defer leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it back
	if r.Method == http.MethodHead {
		return nil
	}
	f := &follower{api: a, filter: filter, next: next, to: w}
	f.run(r.Context(), resumed)
	return nil
}

// follower is one caller who follows.
type follower struct {
	api    *API
	filter streamFilter
	next   uint64 // number of the next event
	to     http.ResponseWriter
	text   bytes.Buffer // to be written
	wrote  time.Time
}

// run sends events until the caller goes or does not read, its time is over, or the process stops.
func (f *follower) run(ctx context.Context, resumed bool) {
	ctx, cancel := context.WithTimeout(ctx, streamLife)
	defer cancel()
	f.text.WriteString("retry: 2000\n")
	f.add("hello", map[string]string{"instance": f.api.Instance, "version": f.api.Version})
	if !resumed {
		f.add("gap", gapTold{Text: "What happened between is not known here: another process had sent the events up to there."})
	}
	for {
		sent, wake := f.take()
		if f.text.Len() == 0 && time.Since(f.wrote) >= streamQuiet {
			f.text.WriteString(": nothing new\nid: " + f.api.stream.mark(f.next) + "\n\n")
		}
		if f.send() != nil || !f.wait(ctx, wake, max(streamPause, time.Duration(sent)*streamEach)) {
			return
		}
	}
}

// gapTold says that events are missing.
type gapTold struct {
	// Missed counts them, those included that were not asked for; 0 where nobody knows.
	Missed uint64 `json:"missed"`
	Text   string `json:"text"`
}

// take takes the next events, of which so many are sent. wake is nil where there may be more at once.
func (f *follower) take() (sent int, wake <-chan struct{}) {
	events, missed, wake := f.api.stream.since(f.next, streamBatch)
	if missed > 0 {
		f.next += missed
		f.add("gap", gapTold{missed, "There were more events than are kept, or than are sent in a second: the oldest are missing."})
	}
	for _, e := range events {
		f.next++
		if f.filter.takes(e) {
			f.add(string(e.kind), e.data)
			sent++
		}
	}
	return sent, wake
}

// add writes an event for send.
func (f *follower) add(kind string, data any) {
	f.text.WriteString("id: " + f.api.stream.mark(f.next) + "\nevent: " + kind + "\ndata: ")
	if err := json.NewEncoder(&f.text).Encode(data); err != nil { // ends with a line break
		f.api.Logger.Error("an event of the stream can't be written", "type", kind, "error", err)
		f.text.WriteByte('\n')
	}
	f.text.WriteByte('\n')
}

// send writes what was added.
func (f *follower) send() error {
	if f.text.Len() == 0 {
		return nil
	}
	if err := patience(f.to, streamWrite); err != nil {
		return err
	}
	if _, err := f.to.Write(f.text.Bytes()); err != nil {
		return err
	}
	f.text.Reset()
	f.wrote = time.Now()
	return http.NewResponseController(f.to).Flush()
}

// wait waits for the pause and the next event, or until something is to be said all the same; false where the stream ends.
func (f *follower) wait(ctx context.Context, wake <-chan struct{}, pause time.Duration) bool {
	if f.filter.wants(streamDepth) {
		f.api.depths.ask()
	}
	paused := time.NewTimer(pause)
	defer paused.Stop()
	select {
	case <-ctx.Done():
	case <-f.api.stream.end:
	case <-paused.C:
	}
	quiet := time.NewTimer(time.Until(f.wrote.Add(streamQuiet)))
	defer quiet.Stop()
	if wake != nil {
		select {
		case <-ctx.Done():
		case <-f.api.stream.end:
		case <-quiet.C:
		case <-wake:
		}
	}
	select {
	case <-f.api.stream.end:
		return false
	default:
		return ctx.Err() == nil
	}
}

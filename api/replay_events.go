package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook/content"
)

// eventOf names what a dead letter's message is told apart by besides its id, for its webhook,
// as the dispatcher does for messages: its event on a queue that tells messages apart by these,
// or the key that it was published with; empty for none. Another body is not the same event.
func (a *API) eventOf(d tables.DeadLetter) string {
	body, err := queue.Decode(a.setting(d), d.Text)
	if err != nil || body.Replay != nil {
		return ""
	}
	key := body.IdempotencyKey
	if a.ByEvent(d.Queue) {
		contentType := body.ContentType
		if contentType == "" {
			contentType = queue.DefaultContentType(body.Bytes)
		}
		if c := content.Read(body.Bytes, contentType); c.Event != nil {
			key = c.Event.Key()
		}
	}
	if key == "" {
		return ""
	}
	sum := sha256.Sum256(body.Bytes)
	return tables.ClaimKey(d.Queue, d.WebhookID, string(sum[:]), key)
}

// maxSentEvents is how many events later at least a job still knows that it has sent one, and half
// of what it remembers: a job of millions would otherwise end the process. It is some 40 MB.
const maxSentEvents = 500_000

// eventHash stands for an event.
type eventHash [16]byte

// sentEvents are the events of which a job has sent a copy, the last of them, each with the dead letter that
// was sent. Safe for concurrent use.
type sentEvents struct {
	mu            sync.Mutex
	lately, older map[eventHash]eventHash
	bound         int // of each of both; zero means maxSentEvents
}

// eventTurn is the turn of one dead letter.
type eventTurn struct {
	of    *sentEvents
	id    string
	event eventHash
	noted bool
}

func hashOf(text string) eventHash {
	sum := sha256.Sum256([]byte(text))
	return eventHash(sum[:len(eventHash{})])
}

// first notes that the dead letter is sent for its event, and reports whether no other was.
func (t *eventTurn) first(event string) bool {
	if event == "" {
		return true
	}
	hash, by := hashOf(event), hashOf(t.id)
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	for _, sent := range [...]map[eventHash]eventHash{t.of.lately, t.of.older} {
		if other, there := sent[hash]; there { // asked again, or by a process that died, which may have sent it: the note stays
			return other == by
		}
	}
	t.event, t.noted = hash, true
	t.of.note(hash, by)
	return true
}

// note remembers an event, for which the oldest half is forgotten where there are too many. The lock is held.
func (s *sentEvents) note(hash, by eventHash) {
	if s.lately == nil || len(s.lately) >= cmp.Or(s.bound, maxSentEvents) {
		s.lately, s.older = map[eventHash]eventHash{}, s.lately
	}
	s.lately[hash] = by
}

// backAs names the dead letter as which the replay of one comes back.
func backAs(d tables.DeadLetter, webhookID string, generation int) eventHash {
	return hashOf(tables.ClaimKey(d.Queue, d.MessageID, webhookID, strconv.Itoa(generation)))
}

// noteSent remembers what the last of so many replays of d, asked for at that time, comes back as. What is sent later than clocks
// can be apart comes back too late for the job's list.
func (j *replayJob) noteSent(d tables.DeadLetter, replays int, at time.Time) {
	if at.Sub(j.startedAt) > 3*tables.ClocksApart {
		return
	}
	j.sentAs.mu.Lock()
	defer j.sentAs.mu.Unlock()
	j.sentAs.note(backAs(d, d.WebhookID, d.Generation+replays), eventHash{})
}

// isItsOwn reports whether a dead letter has come back from a replay of the job, maybe from one for all webhooks.
func (j *replayJob) isItsOwn(d tables.DeadLetter) bool {
	if d.Generation == 0 {
		return false
	}
	j.sentAs.mu.Lock()
	defer j.sentAs.mu.Unlock()
	return j.sentAs.has(backAs(d, d.WebhookID, d.Generation)) || j.sentAs.has(backAs(d, "", d.Generation))
}

// has reports whether an event is remembered. The lock is held.
func (s *sentEvents) has(hash eventHash) bool {
	_, lately := s.lately[hash]
	_, older := s.older[hash]
	return lately || older
}

// forget takes the note back: the dead letter was not sent.
func (t *eventTurn) forget() {
	if !t.noted {
		return
	}
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	delete(t.of.lately, t.event)
	delete(t.of.older, t.event)
}

// learn finds out what the process sent that began the job: of the events in that no other copy is sent, and it
// counts for the limit, whatever that process could store of it. What still waits was only reserved, as far as is
// known: it has its own turn, and no other copy is sent instead.
func (j *replayJob) learn(ctx context.Context) error {
	filter, page, sent, last := j.bulk.filter, tables.Page{Limit: replayPage}, 0, time.Time{}
	filter.Status = ""
	v := j.view()
	for {
		rows, next, err := j.list(ctx, filter, page)
		if err != nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(d tables.DeadLetter) bool { return d.ReplayedAt.Before(v.firstReplay()) })
		if err := j.learnEvents(ctx, rows); err != nil {
			return err
		}
		for _, d := range rows {
			if d.Status != tables.Waiting {
				sent++
			}
			j.noteSent(d, d.Replays, d.ReplayedAt)
			if d.ReplayedAt.After(last) {
				last = d.ReplayedAt
			}
		}
		if next == "" {
			break
		}
		page.After = next
	}
	// Others may have replayed what is beyond all that it can have sent since it stored how far it had come.
	most := v.Replayed + int(math.Ceil(j.bulk.rate*jobLeft.Seconds())) + replaysAtOnce
	j.note(func() {
		j.replayed = max(j.replayed, min(sent, most))
		j.matched, j.lastLearned = j.replayed, last
	})
	return nil
}

// learnEvents reads what dead letters that were sent carry, as many at a time as a job sends. One that is gone by now
// was delivered, or its operator ended it.
func (j *replayJob) learnEvents(ctx context.Context, rows []tables.DeadLetter) error {
	errs, slots := make([]error, len(rows)), make(chan struct{}, replaysAtOnce)
	var reading sync.WaitGroup
	for i, d := range rows {
		if !acquire(ctx, slots) {
			break
		}
		reading.Go(func() {
			defer func() { <-slots }()
			errs[i] = j.guard(func() error { return j.learnEvent(ctx, d.ID) })
		})
	}
	reading.Wait()
	return errors.Join(append(errs, context.Cause(ctx))...)
}

func (j *replayJob) learnEvent(ctx context.Context, id string) error {
	var row tables.DeadLetter
	err := patiently(ctx, func(ctx context.Context) (err error) {
		row, err = j.api.DeadLetters.GetDeadLetter(ctx, id)
		return err
	})
	switch {
	case err == nil:
		(&eventTurn{of: &j.events, id: id}).first(j.api.eventOf(row))
	case !errors.Is(err, tables.ErrNotFound):
		return web.StorageFault("read a dead letter that was sent", err)
	}
	return nil
}

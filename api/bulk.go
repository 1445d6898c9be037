package api

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// Bounds of what is done to many dead letters.
const (
	defaultRate = 10.0
	minRate     = 0.01
	maxRate     = 1000.0
	// maxGenerations is how often a message may have been replayed before replays by
	// filter leave it out: it comes back each time, and nobody may have noticed.
	maxGenerations = 10
	// maxCount and countCalls bound a dry run: beyond either it answers a lower bound.
	maxCount   = 10_000
	countCalls = 40
)

// bulk is a request about all dead letters that a filter matches.
type bulk struct {
	filter tables.DeadLetterFilter
	all    bool
	dryRun bool
	// executes is whether the request says itself that it is no dry run.
	executes bool
	force    bool
	// rate is in messages per second.
	rate float64
	// limit is the most to replay or purge; zero means no limit.
	limit  int
	cursor tables.Cursor
	// newest replays the newest messages first.
	newest bool
}

// replayOrder says which messages are replayed first.
type replayOrder string

const (
	oldestFirst replayOrder = "oldest"
	newestFirst replayOrder = "newest"
)

func (b bulk) order() replayOrder {
	if b.newest {
		return newestFirst
	}
	return oldestFirst
}

// The fields of the requests. all stands for no filter at all.
var (
	filterFields = []string{"queue", "webhook", "message", "reason", "answer", "cause", "status", "from", "until", "all"}
	replayFields = append(slices.Clone(filterFields), "dry_run", "force", "rate", "limit", "order")
	purgeFields  = append(slices.Clone(filterFields), "dry_run", "limit", "cursor")
)

// readBulk reads a request that may have these fields.
func readBulk(w http.ResponseWriter, r *http.Request, known []string) (bulk, error) {
	if err := web.ReadQuery(r).Err(); err != nil {
		return bulk{}, err
	}
	in, err := web.ReadFields(w, r, true)
	if err != nil {
		return bulk{}, err
	}
	if err := web.OnlyFields(in, known...); err != nil {
		return bulk{}, err
	}
	b := &bulkReader{in: in, bulk: bulk{rate: defaultRate}}
	b.readFilter()
	b.readHow()
	b.readScope()
	if len(b.problems) > 0 {
		return bulk{}, web.Invalid(b.problems...)
	}
	return b.bulk, nil
}

// bulkReader gathers what is wrong with a request.
type bulkReader struct {
	bulk
	in       web.Fields
	problems []web.FieldError
}

func (b *bulkReader) fail(field, what, cure string) {
	b.problems = append(b.problems, web.Wrong(field, what, cure))
}

// read reads a field that is there, and reports whether it did. null is refused: a
// client that writes null for what it did not set would send, or delete, more than it
// was told to.
func (b *bulkReader) read(field string, v any, want string) bool {
	raw, ok := b.in[field]
	if !ok {
		return false
	}
	if web.IsNull(raw) {
		b.fail(field, "is null", want+", or leave it out")
		return false
	}
	if problem := web.Decode(field, raw, v, want); problem != nil {
		b.problems = append(b.problems, *problem)
		return false
	}
	return true
}

func (b *bulkReader) readFilter() {
	f := &b.filter
	if b.read("queue", &f.Queue, `give a queue's name, such as "orders"`) {
		if err := queue.ValidateName(f.Queue); err != nil {
			b.problems = append(b.problems, web.BadQueue(err))
		}
	}
	for name, into := range map[string]*string{"webhook": &f.WebhookID, "message": &f.MessageID} {
		const cure = "give one id, copied from an answer of this API"
		if b.read(name, into, cure) && (*into == "" || len(*into) > web.MaxIDBytes) {
			b.fail(name, "is not an id", cure)
		}
	}
	if cure := "give a status or an error class, such as 503 or timeout"; b.read("answer", &f.Answer, cure) && (f.Answer == "" || len(f.Answer) > web.MaxIDBytes) {
		b.fail("answer", "is none", cure)
	}
	if cure := "copy it from GET /api/v1/dead-letters/summary?group_by=cause"; b.read("cause", &f.Cause, cure) && (f.Cause == "" || len(f.Cause) > maxCause) {
		b.fail("cause", "is none", cure)
	}
	readOneOf(b, "reason", &f.Reason, policy.Reasons())
	readOneOf(b, "status", &f.Status, []tables.DeadLetterStatus{tables.Waiting, tables.Replaying, tables.Replayed})
	var problems []web.FieldError
	f.From, f.Until, problems = web.ReadSpan(b.timeText("from"), b.timeText("until"))
	b.problems = append(b.problems, problems...)
}

func readOneOf[T ~string](b *bulkReader, name string, into *T, allowed []T) {
	cure := "use one of: "
	for i, v := range allowed {
		if i > 0 {
			cure += ", "
		}
		cure += string(v)
	}
	if b.read(name, into, cure) && !slices.Contains(allowed, *into) {
		b.fail(name, "is not a value that there is", cure)
	}
}

// timeText is the text of a time; empty where there is none.
func (b *bulkReader) timeText(name string) string {
	var text string
	if b.read(name, &text, web.TimeCure) && text == "" {
		b.fail(name, "is not a time", web.TimeCure)
	}
	return text
}

// readHow reads what is not part of the filter.
func (b *bulkReader) readHow() {
	b.read("all", &b.all, "write true or false")
	b.executes = b.read("dry_run", &b.dryRun, "write true or false") && !b.dryRun
	b.read("force", &b.force, "write true or false")
	if cure := fmt.Sprintf("give messages per second, from %v to %v", minRate, maxRate); b.read("rate", &b.rate, cure) && (b.rate < minRate || b.rate > maxRate) {
		b.fail("rate", "is out of range", cure)
	}
	if cure := "give a whole number from 1 on, or leave it out for no limit"; b.read("limit", &b.limit, cure) && b.limit < 1 {
		b.fail("limit", "is out of range", cure)
	}
	var order replayOrder
	readOneOf(b, "order", &order, []replayOrder{oldestFirst, newestFirst})
	b.newest = order == newestFirst
	if raw, ok := b.in["cursor"]; ok && !web.IsNull(raw) { // null is what the last page gave, and means the first one
		var cursor string
		if b.read("cursor", &cursor, web.BadCursor.Cure); len(cursor) > web.MaxCursorBytes {
			b.problems = append(b.problems, web.BadCursor)
		}
		b.cursor = tables.Cursor(cursor)
	}
}

// readScope wants a filter, so that nobody acts on everything by a slip.
func (b *bulkReader) readScope() {
	f := b.filter
	narrow := f.Queue != "" || f.WebhookID != "" || f.MessageID != "" || f.Reason != "" || f.Answer != "" || f.Cause != "" || !f.From.IsZero() || !f.Until.IsZero() ||
		f.Status == tables.Replayed
	switch {
	case narrow && b.all:
		b.fail("all", "contradicts the filter", "leave all out, or leave the filter out")
	case !narrow && !b.all && len(b.problems) == 0:
		b.fail("filter", "is missing, so this would be about every dead letter",
			`give at least one of queue, webhook, message, reason, answer, cause, from and until, or "all": true`)
	}
}

// filterView is a filter as it was asked for.
type filterView struct {
	Queue   string                  `json:"queue,omitempty"`
	Webhook string                  `json:"webhook,omitempty"`
	Message string                  `json:"message,omitempty"`
	Reason  policy.Reason           `json:"reason,omitempty"`
	Answer  string                  `json:"answer,omitempty"`
	Cause   string                  `json:"cause,omitempty"`
	Status  tables.DeadLetterStatus `json:"status,omitempty"`
	From    time.Time               `json:"from,omitzero"`
	Until   time.Time               `json:"until,omitzero"`
	All     bool                    `json:"all,omitempty"`
}

func (b bulk) view() filterView {
	f := b.filter
	return filterView{f.Queue, f.WebhookID, f.MessageID, f.Reason, f.Answer, f.Cause, f.Status, f.From, f.Until, b.all}
}

// counted says what a request would be about; matched is a lower bound unless exact.
type counted struct {
	matched, skipped int
	exact            bool
	until            time.Time
	because          map[string]int
}

// count counts what the filter matches until now, and what skip would leave out and why.
func (a *API) count(r *http.Request, b bulk, skip func(tables.DeadLetter) string) (counted, error) {
	c := counted{because: map[string]int{}, until: b.filter.Until}
	if now := time.Now().UTC().Truncate(time.Millisecond).Add(time.Millisecond); c.until.IsZero() || c.until.After(now) {
		c.until = now
	}
	b.filter.Until = c.until
	var err error
	c.matched, c.exact, err = tables.CountDeadLetters(r.Context(), a.DeadLetters, b.filter, maxCount, countCalls, func(d tables.DeadLetter) {
		if why := skip(d); why != "" {
			c.skipped++
			c.because[why]++
		}
	})
	if err != nil {
		return c, web.StorageFault("count the dead letters", err)
	}
	return c, nil
}

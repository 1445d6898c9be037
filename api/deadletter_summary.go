package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

const (
	// summaryTime bounds how long one request reads dead letters, and summaryMost how many.
	summaryTime = 10 * time.Second
	summaryMost = 100_000
	// summaryGroups bounds the groups that are told; the smallest are summed up in others.
	summaryGroups = 100
	// maxCause bounds the cause that can be asked for, in bytes.
	maxCause = 1024
)

// groupKeys are what dead letters may be grouped by, and the key of one.
var groupKeys = map[string]func(tables.DeadLetter) string{
	"queue":   func(d tables.DeadLetter) string { return d.Queue },
	"webhook": func(d tables.DeadLetter) string { return d.WebhookID },
	"reason":  func(d tables.DeadLetter) string { return string(d.Reason) },
	"answer":  tables.DeadLetter.Answer,
	"cause":   tables.DeadLetter.Cause,
}

// summaryView counts dead letters by what they have in common.
type summaryView struct {
	GroupBy string `json:"group_by"`
	Total   int    `json:"total"`
	// Exact is false where there are more than were read.
	Exact  bool           `json:"exact"`
	Groups []summaryGroup `json:"groups"`
	// Others is how many are in groups that are not shown.
	Others int `json:"others"`
}

// summaryGroup are the dead letters with one key, the largest groups first.
type summaryGroup struct {
	Key   string `json:"key"`
	Count int    `json:"count"`
	// Oldest and Newest are when the first and the last of them was dead-lettered.
	Oldest time.Time `json:"oldest"`
	Newest time.Time `json:"newest"`
	// Example is the id of the newest.
	Example string `json:"example"`
}

// summarizeDeadLetters groups what a filter matches: where to begin when there are many.
func (a *API) summarizeDeadLetters(w http.ResponseWriter, r *http.Request) error {
	q := web.ReadQuery(r, "group_by", "queue", "webhook", "message", "reason", "answer", "cause", "status", "from", "until")
	filter := deadLetterFilter(q)
	by := cmp.Or(web.OneOf(q, "group_by", []string{"queue", "webhook", "reason", "answer", "cause"}), "reason")
	if err := q.Err(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), summaryTime)
	defer cancel()
	groups := map[string]*summaryGroup{}
	total, exact, err := tables.CountDeadLetters(ctx, a.DeadLetters, filter, summaryMost, summaryMost, func(d tables.DeadLetter) {
		key := groupKeys[by](d)
		g := groups[key]
		if g == nil { // the newest come first
			g = &summaryGroup{Key: key, Newest: web.UTC(d.DeadLetteredAt), Example: d.ID}
			groups[key] = g
		}
		g.Count, g.Oldest = g.Count+1, web.UTC(d.DeadLetteredAt)
	})
	if err != nil && (total == 0 || r.Context().Err() != nil) { // what was read in the time is told
		return web.ListFault("list the dead letters", err)
	}
	view := summaryView{GroupBy: by, Total: total, Exact: exact, Groups: []summaryGroup{}}
	for _, g := range groups {
		view.Groups = append(view.Groups, *g)
	}
	slices.SortFunc(view.Groups, func(a, b summaryGroup) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key))
	})
	for _, g := range view.Groups[min(len(view.Groups), summaryGroups):] {
		view.Others += g.Count
	}
	view.Groups = view.Groups[:min(len(view.Groups), summaryGroups)]
	return web.WriteJSON(w, http.StatusOK, view)
}

// deadLetterFilter reads what narrows a list of dead letters.
func deadLetterFilter(q *web.Query) tables.DeadLetterFilter {
	f := tables.DeadLetterFilter{
		Queue:     q.Queue(),
		WebhookID: q.Text("webhook"),
		MessageID: q.Text("message"),
		Reason:    web.OneOf(q, "reason", policy.Reasons()),
		Answer:    q.Text("answer"),
		Cause:     q.Short("cause", maxCause),
		Status:    web.OneOf(q, "status", []tables.DeadLetterStatus{tables.Waiting, tables.Replaying, tables.Replayed}),
	}
	f.From, f.Until = q.Span()
	return f
}

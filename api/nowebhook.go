package api

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// tellThatNobodyTakes corrects what is next of a message on a queue that has no webhook:
// nothing receives it. A misspelt name of a queue is the usual cause.
func (a *API) tellThatNobodyTakes(ctx context.Context, name string, n *nextView, expires time.Time) {
	if n.State != tables.Published || !expires.IsZero() && time.Since(expires) > lifeMargin { // it is gone, and that is told
		return
	}
	registered, err := a.webhooksByQueue(ctx)
	if err != nil || len(registered[name]) > 0 {
		return // the general text stays true
	}
	n.Text = "On the queue, and nothing receives it: the queue " + name + " has no webhook. It is received once one is registered (POST /api/v1/webhooks)"
	if !expires.IsZero() {
		n.Text += ", and is gone at " + stamp(expires) + " otherwise"
	}
	n.Text += "."
	if like := nearest(name, slices.Sorted(maps.Keys(registered))); like != "" {
		n.Text += " Did you mean the queue " + like + "?"
	}
}

// nearest is the name that differs from name least, by two letters at most; empty without one.
func nearest(name string, names []string) string {
	best, least := "", 3
	for _, other := range names {
		if n := edits(name, other); n < least {
			best, least = other, n
		}
	}
	return best
}

// edits is how many letters must be put in, taken out or replaced to make b of a.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := corner
			if a[i] != b[j] {
				replaced++
			}
			corner = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

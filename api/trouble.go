package api

import (
	"strings"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/tables"
)

// finding is what a list is searched for.
type finding struct {
	contains string // in lower case
	trouble  bool
}

func readFinding(q *web.Query) finding {
	return finding{contains: strings.ToLower(q.Short("contains", web.MaxIDBytes)), trouble: q.Bool("trouble")}
}

// takes reports whether one of the names has the text in it, in whatever case.
func (f finding) takes(names ...string) bool {
	for _, name := range names {
		if strings.Contains(strings.ToLower(name), f.contains) {
			return true
		}
	}
	return false
}

// isTroubled reports whether somebody should look at a webhook: it can't be sent to as it should, or refuses half of what it lately got.
func (a *API) isTroubled(reg tables.Registration) bool {
	if !reg.Enabled {
		return reg.DisabledReason != "" && reg.DisabledReason != "operator"
	}
	s, met := a.Dispatcher.Webhook(reg.ID)
	if !met {
		return false
	}
	if end := certificateEnd(reg); s.Why != "" || !end.IsZero() && time.Now().After(end) {
		return true
	}
	switch s.State {
	case status.NoToken, status.Failing, status.Probing, status.Paused, status.Limited:
		return true
	}
	return !s.Failing.FailingSince.IsZero() || s.RecentRefused > 0 && 2*s.RecentRefused >= s.RecentPosts
}

// isQueueTroubled reports whether somebody should look at a queue, as far as that is known without counting it. One that the dispatcher receives
// from without a webhook may hold messages for nobody.
func (a *API) isQueueTroubled(name string, webhooks int) bool {
	s, known := a.Dispatcher.Queue(name)
	if failing := s.LastError != "" && !s.LastErrorAt.Before(s.LastPollAt); failing || !s.GoneAt.IsZero() || !s.LeftAt.IsZero() || known && webhooks == 0 {
		return true
	}
	counted, fresh := a.backlog.get(name)
	return fresh && newBacklogView(counted, s).Level != "ok"
}

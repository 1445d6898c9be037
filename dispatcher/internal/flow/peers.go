package flow

import (
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

const (
	// sharedFor is for how long a row of health tells that another instance is limited by a webhook,
	// and sends to it. Those that know of each other write each sharedEvery. Of two that don't yet, and
	// write each healthEvery, at least one sees the other, since it is longer than half of that. It is
	// no longer, so that one that has stopped does not count.
	sharedFor = healthEvery/2 + 5*time.Second
	// restoredFor is how much older than the newest row others may be for a new process to
	// begin with them.
	restoredFor = 3 * healthEvery
)

// peers reads what other instances have written. A rate that one may use and does not use takes
// nothing of a limit; what it sends is known when it has written its row again.
type peers struct {
	self string // the instance that reads
	sent map[rowKey]sent
}

type rowKey struct{ webhook, instance string }

// sent is how many POSTs an instance has sent to a webhook by its last row, how many of these failed, and what
// that row and the one before tell.
type sent struct {
	posts, failed int64
	started, at   time.Time
	tells         policy.Others
	// tookFrom begins the last time between two rows in which some POSTs were taken, and vainAt is when it was first told since then that all had failed, or that
	// its breaker is not closed.
	tookFrom, vainAt time.Time
}

// vain tells whether nothing of what it sends is taken, though others' POSTs were by a time between rows that began then.
func (s sent) vain(tookFrom time.Time) bool { return !s.vainAt.IsZero() && !tookFrom.Before(s.vainAt) }

// by is what was sent by the time of that row, which may be the same one again.
func (s sent) by(h tables.Health) sent {
	next := sent{
		posts: h.Delivered + h.Failed, failed: h.Failed, started: h.StartedAt, at: h.UpdatedAt,
		tells: policy.Others{Rate: h.Pace.Rate, Taken: h.Pace.Rate, Learned: h.Pace.Rate, Instances: 1, Noise: h.Pace.Noise},
	}
	if h.Breaker.Phase != policy.BreakerClosed {
		next.vainAt = h.UpdatedAt
	}
	length := h.UpdatedAt.Sub(s.at).Seconds()
	switch {
	case !s.started.Equal(h.StartedAt):
		return next
	case length <= 0:
		return s
	}
	o := &next.tells
	o.Posts, o.Failed = next.posts-s.posts, next.failed-s.failed
	o.Rate = min(h.Pace.Rate, float64(o.Posts+1)/length) // never none: it is limited
	o.Taken = min(o.Rate, float64(o.Posts-o.Failed+1)/length)
	next.tookFrom = s.tookFrom
	switch {
	case o.Posts > o.Failed:
		next.tookFrom, next.vainAt = s.at, time.Time{}
	case !s.vainAt.IsZero():
		next.vainAt = s.vainAt
	case o.Posts > 0:
		next.vainAt = h.UpdatedAt
	}
	return next
}

// learned is what the rows of others say, by webhook.
func (p *peers) learned(rows []tables.Health, now time.Time) map[string]policy.Others {
	all, seen := map[string]policy.Others{}, map[rowKey]sent{}
	for _, h := range rows {
		if h.Pace.Rate > 0 && now.Sub(h.UpdatedAt) < sharedFor {
			key := rowKey{h.WebhookID, h.Instance}
			seen[key] = p.sent[key].by(h)
		}
	}
	p.sent = seen
	took := tookFrom(seen)
	leaders := leaders(seen, took)
	for key, other := range seen {
		if key.instance == p.self {
			continue
		}
		if other.vain(took[key.webhook]) { // it has learned what holds for others no more
			other.tells.Taken, other.tells.Learned, other.tells.Instances = 0, 0, 0
		}
		all[key.webhook] = all[key.webhook].Plus(other.tells)
	}
	for webhook, others := range all {
		if leader := leaders[webhook]; leader != p.self {
			others.Leader, others.Learned = leader, seen[rowKey{webhook, leader}].tells.Learned
			all[webhook] = others
		}
	}
	return all
}

// tookFrom begins the last time between two rows of an instance in which POSTs were taken, by webhook.
func tookFrom(seen map[rowKey]sent) map[string]time.Time {
	took := map[string]time.Time{}
	for key, one := range seen {
		took[key.webhook] = later(took[key.webhook], one.tookFrom)
	}
	return took
}

// leaders are the instances that are taken most often, or the first of these by name, by webhook. One of which nothing is taken where others are is none.
func leaders(seen map[rowKey]sent, took map[string]time.Time) map[string]string {
	leaders := map[string]string{}
	for key, one := range seen {
		if one.vain(took[key.webhook]) {
			continue
		}
		leader, found := leaders[key.webhook]
		most := seen[rowKey{key.webhook, leader}].tells.Taken
		if taken := one.tells.Taken; !found || taken > most || taken == most && key.instance < leader {
			leaders[key.webhook] = key.instance
		}
	}
	return leaders
}

// restored is what a new process goes on with: what it had learned itself under this name, at its part of the rate of one that was sent more and is
// gone, or the mean of what those have that were there last. Of a webhook that has begun anew since, nothing is left.
func (fs *Flows) restored(rows []tables.Health, since time.Time) (st policy.PaceState) {
	var newest time.Time
	for _, h := range rows {
		if h.UpdatedAt.After(newest) {
			newest = h.UpdatedAt
		}
	}
	n, now, left, those := 0.0, time.Now(), 0.0, 0.0
	for _, h := range rows {
		if newest.Sub(h.UpdatedAt) < restoredFor && now.Sub(h.UpdatedAt) >= sharedFor && h.Pace.Since.After(since) {
			left, those = max(left, h.Pace.Rate), those+1
		}
	}
	for _, h := range rows {
		recent := newest.Sub(h.UpdatedAt) < restoredFor
		switch {
		case recent && h.Instance == fs.o.Instance:
			if h.Pace.Rate > 0 && h.Pace.Rate < left/2 { // it followed, as the others may have that start again now
				h.Pace.Rate = max(h.Pace.Rate, left/those)
			}
			return h.Pace
		case !recent || !h.Pace.Since.After(since):
			continue
		}
		n++
		st.Rate += (h.Pace.Rate - st.Rate) / n
		st.Refused, st.Noise = max(st.Refused, h.Pace.Refused), max(st.Noise, h.Pace.Noise)
		if st.Since.IsZero() || h.Pace.Since.Before(st.Since) {
			st.Since = h.Pace.Since
		}
	}
	return st
}

// tellRates tells limited webhooks what other instances have learned.
func (fs *Flows) tellRates(limited []*Flow, rows []tables.Health, now time.Time) {
	fs.mu.Lock()
	all := fs.peers.learned(rows, now)
	fs.mu.Unlock()
	for _, f := range limited {
		if f.share(all[f.id], now) {
			fs.held.release(f.id)
		}
	}
}

package flow

import (
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// restoredFor is how much older than the newest row others may be for a new process to
// begin with them.
const restoredFor = 3 * healthEvery

// peerRow is what other instances read in a row of health.
func peerRow(h tables.Health) policy.PeerRow {
	return policy.PeerRow{
		Instance: h.Instance, StartedAt: h.StartedAt, UpdatedAt: h.UpdatedAt, Posts: h.Delivered + h.Failed, Failed: h.Failed,
		Pace: h.Pace, Closed: h.Breaker.Phase == policy.BreakerClosed,
	}
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
		if newest.Sub(h.UpdatedAt) < restoredFor && now.Sub(h.UpdatedAt) >= policy.PeerFirst && h.Pace.Since.After(since) {
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
		st.Refused, st.Noise, st.Window = max(st.Refused, h.Pace.Refused), max(st.Noise, h.Pace.Noise), max(st.Window, h.Pace.Window)
		if st.Since.IsZero() || h.Pace.Since.Before(st.Since) {
			st.Since = h.Pace.Since
		}
	}
	return st
}

// tellRates tells limited webhooks what other instances have learned.
func (fs *Flows) tellRates(limited []*Flow, rows []tables.Health, now time.Time) {
	byWebhook := map[string][]policy.PeerRow{}
	for _, h := range rows {
		byWebhook[h.WebhookID] = append(byWebhook[h.WebhookID], peerRow(h))
	}
	for _, f := range limited {
		if f.hear(byWebhook[f.id], now) {
			fs.held.release(f.id)
		}
	}
}

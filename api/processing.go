package api

import (
	"math"
	"time"

	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/internal/status"
	"github.com/pushlease/pushlease/policy"
)

// processView is how one process handles a queue's messages: part of the answer about
// one queue, not of the list.
type processView struct {
	// LeaseMode is auto or fixed.
	LeaseMode      string                `json:"lease_mode"`
	Recommendation policy.Recommendation `json:"recommendation"`
	Processing     processingView        `json:"processing"`
	// Utilisation is the share of Lease that each of Processing takes.
	Utilisation sharesView    `json:"utilisation"`
	Deletions   deletionsView `json:"deletions"`
}

type processingView struct {
	Samples int             `json:"samples"`
	P50     policy.Duration `json:"p50"`
	P95     policy.Duration `json:"p95"`
	P99     policy.Duration `json:"p99"`
}

type sharesView struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
}

type deletionsView struct {
	Total      int64 `json:"total"`
	Successful int64 `json:"successful"`
	Failed     int64 `json:"failed"`
	Unverified int64 `json:"unverified"`
	// SuccessRate is Successful over Total; null without any.
	SuccessRate  *float64              `json:"success_rate"`
	LastFailures []deletionFailureView `json:"last_failures"`
}

type deletionFailureView struct {
	MessageID string    `json:"message_id"`
	Error     string    `json:"error"`
	At        time.Time `json:"at"`
}

func newProcessView(s status.Queue) *processView {
	v := &processView{LeaseMode: "auto", Recommendation: s.Recommended}
	if s.LeaseFixed {
		v.LeaseMode = "fixed"
	}
	v.Recommendation.Base = shown(time.Duration(v.Recommendation.Base))
	v.Recommendation.Utilisation = rounded(v.Recommendation.Utilisation)
	p := s.Processing
	v.Processing = processingView{Samples: p.Samples, P50: shown(p.P50), P95: shown(p.P95), P99: shown(p.P99)}
	v.Utilisation = sharesView{P50: share(p.P50, s.Lease), P95: share(p.P95, s.Lease), P99: share(p.P99, s.Lease)}
	d := s.Deletions
	v.Deletions = deletionsView{Total: d.Total, Successful: d.Successful, Failed: d.Failed, Unverified: d.Unverified}
	if d.Total > 0 {
		rate := float64(d.Successful) / float64(d.Total)
		v.Deletions.SuccessRate = &rate
	}
	for _, f := range d.LastFailures {
		v.Deletions.LastFailures = append(v.Deletions.LastFailures, deletionFailureView{f.MessageID, f.Error, web.UTC(f.At)})
	}
	v.Deletions.LastFailures = web.OrEmpty(v.Deletions.LastFailures)
	return v
}

func shown(d time.Duration) policy.Duration { return policy.Duration(d.Round(time.Millisecond)) }

func share(took, lease time.Duration) float64 { return rounded(policy.Utilisation(took, lease)) }

// rounded keeps four decimals: more would be noise.
func rounded(f float64) float64 { return math.Round(f*1e4) / 1e4 }

package policy

import (
	"fmt"
	"math"
	"time"
)

// The lease follows the time that messages take.
const (
	// MinLease and MaxLease bound a recommended lease.
	MinLease = 30 * time.Second
	MaxLease = 7 * 24 * time.Hour
	// LeaseStep is what a recommended lease is a multiple of.
	LeaseStep = 30 * time.Second
	// LeaseBuffer is the share of the base that is added to it.
	LeaseBuffer = 0.75
	// UtilisationAtRisk is the share of a lease above which a processing time is
	// a warning; above UtilisationTooHigh the lease is lengthened by half.
	UtilisationAtRisk  = 0.8
	UtilisationTooHigh = 0.9
	// EnoughSamples is how many measurements replace an estimate.
	EnoughSamples = 20
)

// Estimate is how long an operator expects messages of a queue to take; zero where
// nothing is known.
type Estimate struct {
	Min, Average, Max time.Duration
	// UseMax takes Max as the base, not Average.
	UseMax bool
}

// Measured is how long recent messages took.
type Measured struct {
	// Samples is how many there were; Average is over all of them.
	Samples int
	Average time.Duration
	// Slow is the time that nearly all of them stay under, such as the 95th
	// percentile; zero when it is not known.
	Slow time.Duration
}

// Recommendation is how long a queue's lease should be, and why.
type Recommendation struct {
	Lease   Duration `json:"lease"`
	Base    Duration `json:"base"`
	Samples int      `json:"samples"`
	Buffer  float64  `json:"buffer"`
	// Utilisation is the share of Lease that a slow message takes; AtRisk is
	// whether that is above UtilisationAtRisk.
	Utilisation float64 `json:"utilisation"`
	AtRisk      bool    `json:"at_risk"`
	Reasoning   string  `json:"reasoning"`
}

// RecommendLease says how long a lease should be: the base plus LeaseBuffer,
// rounded up to LeaseStep, within [MinLease, MaxLease], and lengthened while slow
// messages take too much of it. The base is the measured average once there are
// EnoughSamples, or any samples where nothing was estimated; else the estimate.
func RecommendLease(e Estimate, m Measured) Recommendation {
	base, slow, source := leaseBase(e, m)
	rec := Recommendation{Base: Duration(base), Samples: max(m.Samples, 0), Buffer: LeaseBuffer}
	if base == 0 {
		rec.Lease = Duration(MinLease)
		rec.Reasoning = fmt.Sprintf("Nothing was measured or estimated, so the lease is the shortest one, %s.", MinLease)
		return rec
	}
	lease := roundLease(min(base, MaxLease) * 7 / 4) // plus LeaseBuffer; bounded before it is multiplied
	rec.Reasoning = fmt.Sprintf("%s is %s: with a buffer of %.0f %%, rounded up to a multiple of %s, that is %s",
		source, base.Round(time.Millisecond), LeaseBuffer*100, LeaseStep, lease)
	enough := lease
	for lengthened := LengthenLease(slow, enough); lengthened != enough; lengthened = LengthenLease(slow, enough) {
		enough = lengthened
	}
	if enough != lease {
		rec.Reasoning += fmt.Sprintf(", lengthened to %s because slow messages take %s", enough, slow.Round(time.Millisecond))
	}
	rec.Lease, rec.Utilisation = Duration(enough), Utilisation(slow, enough)
	rec.AtRisk = rec.Utilisation > UtilisationAtRisk
	if rec.AtRisk {
		rec.Reasoning += fmt.Sprintf("; slow messages take %.0f %% of it, which is a risk", rec.Utilisation*100)
	}
	rec.Reasoning += "."
	return rec
}

// Utilisation is the share of lease that processing takes; 0 without a lease.
func Utilisation(processing, lease time.Duration) float64 {
	if lease <= 0 {
		return 0
	}
	return float64(max(processing, 0)) / float64(lease)
}

// LengthenLease returns lease, or half as much again, rounded up to LeaseStep and
// within MaxLease, when processing takes more than UtilisationTooHigh of it.
func LengthenLease(processing, lease time.Duration) time.Duration {
	if Utilisation(processing, lease) <= UtilisationTooHigh || lease >= MaxLease {
		return lease
	}
	return roundLease(lease + lease/2)
}

func leaseBase(e Estimate, m Measured) (base, slow time.Duration, source string) {
	estimate, source := e.Average, "The estimated average"
	if e.UseMax && e.Max > 0 || estimate <= 0 {
		estimate, source = e.Max, "The estimated maximum"
	}
	if estimate <= 0 {
		estimate, source = e.Min, "The estimated minimum"
	}
	if m.Average > 0 && (m.Samples >= EnoughSamples || m.Samples > 0 && estimate <= 0) {
		return m.Average, max(m.Slow, m.Average), fmt.Sprintf("The average of %d measured messages", m.Samples)
	}
	return max(estimate, 0), max(estimate, 0), source
}

// roundLease rounds up to LeaseStep within [MinLease, MaxLease].
func roundLease(d time.Duration) time.Duration {
	d = min(max(d, MinLease), MaxLease)
	return time.Duration(math.Ceil(float64(d)/float64(LeaseStep))) * LeaseStep
}

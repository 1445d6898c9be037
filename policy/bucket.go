package policy

import (
	"math"
	"time"
)

// BucketAhead is how far ahead of the clock tokens may be taken: by POSTs that then wait
// for them.
const BucketAhead = 10 * time.Second

// Bucket is a token bucket in the form of the generic cell rate algorithm: all it
// keeps is when it would be full. Over any time t it lets at most rate × t + burst
// POSTs begin. The zero Bucket is full. The Flow is an argument everywhere, so rate
// and burst may change at any time: the tokens that are missing stay missing.
type Bucket struct {
	full     time.Time // when no token is missing
	interval time.Duration
}

// Take takes a token if there is one at now, which may be up to BucketAhead in the future:
// the time that Next has named.
func (b *Bucket) Take(f Flow, now time.Time) bool {
	if f.Rate <= 0 {
		return true
	}
	b.adjust(f, now)
	if b.free(f).After(now) {
		return false
	}
	b.full = later(b.full, now).Add(b.interval)
	return true
}

// Give gives back a token that was taken for a POST that was not made.
func (b *Bucket) Give() { b.full = b.full.Add(-b.interval) }

// Next is when a token is there: now or later. It takes none.
func (b *Bucket) Next(f Flow, now time.Time) time.Time {
	if f.Rate <= 0 {
		return now
	}
	b.adjust(f, now)
	return later(b.free(f), now)
}

// free is when the next token is there; it may have passed.
func (b *Bucket) free(f Flow) time.Time {
	return b.full.Add(-time.Duration(f.EffectiveBurst()-1) * b.interval)
}

// adjust keeps the number of missing tokens when the rate changes, and bounds it to
// the burst and what is taken ahead: it is never more, unless that was lowered or the
// clock was set back.
func (b *Bucket) adjust(f Flow, now time.Time) {
	interval := time.Duration(math.Ceil(float64(time.Second) / min(max(f.Rate, MinRate), MaxRate)))
	if b.interval == 0 {
		b.interval = interval
	}
	missing := float64(max(b.full.Sub(now), 0)) / float64(b.interval)
	switch burst := f.EffectiveBurst(); {
	case missing > float64(burst)+float64(BucketAhead)/float64(b.interval):
		b.full = now.Add(time.Duration(burst) * interval)
	case interval != b.interval:
		b.full = now.Add(time.Duration(math.Ceil(missing * float64(interval))))
	}
	b.interval = interval
}

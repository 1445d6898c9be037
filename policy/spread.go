package policy

import (
	"math"
	"time"
)

const (
	// spreadStep is how many classes of a Spread lead from a duration to its double.
	spreadStep = 4
	// spreadLast is the last class; its durations are eleven days and more.
	spreadLast = 120
)

// Spread is how durations are spread: how many are in each class, each class a fifth longer than the
// one before. Unlike percentiles, those of several processes and minutes can be added up.
type Spread map[uint8]int64

// Add counts one more duration.
func (s *Spread) Add(d time.Duration) {
	if *s == nil {
		*s = Spread{}
	}
	(*s)[spreadClass(d)]++
}

// AddAll counts all that another one has counted.
func (s *Spread) AddAll(other Spread) {
	if *s == nil && len(other) > 0 {
		*s = Spread{}
	}
	for class, n := range other {
		(*s)[class] += n
	}
}

// Quantile is the duration that a share of all is not longer than, to within a tenth; zero where
// nothing was counted.
func (s Spread) Quantile(share float64) time.Duration {
	var all, below int64
	for _, n := range s {
		all += n
	}
	if all <= 0 {
		return 0
	}
	rank := max(int64(math.Ceil(share*float64(all))), 1)
	for class := uint8(0); class < spreadLast; class++ {
		if below += s[class]; below >= rank {
			return spreadMiddle(class)
		}
	}
	return spreadMiddle(spreadLast)
}

func spreadClass(d time.Duration) uint8 {
	if d <= time.Millisecond {
		return 0
	}
	return uint8(min(math.Ceil(math.Log2(float64(d)/float64(time.Millisecond))*spreadStep), spreadLast))
}

func spreadMiddle(class uint8) time.Duration {
	return time.Duration(float64(time.Millisecond) * math.Exp2((float64(class)-0.5)/spreadStep)).Round(10 * time.Microsecond)
}

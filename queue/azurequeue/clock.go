package azurequeue

import (
	"net/http"
	"sync"
	"time"
)

const (
	// clockEvery is how often the clocks are compared.
	clockEvery = time.Minute
	// clockPatience is the longest request that says something about the clocks: it is
	// not known when in the meantime the answer was dated.
	clockPatience = 4 * time.Second
)

// clock compares the clock here with storage's, by the dates of its answers. Safe for
// concurrent use.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
	at    time.Time // of the comparison; zero before the first one
}

// look takes an answer to a request that went out at start.
func (c *clock) look(start time.Time, h http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.at.IsZero() && now.Sub(c.at) < clockEvery || now.Sub(start) > clockPatience {
		return
	}
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return
	}
	middle := start.Add(now.Sub(start) / 2)
	// Round drops the monotonic reading: a clock that was set is what this is about.
	c.ahead, c.at = middle.Round(0).Sub(date.Add(time.Second/2)), now // it has whole seconds
}

// compared is how far the clock here is ahead, as far as that is known.
func (c *clock) compared() (ahead time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead, !c.at.IsZero()
}

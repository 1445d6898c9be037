package azurequeue

import (
	"net/http"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

func TestTheClockIsComparedWithTheDatesOfAnswers(t *testing.T) {
	dated := func(ago time.Duration) http.Header {
		return http.Header{"Date": {time.Now().Add(-ago).UTC().Format(http.TimeFormat)}}
	}
	bubble.Test(t, func(t *testing.T) {
		s := &Service{transport: &transport{}}
		c := &s.transport.clock
		want := func(ahead time.Duration, known bool) {
			t.Helper()
			got, ok := s.ClockAhead()
			if off := (got - ahead).Abs(); ok != known || off > 2*time.Second {
				t.Errorf("%s ahead, known %t; want %s, %t", got, ok, ahead, known)
			}
		}
		want(0, false)
		c.look(time.Now(), http.Header{})
		want(0, false)
		start := time.Now()
		time.Sleep(2 * clockPatience)
		c.look(start, dated(time.Hour)) // too long under way to tell
		want(0, false)
		c.look(time.Now(), dated(6*time.Minute))
		want(6*time.Minute, true)
		c.look(time.Now(), dated(-3*time.Minute)) // asked again too soon
		want(6*time.Minute, true)
		time.Sleep(clockEvery)
		start = time.Now()
		time.Sleep(2 * time.Second)
		c.look(start, dated(-3*time.Minute))
		want(-3*time.Minute, true)
	})
}

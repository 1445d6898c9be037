package receive

import (
	"strconv"
	"testing"
	"time"
)

func TestDueTimesAreKeptInOrderAndBounded(t *testing.T) {
	var d due
	now := time.UnixMilli(1_000_000)
	want(t, "none", d.next(now).IsZero(), true)
	for id, after := range map[string]time.Duration{"a": time.Minute, "b": 3 * time.Second, "c": 3*time.Second + time.Millisecond} {
		d.note(id, now.Add(after))
	}
	want(t, "the first", d.next(now), time.UnixMilli(1_003_250))
	want(t, "the one after that has passed", d.next(now.Add(4*time.Second)), time.UnixMilli(1_060_250))
	for i := range 2 * maxDue {
		d.note(strconv.Itoa(i), time.Now().Add(time.Duration(i+1)*time.Hour))
	}
	want(t, "kept", len(d.of), maxDue)
}

func TestWhatCameBackBeforeItsTimeIsNotLookedFor(t *testing.T) {
	var d due
	now := time.UnixMilli(1_000_000)
	d.note("a", now.Add(3*time.Second))
	d.note("b", now.Add(3*time.Second))
	d.note("c", now.Add(time.Minute))
	d.back("a")
	want(t, "while another is due then", d.next(now), time.UnixMilli(1_003_250))
	d.back("b")
	d.back("b") // once is enough
	want(t, "the next one", d.next(now), time.UnixMilli(1_060_250))
	d.note("c", now.Add(2*time.Minute))
	want(t, "one that was given back again", d.next(now), time.UnixMilli(1_120_250))
	d.back("c")
	want(t, "none", d.next(now).IsZero(), true)
	want(t, "kept", len(d.of)+len(d.steps), 0)
}

package api

import (
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// C94: a message that can't be there any more is not said to come.
func TestAMessageWhoseLifeIsOverIsNotWaitedFor(t *testing.T) {
	end := testTime
	for _, state := range []tables.State{tables.Published, tables.Pending, tables.Held} {
		for _, attempts := range []int{0, 2} {
			d := tables.Delivery{State: state, Attempts: attempts, ExpiresAt: end, NextAt: end.Add(-time.Hour)}
			if text := whatIsNext(d, end.Add(lifeMargin)); strings.HasPrefix(text, "Nothing") {
				t.Errorf("%s within the margin: %s", state, text)
			}
			text := whatIsNext(d, end.Add(lifeMargin+time.Second))
			if !strings.HasPrefix(text, "Nothing") || !strings.Contains(text, stamp(end)) || !strings.Contains(text, "someone else took it") || strings.Contains(text, "unseen") != (attempts == 0) {
				t.Errorf("%s after %d attempts, past its life: %s", state, attempts, text)
			}
		}
	}
	dying := tables.Delivery{State: tables.DeadLettering, ExpiresAt: end}
	if text := whatIsNext(dying, end.Add(lifeMargin)); strings.HasPrefix(text, "Nothing") {
		t.Errorf("being dead-lettered, within the margin: %s", text)
	}
	if text := whatIsNext(dying, end.Add(lifeMargin+time.Second)); !strings.HasPrefix(text, "Nothing") || !strings.Contains(text, "before the dead letter was written") {
		t.Errorf("being dead-lettered, past its life: %s", text)
	}
	for _, d := range []tables.Delivery{{State: tables.Delivered, ExpiresAt: end}, {State: tables.Pending}} {
		if text := whatIsNext(d, end.Add(time.Hour)); strings.Contains(text, "life ended") {
			t.Errorf("%s: %s", d.State, text)
		}
	}
}

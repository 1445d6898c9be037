package app

import (
	"strings"
	"testing"
	"time"
)

func TestADroppedTableIsToldForAnHour(t *testing.T) {
	l, now := &lostTables{}, time.Now()
	if c := l.check(now); !c.OK {
		t.Errorf("nothing was dropped: %+v", c)
	}
	l.note("pushleaseHealth", now)
	l.note("pushleaseDeadLetters", now.Add(time.Minute))
	if c := l.check(now.Add(59 * time.Minute)); c.OK || !c.Degrades || !strings.Contains(c.Detail, "pushleaseDeadLetters, pushleaseHealth") {
		t.Errorf("both are to be told: %+v", c)
	}
	if c := l.check(now.Add(time.Hour)); !strings.Contains(c.Detail, "dropped pushleaseDeadLetters within") {
		t.Errorf("the later one is to be told: %+v", c)
	}
	if c := l.check(now.Add(2 * time.Hour)); !c.OK {
		t.Errorf("after an hour: %+v", c)
	}
}

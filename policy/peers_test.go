package policy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// peerRow is what an instance has written that is limited.
func peerRow(name string, rate float64, at time.Time) policy.PeerRow {
	return policy.PeerRow{
		Instance: name, StartedAt: at.Add(-time.Hour), UpdatedAt: at, Closed: true,
		Pace: policy.PaceState{Rate: rate, Since: at.Add(-time.Minute), Noise: 0.25},
	}
}

// What counts of another instance is what it sends. A rate that it may use and does not use takes
// nothing of a limit, and an instance that has stopped none of it. However its clock goes, and the more seldom the more seldom it writes.
func TestOnlyWhatOtherInstancesReallySendCounts(t *testing.T) {
	for _, ahead := range []time.Duration{0, -59 * time.Second, 59 * time.Second, -time.Hour, -3 * time.Hour} {
		p, at := policy.Peers{Self: "b", ClocksApart: time.Minute}, start.Add(ahead)
		row, own := peerRow("a", 1000, at), peerRow("b", 7, start)
		row.Posts, row.Failed = 600, 100
		read := func(after time.Duration) policy.Others {
			own.UpdatedAt = start.Add(after) // it is written before the others are read
			return p.Read([]policy.PeerRow{row, own}, start.Add(after))
		}
		check := func(name string, after time.Duration, rate float64) {
			t.Helper()
			if got := read(after); got.Rate != rate {
				t.Errorf("its clock is %s ahead, %s: %+v, want %v POSTs a second", ahead, name, got, rate)
			}
		}
		first := 1000.
		if ahead < -time.Minute { // it may have stopped an hour ago
			first = 0
		}
		check("by its first row", 0, first)
		row.UpdatedAt, row.Posts, row.Failed = at.Add(10*time.Second), 799, 119
		check("by its second", 11*time.Second, 20)
		check("by the same again", 21*time.Second, 20)
		if told, want := read(31*time.Second), (policy.Others{Rate: 20, Taken: 18.1, Learned: 1000, Posts: 199, Failed: 19, Sum: 180, Instances: 1, Leader: "a", Noise: 0.25}); told != want {
			t.Errorf("its clock is %s ahead: told %+v, want %+v", ahead, told, want)
		}
		check("once it has stopped", 41*time.Second, 0)
		row.UpdatedAt, row.StartedAt, row.Posts, row.Failed = at.Add(50*time.Second), at.Add(48*time.Second), 124, 119
		check("by the first row of a new process of that name", 51*time.Second, 1000)
		row.UpdatedAt, row.Posts = at.Add(110*time.Second), 183
		check("by one that came a minute later", 111*time.Second, 1)
		check("the first time that it is the same", 171*time.Second, 1)
		check("as soon after it as the last one came", 231*time.Second, 1)
		check("once it has stopped", 241*time.Second, 0)
	}
}

// Where all instances go by one clock, a row that is old when it is read first says nothing.
func TestAnOldRowOfAnInstanceDoesNotCount(t *testing.T) {
	for clocksApart, want := range map[time.Duration]float64{0: 0, time.Minute: 20} {
		p := policy.Peers{Self: "b", ClocksApart: clocksApart}
		if got := p.Read([]policy.PeerRow{peerRow("a", 20, start.Add(-policy.PeerFirst))}, start).Rate; got != want {
			t.Errorf("clocks that are %s apart: %v a second, want %v", clocksApart, got, want)
		}
	}
}

// Of several instances one is ahead, and all of them agree which: the one that is taken most often, or the first by name. One of which nothing is taken, as its address is
// banned, is none while others are taken; one that has nothing to send still is.
func TestInstancesAgreeWhichOneIsTakenMostOften(t *testing.T) {
	type does struct {
		name           string
		taken, refused int64
		learned        float64
		closed         bool
		ahead          time.Duration // of its clock
	}
	for _, tt := range []struct {
		name    string
		all     []does
		ahead   string
		learned float64 // by the one ahead, as the others are told
		others  int     // that these are told of
	}{
		{"most", []does{{"a", 20, 0, 20, true, 0}, {"b", 100, 0, 15, true, -time.Minute}, {"c", 50, 0, 90, true, time.Minute}}, "b", 15, 2},
		{"the same", []does{{"a", 50, 0, 20, true, time.Minute}, {"b", 50, 0, 20, true, 0}, {"c", 20, 0, 20, true, 0}}, "a", 20, 2},
		{"nothing", []does{{"a", 0, 0, 20, true, 0}, {"c", 0, 0, 20, true, 0}}, "a", 20, 1},
		{"nothing, and the second has learned most", []does{{"a", 0, 0, 19, true, 0}, {"c", 0, 0, 20, true, 0}}, "c", 20, 1},
		{"nothing by the first, which has nothing to send", []does{{"a", 0, 0, 20, true, 0}, {"c", 1, 0, 0.033, true, 0}}, "a", 20, 1},
		{"the first is banned", []does{{"a", 0, 3, 20, true, time.Minute}, {"c", 1, 0, 0.033, true, 0}}, "c", 0.033, 1},
		{"the first is broken", []does{{"a", 0, 0, 20, false, 0}, {"c", 1, 0, 0.033, true, -time.Minute}, {"d", 0, 0, 0.033, true, 0}}, "c", 0.033, 2},
		{"all are refused", []does{{"a", 0, 3, 20, true, 0}, {"c", 0, 1, 0.033, true, 0}}, "a", 20, 1},
	} {
		for _, self := range tt.all {
			p := policy.Peers{Self: self.name, ClocksApart: time.Minute}
			var told policy.Others
			for round := range int64(5) {
				at := start.Add(time.Duration(round) * 10 * time.Second)
				var rows []policy.PeerRow
				for _, one := range tt.all {
					row := peerRow(one.name, one.learned, at.Add(one.ahead))
					row.Closed, row.StartedAt = one.closed, start.Add(one.ahead)
					row.Posts, row.Failed = round*(one.taken+one.refused), round*one.refused
					rows = append(rows, row)
				}
				told = p.Read(rows, at)
			}
			if self.name == tt.ahead {
				if told.Leader != "" {
					t.Errorf("%s: %s leads, and is told that %s does", tt.name, self.name, told.Leader)
				}
				continue
			}
			if told.Leader != tt.ahead || told.Learned != tt.learned || told.Instances > tt.others {
				t.Errorf("%s: %s is told %+v, want %s to lead, which has learned %v", tt.name, self.name, told, tt.ahead, tt.learned)
			}
		}
	}
}

// After minutes in which nothing was sent each instance reads its own new row before those of the others are new. The one that has led goes on until its own next
// row says otherwise, and it counts until then: it writes each minute while it sends nothing.
func TestAQuietTimeDoesNotChangeWhichInstanceLeads(t *testing.T) {
	p := policy.Peers{Self: "a"}
	a, b := peerRow("a", 0.3, start), peerRow("b", 20, start)
	leads := func(name string, at time.Duration, want string) {
		t.Helper()
		a.UpdatedAt = start.Add(at)
		if told := p.Read([]policy.PeerRow{a, b}, a.UpdatedAt); told.Leader != want {
			t.Errorf("%s: %q leads, want %q (%+v)", name, told.Leader, want, told)
		}
	}
	written := func(at time.Duration, posts int64) {
		b.UpdatedAt, b.Posts = start.Add(at), b.Posts+posts
	}
	leads("first", 0, "b")
	written(10*time.Second, 200)
	leads("it sends", 11*time.Second, "b")
	written(20*time.Second, 0)
	leads("it has sent nothing", 21*time.Second, "b")
	leads("and writes no row", 31*time.Second, "b")
	leads("for a minute", 80*time.Second, "b")
	a.Posts++
	leads("the other one was taken something, and has written it", 90*time.Second, "b")
	written(92*time.Second, 200)
	leads("so has the one that leads", 101*time.Second, "b")
	a.Posts, a.Pace.Rate = a.Posts+300, 30
	written(102*time.Second, 10)
	leads("less than the other one", 111*time.Second, "")
	a.Posts += 300
	leads("and it writes no row again", 121*time.Second, "")
	leads("it is gone", 221*time.Second, "")
}

// One that leads and sends nothing for minutes (its way to the queue is cut, or it was asked for a pause) leads no more, where the other one is taken something.
func TestWhoSendsNothingForMinutesDoesNotLead(t *testing.T) {
	p := policy.Peers{Self: "a"}
	a, b := peerRow("a", 1.0/30, start), peerRow("b", 20, start)
	b.UpdatedAt, b.Posts = start.Add(10*time.Second), 200
	var told policy.Others
	for at := 10 * time.Second; at < 4*time.Minute; at += 10 * time.Second {
		a.UpdatedAt = start.Add(at)
		if at%(30*time.Second) == 0 {
			a.Posts++
		}
		if at%time.Minute == 0 {
			b.UpdatedAt = a.UpdatedAt
		}
		told = p.Read([]policy.PeerRow{a, b}, a.UpdatedAt)
	}
	if told.Leader != "" {
		t.Errorf("after four minutes %+v", told)
	}
}

// The rows of instances that are gone stay for days. Nothing that they tell is taken for POSTs of now, however often they are read.
func TestWhatAnInstanceThatIsGoneWasTakenCountsOnce(t *testing.T) {
	for _, gone := range []time.Duration{3 * time.Minute, 3 * time.Hour} {
		p := policy.Peers{Self: "b", ClocksApart: time.Minute}
		row, own := peerRow("a", 20, start.Add(-gone)), peerRow("b", 20, start)
		row.StartedAt, row.Posts = row.UpdatedAt.Add(-10*time.Minute), 10_000
		var first int64
		for reading := range 20_000 {
			at := start.Add(time.Duration(reading) * 10 * time.Second)
			own.UpdatedAt = at
			sum := p.Read([]policy.PeerRow{row, own}, at).Sum
			if reading == 0 {
				first = sum
			}
			if sum != first || gone >= time.Hour && sum != 0 {
				t.Fatalf("gone for %s: %d were taken by reading %d, and %d by the first", gone, sum, reading, first)
			}
		}
	}
}

// In a window of a limit in which nothing is taken all instances are refused, and one of them is taken first after it: the other one is not banned. One that is
// refused after that, too, is.
func TestAWindowThatIsClosedBansNobody(t *testing.T) {
	for _, banned := range []bool{false, true} {
		p := policy.Peers{Self: "b"}
		a, b := peerRow("a", 1, start), peerRow("b", 1, start)
		for reading := range 8 {
			a.UpdatedAt, b.UpdatedAt = start.Add(time.Duration(reading)*10*time.Second), start.Add(time.Duration(reading)*10*time.Second)
			b.Posts++
			if reading < 4 { // closed
				b.Failed++
			}
			if reading < 4 || banned {
				a.Posts, a.Failed = a.Posts+3, a.Failed+3
			}
			told := p.Read([]policy.PeerRow{a, b}, a.UpdatedAt)
			if out, want := told.Instances == 0, banned && reading > 4; out != want {
				t.Errorf("banned %v, reading %d: %+v, and counts as gone: %v, want %v", banned, reading, told, out, want)
			}
		}
	}
}

// One of two instances takes what the other one leaves of a limit of 100 in a quarter of an hour, now 12 and now 40. Together they were taken as many each time: so it is a window.
func TestInstancesCountAWindowTogether(t *testing.T) {
	for _, told := range []bool{true, false} {
		var p policy.Pacer
		others := policy.Others{Rate: 0.1, Taken: 0.1, Learned: 0.1, Instances: 1}
		now := start
		for window := range 5 {
			takes := 12
			if window%2 == 1 {
				takes = 40
			}
			if told {
				others.Sum += int64(100 - takes)
			}
			posts := 0
			for end := start.Add(time.Duration(window+1) * longWindow); now.Before(end); {
				p.Share(others, now)
				now = later(p.Next(now), now.Add(time.Second))
				place := p.Take(now)
				if posts++; posts <= takes {
					p.Taken(place, now, now)
				} else {
					p.Refused(place, now, now, 0.5)
				}
			}
		}
		if window := p.State().Window; told != (window > longWindow*8/10 && window < longWindow*12/10) {
			t.Errorf("it is told of the others' POSTs: %v, and knows a window of %s", told, window)
		}
	}
}

// A window that another instance has learned needs not be found out again, by time in which everything is refused. It is not told on, or it would never end, and is no longer than windows are.
func TestAWindowThatAnotherInstanceKnowsIsNoBreakdown(t *testing.T) {
	breaks := func(p *policy.Pacer, now time.Time, length time.Duration) (broken bool) {
		for end := now.Add(length); now.Before(end) && !broken; {
			now, broken = refuse(p, now)
		}
		return broken
	}
	others := policy.Others{Rate: 0.1, Taken: 0.1, Learned: 0.1, Instances: 1}
	for window, want := range map[time.Duration]bool{longWindow: false, 0: true} {
		p, now := limitedPacer(t)
		others.Window = window
		p.Share(others, now)
		if broken := breaks(p, now, longWindow*9/10); broken != want || p.State().Window != 0 {
			t.Errorf("the others know a window of %s: broken %v, and %s is told", window, broken, p.State().Window)
		}
	}
	p, now := limitedPacer(t)
	others.Window = 10 * 24 * time.Hour
	p.Share(others, now)
	if !breaks(p, now, 2*time.Hour) {
		t.Error("not broken for two hours, as another one says that a window is ten days long")
	}
}

// What others were taken is counted from one row to the next, whoever comes and goes: one that joins has been taken as many before, and so has one that was not limited for a while.
func TestWhoComesAndGoesChangesNoCount(t *testing.T) {
	p := policy.Peers{Self: "b"}
	a, c := peerRow("a", 1, start), peerRow("c", 1, start)
	a.Posts, c.Posts = 1000, 5000
	at := start
	read := func(rows ...policy.PeerRow) int64 {
		for i := range rows {
			rows[i].UpdatedAt = at
		}
		told := p.Read(rows, at)
		at = at.Add(10 * time.Second)
		return told.Sum
	}
	var got []int64
	got = append(got, read(a))
	a.Posts += 10
	got = append(got, read(a), read(a, c))
	c.Posts, a.Pace.Rate = c.Posts+7, 0
	got = append(got, read(a, c))
	a.Posts, a.Pace.Rate = a.Posts+3, 1
	got = append(got, read(a))
	a.Posts, a.StartedAt = 4, at
	got = append(got, read(a))
	if want := []int64{0, 10, 10, 17, 20, 24}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

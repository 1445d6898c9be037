package app

import (
	"fmt"
	"time"

	"github.com/pushlease/pushlease/api"
)

const (
	// clockNotice is how far clocks may be apart before doctor says so.
	clockNotice = time.Minute
	// clockLimit is how far they may be apart before this process is not ready: receivers
	// refuse signatures whose time is five minutes off, and Azure Storage requests that are
	// fifteen off.
	clockLimit = 4 * time.Minute
)

// clockCheck compares the clock here with storage's; unknown is no fault.
func clockCheck(ahead time.Duration, known bool) api.Check {
	c := api.Check{Name: "clock", OK: !known || ahead.Abs() <= clockLimit}
	if !c.OK {
		c.Detail = clocksDiffer(ahead) + "; receivers refuse signatures whose time is minutes off: synchronise the clock (NTP)"
	}
	return c
}

// clockProbe is clockCheck for doctor, which says so earlier.
func clockProbe(ahead time.Duration, known bool) Probe {
	switch {
	case !known:
		return Probe{Name: "storage's clock", OK: true, Unknown: true, Detail: "storage has not said what time it is"}
	case ahead.Abs() > clockNotice:
		return Probe{Name: "storage's clock", Detail: clocksDiffer(ahead), Cure: "synchronise this machine's clock (NTP): receivers refuse signatures whose time is minutes off"}
	}
	return Probe{Name: "storage's clock", OK: true, Detail: "this machine's clock agrees with storage's"}
}

func clocksDiffer(ahead time.Duration) string {
	how := "ahead of"
	if ahead < 0 {
		how = "behind"
	}
	return fmt.Sprintf("this machine's clock is %s %s storage's", ahead.Abs().Round(time.Second), how)
}

package app

import (
	"fmt"
	"time"

	"github.com/pushlease/pushlease/api"
)

const (
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

func clocksDiffer(ahead time.Duration) string {
	how := "ahead of"
	if ahead < 0 {
		how = "behind"
	}
	return fmt.Sprintf("this machine's clock is %s %s storage's", ahead.Abs().Round(time.Second), how)
}

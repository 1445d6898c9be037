package bubble

import (
	"time"
	"unsafe"
)

// Suspended is at, a time that was read in this process, as it was read where the machine was suspended for so many
// whole seconds since: by the wall clock it is longer ago, by the monotonic one it is not. Outside a bubble, where
// times have no monotonic reading.
func Suspended(at time.Time, seconds int) time.Time {
	const secondsShift = 30                                            // of the first word of a time with a monotonic reading; its nanoseconds are below
	*(*uint64)(unsafe.Pointer(&at)) -= uint64(seconds) << secondsShift //nolint:gosec // no function of package time moves one clock alone
	return at
}

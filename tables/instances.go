package tables

import (
	"context"
	"time"
)

// Instance is one process, as it last wrote of itself.
type Instance struct {
	// Name is its setting instance; no two processes that run have the same.
	Name    string `json:"name"`
	Version string `json:"version"`
	// Mode is serve or hosted.
	Mode      string    `json:"mode"`
	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"seen_at"`
	// Ready says whether its /readyz did; Trouble is what failed there, at most one sentence.
	Ready   bool   `json:"ready"`
	Trouble string `json:"trouble,omitempty"`
	// InFlight is how many messages it is at work on, and Leases how many leases it keeps, those of
	// messages in hand that wait for their webhook too.
	InFlight int `json:"in_flight"`
	Leases   int `json:"leases,omitempty"`
	// Queues is how many queues it receives from, and Polled the names of the first of them, at most MaxPolled.
	Queues int      `json:"queues"`
	Polled []string `json:"polled,omitempty"`
	// Lanes is how many transactions of records were under way, and LaneStalls how many have begun since its start
	// beside others that were late; both on Azure only.
	Lanes      int   `json:"lanes,omitempty"`
	LaneStalls int64 `json:"lane_stalls,omitempty"`
	// LastError is what it logged last as an error, at most 200 units; LastErrorAt is zero where there was none.
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
	// ClockAhead is how far its clock is ahead of storage's; zero where that is not known.
	ClockAhead time.Duration `json:"clock_ahead,omitempty"`
}

// MaxPolled bounds the names of queues in a row.
const MaxPolled = 50

// Instances remembers the processes on one storage. Safe for concurrent use.
type Instances interface {
	// PutInstance writes what a process says of itself over what it said before.
	PutInstance(ctx context.Context, i Instance) error

	// ListInstances returns all instances in ascending order of name, those that are gone
	// and were not dropped too. One whose row another program has changed so that it can't be read
	// has its name, and as Trouble that; it writes the row anew when it next tells of itself.
	ListInstances(ctx context.Context) ([]Instance, error)

	// DropInstance removes one. It is no error when it is gone.
	DropInstance(ctx context.Context, name string) error
}

// ClocksApart is how far the clocks of two processes may be apart while they count as good. What one process writes for
// others, who hold it against their own clocks, has a margin above it.
const ClocksApart = time.Minute

// maxAhead is how far the clock of another process may be ahead of this one's.
const maxAhead = time.Hour

// Heard reports whether a process that has said at that time that it is there still counts as there. A time that is further
// ahead than clocks are says nothing: it would count for as long as that, although its process is gone.
func Heard(at, now time.Time, within time.Duration) bool {
	ago := now.Sub(at)
	return ago < within && ago >= -maxAhead
}

// damagedInstance is the Trouble of an instance whose row can't be read.
const damagedInstance = "another program has changed its row"

// DamagedInstance is what is known of an instance whose row can't be read.
func DamagedInstance(name string) Instance { return Instance{Name: name, Trouble: damagedInstance} }

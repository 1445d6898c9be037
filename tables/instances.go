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
	// InFlight is how many messages it is at work on, and Queues how many it receives from.
	InFlight int `json:"in_flight"`
	Queues   int `json:"queues"`
	// ClockAhead is how far its clock is ahead of storage's; zero where that is not known.
	ClockAhead time.Duration `json:"clock_ahead,omitempty"`
}

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

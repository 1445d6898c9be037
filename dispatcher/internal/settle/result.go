package settle

// Result is what became of a message in the end, as metrics and spans have it.
type Result string

// The results.
const (
	// Deleted: it has left its queue.
	Deleted Result = "deleted"
	// Abandoned: it was given back, and is shown again when its delay is over.
	Abandoned Result = "abandoned"
	// LeaseLost: it is somebody else's now, or its life is over.
	LeaseLost Result = "lease_lost"
	// Failed: storage did neither. It comes back when its lease ends.
	Failed Result = "failed"
	// WorkGoesOn: this process is at work on it already, and goes on with the lease that was received.
	WorkGoesOn Result = "work_goes_on"
	// PutOff: it was given back before anything was decided, for as much is in hand as may be.
	PutOff Result = "put_off"
)

// Settled reports whether nothing is left to be done about this receive of the message.
func (r Result) Settled() bool { return r != Failed }

package tables

import (
	"context"
	"fmt"
	"time"
)

// Job is work over many rows that goes on in the background, in the instance that has it.
// It is stored, so that each instance can tell of it, and another one goes on when the one that
// had it is gone.
type Job struct {
	ID string `json:"id"`
	// Instance is the process that works on it; empty when it has ended, or was let go.
	Instance string `json:"instance,omitempty"`
	// HeardAt is when that process last wrote it.
	HeardAt time.Time `json:"heard_at"`
	// CancelAsked asks the process that has it to end it.
	CancelAsked bool `json:"cancel_asked,omitempty"`
	// State is what was asked for and how far it has come, as JSON: its owner's own.
	State []byte `json:"state"`
	// ETag is the store's, and never part of what is stored.
	ETag string `json:"-"`
	// Damaged is an ErrDamaged where another program has changed the row so that nothing of it can be
	// read but its ID. It is never written.
	Damaged error `json:"-"`
}

// Jobs remembers jobs. Safe for concurrent use.
type Jobs interface {
	// PutJob writes j and returns it with its new ETag. With an empty j.ETag it inserts, and
	// returns ErrExists when the id is taken; otherwise it replaces the row while its
	// ETag is still j.ETag, and returns ErrConflict or ErrNotFound when it is not.
	PutJob(ctx context.Context, j Job) (Job, error)

	// ListJobs returns all jobs in ascending order of id, those that can't be read too.
	ListJobs(ctx context.Context) ([]Job, error)

	// DropJob removes a job. It is no error when it is gone.
	DropJob(ctx context.Context, id string) error
}

// DamagedJob is what is known of a job whose row can't be read.
func DamagedJob(id string) Job {
	return Job{ID: id, Damaged: fmt.Errorf("%w of a job", ErrDamaged)}
}

package tables

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// The lengths of rollups, and how long each kind is worth keeping.
const (
	MinuteRollup     = time.Minute
	HourRollup       = time.Hour
	MinutesRetention = 48 * time.Hour
	HoursRetention   = 90 * 24 * time.Hour
)

// OtherWebhooks stands for the webhooks of a queue for which a rollup has no room of their own.
const OtherWebhooks = "other"

// Rollup is what one process counted in one minute, or in the part of an hour that is over.
type Rollup struct {
	// Length is MinuteRollup or HourRollup, and At, a multiple of it, is when it began.
	Length time.Duration
	At     time.Time
	// Instance and StartedAt tell the processes apart. Only the process itself writes its rows.
	Instance  string
	StartedAt time.Time
	Tallies   []Tally
}

// Tally is what was counted of a webhook, or of a queue apart from its webhooks.
type Tally struct {
	Queue string `json:"queue"`
	// WebhookID is empty where no webhook is concerned.
	WebhookID string `json:"webhook,omitempty"`
	// Attempts counts POSTs by status class, such as 5xx, or error class.
	Attempts map[string]int64 `json:"attempts,omitempty"`
	// Delivered counts the attempts that completed their delivery, Held the deliveries that had to
	// wait for the webhook, and DeadLetters the dead letters that were written.
	Delivered   int64 `json:"delivered,omitempty"`
	Held        int64 `json:"held,omitempty"`
	DeadLetters int64 `json:"dead_letters,omitempty"`
	// Took is how long the attempts took, and Delay the time from a message's insertion to its 2xx.
	Took  policy.Spread `json:"took,omitempty"`
	Delay policy.Spread `json:"delay,omitempty"`
	// Depth is what was on the queue; nil where nobody looked.
	Depth *Depth `json:"depth,omitempty"`
}

// Depth is what is on a queue.
type Depth struct {
	Visible int64 `json:"visible"`
	Hidden  int64 `json:"hidden"`
	// Oldest is the age of the oldest visible message.
	Oldest time.Duration `json:"oldest"`
}

// Add adds what another tally has counted. Of depths, which are all of one queue, the larger figures stay.
func (t *Tally) Add(o Tally) {
	if t.Attempts == nil && len(o.Attempts) > 0 {
		t.Attempts = map[string]int64{}
	}
	for outcome, n := range o.Attempts {
		t.Attempts[outcome] += n
	}
	t.Delivered += o.Delivered
	t.Held += o.Held
	t.DeadLetters += o.DeadLetters
	t.Took.AddAll(o.Took)
	t.Delay.AddAll(o.Delay)
	if o.Depth != nil {
		d := *o.Depth
		if t.Depth != nil {
			d = Depth{max(d.Visible, t.Depth.Visible), max(d.Hidden, t.Depth.Hidden), max(d.Oldest, t.Depth.Oldest)}
		}
		t.Depth = &d
	}
}

// Rollups remembers what the processes on one storage counted, minute by minute and hour by hour. It
// is never about what becomes of a message. Safe for concurrent use.
type Rollups interface {
	// PutRollups writes up to 100 rows in one transaction, each over the earlier one of its process,
	// length and begin. It may be repeated.
	PutRollups(ctx context.Context, rows ...Rollup) error

	// EachRollup calls each for the rows of a length that began from from until before until, in
	// ascending order of At. Rows that another program has changed so that they can't be read are left out.
	EachRollup(ctx context.Context, length time.Duration, from, until time.Time, each func(Rollup)) error

	// ExpireRollups removes the rows of a length that began before that time, and returns how many.
	ExpireRollups(ctx context.Context, length time.Duration, before time.Time) (int64, error)
}

// maxPacked bounds the tallies that are read of one row.
const maxPacked = 8 << 20

// PackTallies makes of tallies what a store keeps in one column.
func PackTallies(tallies []Tally) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := errors.Join(json.NewEncoder(z).Encode(tallies), z.Close()); err != nil {
		return nil, fmt.Errorf("pack tallies: %w", err)
	}
	return b.Bytes(), nil
}

// UnpackTallies undoes PackTallies.
func UnpackTallies(packed []byte) ([]Tally, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpack tallies: %w", err)
	}
	var tallies []Tally
	if err := json.NewDecoder(io.LimitReader(z, maxPacked)).Decode(&tallies); err != nil {
		return nil, fmt.Errorf("unpack tallies: %w", err)
	}
	return tallies, nil
}

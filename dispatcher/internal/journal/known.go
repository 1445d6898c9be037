package journal

import (
	"time"
	"unique"

	"github.com/pushlease/pushlease/tables"
)

// known is a delivery as it is remembered. Nearly all are first successes, of which there is
// little to say: those take a fifth of the room.
type known struct {
	full  *tables.Delivery // nil for a first success
	first firstSuccess
}

// firstSuccess is what differs between first successes. Times are Unix milliseconds; 0 means none.
type firstSuccess struct {
	common                           unique.Handle[tables.Delivery] // what many of them say alike
	day, started, updated, expiresAt int64
	size                             int64
	hash                             [16]byte
}

// know returns d as it is remembered. Times of a first success are cut to the millisecond, as
// stores cut them.
func know(d *tables.Delivery) known {
	if d.State != tables.Delivered || d.Attempts != 1 || d.FirstAt != d.LastAt || len(d.BodyHash) != len(firstSuccess{}.hash) {
		all := *d
		return known{full: &all}
	}
	f := firstSuccess{
		day: millis(d.Day), started: millis(d.FirstAt), updated: millis(d.UpdatedAt), expiresAt: millis(d.ExpiresAt), size: int64(d.Size),
	}
	copy(f.hash[:], d.BodyHash)
	common := *d
	common.MessageID, common.Size, common.BodyHash = "", 0, ""
	for _, t := range []*time.Time{&common.Day, &common.FirstAt, &common.LastAt, &common.UpdatedAt, &common.ExpiresAt} {
		*t = time.Time{}
	}
	f.common = unique.Make(common)
	return known{first: f}
}

// delivery is what is known of the message's delivery.
func (k *known) delivery(messageID string) tables.Delivery {
	if k.full != nil {
		return *k.full
	}
	return k.first.delivery(messageID)
}

func (f *firstSuccess) delivery(messageID string) tables.Delivery {
	d := f.common.Value()
	d.MessageID, d.Size, d.BodyHash = messageID, int(f.size), string(f.hash[:])
	d.Day, d.UpdatedAt, d.ExpiresAt = fromMillis(f.day), fromMillis(f.updated), fromMillis(f.expiresAt)
	d.FirstAt = fromMillis(f.started)
	d.LastAt = d.FirstAt
	return d
}

func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func fromMillis(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

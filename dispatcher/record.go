package dispatcher

import (
	"context"
	"slices"
	"time"

	"github.com/pushlease/pushlease/dispatcher/internal/retry"
	"github.com/pushlease/pushlease/tables"
)

const (
	recordTimeout = 5 * time.Second
	// maxRecordRows is what tables.Deliveries takes at once.
	maxRecordRows = 100
	// recordPatience is how long the record of a delivered message is tried before
	// the message is completed without it; it is then kept in memory and written
	// when the store can be asked again.
	recordPatience = 20 * time.Second
)

// record writes rec durably. When the store can't, the rows are kept in memory, the
// store is tried again in the background: progress never depends on a record, and a
// fault of ours is never the webhook's (I3).
func (d *Dispatcher) record(ctx context.Context, rec tables.Record) {
	patience := time.Duration(0)
	for _, del := range rec.Deliveries {
		if del.State == tables.Delivered {
			patience = recordPatience
		}
	}
	start := time.Now()
	write := d.o.Store.Record
	for try := 1; ; try++ {
		callCtx, cancel := context.WithTimeout(ctx, recordTimeout)
		err := write(callCtx, rec)
		cancel()
		if err == nil {
			d.memory.remember(rec, true)
			return
		}
		if patience == 0 { // what is unfinished may have gone on elsewhere by the next try
			write = d.writeLate
		}
		if (try >= quickTries && time.Since(start) >= patience) || !retry.Sleep(ctx, retry.Backoff(try, quickRetry/2, 4*time.Second)) {
			first := rec.Deliveries[0]
			d.log.Error("record could not be written; it is kept in memory and written later",
				"queue", first.Queue, "message", first.MessageID, "webhook", first.WebhookID, "state", first.State, "error", err)
			d.metrics.recordDeferred(first.Queue)
			for i := range rec.Deliveries {
				rec.Deliveries[i].MissingRecords += attemptsOf(rec, rec.Deliveries[i].WebhookID)
			}
			for range d.memory.remember(rec, false) {
				d.metrics.recordLost()
			}
			return
		}
	}
}

// recordAll is record for any number of deliveries of one message without attempts: a
// queue may have more webhooks than rows go together.
func (d *Dispatcher) recordAll(ctx context.Context, list []tables.Delivery) {
	for some := range slices.Chunk(list, maxRecordRows) {
		d.record(ctx, tables.Record{Deliveries: some})
	}
}

// attemptsOf counts the attempts in rec that are about one webhook.
func attemptsOf(rec tables.Record, webhookID string) int {
	n := 0
	for _, a := range rec.Attempts {
		if a.WebhookID == webhookID {
			n++
		}
	}
	return n
}

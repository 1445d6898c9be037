package app

import (
	"context"
	"runtime"
	"time"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/dispatcher"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

// recordedSends are the sends of a store that takes a record along, as sqlite.Queues has them.
type recordedSends interface {
	SendRecorded(ctx context.Context, queueName string, text []byte, opts queue.SendOptions,
		record func(queue.Sent) tables.Record) (queue.Sent, error)
	SendLeased(ctx context.Context, queueName string, text []byte, opts queue.SendOptions,
		record func(queue.Sent) tables.Record, lease time.Duration, start func(*queue.Message)) (queue.Sent, error)
}

// handover sends what is published here. Where the dispatcher has a place for the message,
// one commit stores and leases it.
type handover struct {
	sends recordedSends
	d     *dispatcher.Dispatcher
}

// handOver is nil for a store that has no such sends.
func handOver(sends recordedSends, d *dispatcher.Dispatcher) api.RecordedSends {
	if sends == nil {
		return nil
	}
	return handover{sends, d}
}

// SendRecorded implements api.RecordedSends.
func (h handover) SendRecorded(ctx context.Context, queueName string, text []byte, opts queue.SendOptions,
	record func(queue.Sent) tables.Record) (sent queue.Sent, handed bool, err error) {
	var place *dispatcher.Place
	if opts.Delay == 0 {
		place = h.d.Reserve(queueName)
	}
	if place == nil {
		sent, err = h.sends.SendRecorded(ctx, queueName, text, opts, record)
		return sent, false, err
	}
	defer place.Leave()
	sent, err = h.sends.SendLeased(ctx, queueName, text, opts, record, place.Lease(), place.Start)
	runtime.Gosched() // the POST first: writing the answer takes as long as beginning it
	return sent, place.Taken(), err
}

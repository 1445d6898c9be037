package tables

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// loadsAtOnce bounds the messages that ListDeliveries looks up at a time.
const loadsAtOnce = 8

// ListDeliveries lists deliveries as they stand: what a store lists, without what is no longer so. A page may be short.
func ListDeliveries(ctx context.Context, history History, now Deliveries, f DeliveryFilter, page Page) ([]Delivery, Cursor, error) {
	ds, next, err := history.Deliveries(ctx, f, page)
	if err != nil {
		return nil, "", err
	}
	stands, errs := make([]bool, len(ds)), make([]error, len(ds))
	var under sync.WaitGroup
	slots := make(chan struct{}, loadsAtOnce)
	for i := range ds {
		slots <- struct{}{}
		under.Go(func() {
			stands[i], errs[i] = ds[i].stands(ctx, now)
			<-slots
		})
	}
	under.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, "", err
	}
	kept := ds[:0]
	for i, d := range ds {
		if stands[i] {
			kept = append(kept, d)
		}
	}
	return kept, next, nil
}

// stands reports whether no other row says more of the delivery. Where rows can't be read nobody knows.
func (d *Delivery) stands(ctx context.Context, store Deliveries) (bool, error) {
	all, err := store.Load(ctx, d.MessageKey)
	if errors.Is(err, ErrDamaged) {
		return true, nil
	}
	i := slices.IndexFunc(all, func(o Delivery) bool { return o.WebhookID == d.WebhookID })
	return i >= 0 && all[i].Generation == d.Generation && all[i].State == d.State && all[i].Attempts == d.Attempts && all[i].UpdatedAt.Equal(d.UpdatedAt) &&
		!d.Overtaken(all), err
}

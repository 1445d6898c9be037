package journal

import (
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/tables"
)

func someFirstSuccess() tables.Delivery {
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.FixedZone("east", 3600))
	a := tables.Attempt{
		MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m", Day: at}, WebhookID: "wh", StartedAt: at.Add(time.Second),
		Status: 200, Reason: "Delivered", Instance: "a", Generation: 1,
	}
	return a.Completed(&tables.Delivery{UpdatedAt: at.Add(time.Minute), ExpiresAt: at.Add(time.Hour), Encoding: "none", Size: 7, BodyHash: "0123456789abcdef"})
}

// inStore is d as a store gives it back.
func inStore(d tables.Delivery) tables.Delivery {
	for _, t := range []*time.Time{&d.Day, &d.FirstAt, &d.LastAt, &d.NextAt, &d.UpdatedAt, &d.ExpiresAt} {
		if !t.IsZero() {
			*t = t.UTC().Truncate(time.Millisecond)
		}
	}
	return d
}

func TestWhatIsKnownIsWhatWasRemembered(t *testing.T) {
	first := someFirstSuccess()
	k := know(&first)
	if k.full != nil {
		t.Error("a first success is kept whole")
	}
	if d := cmp.Diff(inStore(first), k.delivery("m")); d != "" {
		t.Errorf("(-remembered +known)\n%s", d)
	}
	// Whatever else a delivery says is kept too.
	for i := range reflect.TypeFor[tables.Delivery]().NumField() {
		for _, large := range []bool{false, true} {
			d := first
			switch f := reflect.ValueOf(&d).Elem().Field(i); {
			case f.Type() == reflect.TypeFor[time.Time]():
				f.Set(reflect.ValueOf(first.Day.Add(48 * time.Hour)))
				if large {
					f.SetZero()
				}
			case f.Kind() == reflect.String:
				f.SetString("another one")
				if large {
					f.SetString("")
				}
			case f.CanInt():
				f.SetInt(11)
				if large {
					f.SetInt(1 << 40)
				}
			}
			k := know(&d)
			if diff := cmp.Diff(inStore(d), inStore(k.delivery("m"))); diff != "" {
				t.Errorf("%s (-remembered +known)\n%s", reflect.TypeFor[tables.Delivery]().Field(i).Name, diff)
			}
		}
	}
}

// The first in a process, too, and within simulated time.
func TestADeliveredMessageIsRememberedAsDelivered(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m, d := newMemory(), someFirstSuccess()
		m.remember(tables.Record{Deliveries: []tables.Delivery{d}}, true)
		late := d
		late.State, late.Attempts = tables.Pending, 2
		m.remember(tables.Record{Deliveries: []tables.Delivery{late}}, true)
		got := m.merge(d.MessageKey, nil, []string{"wh", "other"})
		if diff := cmp.Diff([]tables.Delivery{inStore(d)}, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	})
}

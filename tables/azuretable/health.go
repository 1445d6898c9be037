package azuretable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

// healthPartition has all rows of the Health table: they are read together, and there
// are few.
const healthPartition = "health"

const updatedAtColumn = "UpdatedAt"

func healthPrefix(webhookID string) string { return encodeID(webhookID) + separator }

// PutHealth implements tables.Healths.
func (s *Store) PutHealth(ctx context.Context, rows ...tables.Health) error {
	places := make(map[string]int, len(rows)) // a transaction can't write one row twice
	var encoded []commit.Row
	for _, h := range rows {
		r, err := healthColumns(h).row(healthPartition, healthPrefix(h.WebhookID)+encodeID(h.Instance))
		if err != nil {
			return fmt.Errorf("put health: %w", err)
		}
		if at, there := places[r.RK]; there {
			encoded[at] = r
			continue
		}
		places[r.RK] = len(encoded)
		encoded = append(encoded, r)
	}
	for batch := range slices.Chunk(encoded, commit.MaxRows) {
		if err := s.client.submit(ctx, s.healthTable(), batch); err != nil {
			return fmt.Errorf("put health: %w", err)
		}
	}
	return nil
}

// ListHealth implements tables.Healths.
func (s *Store) ListHealth(ctx context.Context) ([]tables.Health, error) {
	return s.listHealth(ctx, filter{}.partition(healthPartition))
}

// WebhookHealth implements tables.Healths.
func (s *Store) WebhookHealth(ctx context.Context, webhookID string) ([]tables.Health, error) {
	return s.listHealth(ctx, filter{}.partition(healthPartition).prefix(healthPrefix(webhookID)))
}

func (s *Store) listHealth(ctx context.Context, f filter) ([]tables.Health, error) {
	rows, err := s.client.all(ctx, query{table: s.healthTable(), filter: f})
	if err != nil {
		return nil, fmt.Errorf("list health: %w", err)
	}
	list := make([]tables.Health, len(rows))
	for i, e := range rows {
		list[i] = e.health()
	}
	slices.SortFunc(list, func(a, b tables.Health) int {
		return cmp.Or(cmp.Compare(a.WebhookID, b.WebhookID), cmp.Compare(a.Instance, b.Instance))
	})
	return list, nil
}

// DeleteHealth implements tables.Healths.
func (s *Store) DeleteHealth(ctx context.Context, webhookID string) error {
	f := filter{}.partition(healthPartition).prefix(healthPrefix(webhookID))
	rows, err := s.client.all(ctx, query{table: s.healthTable(), filter: f, columns: []string{updatedAtColumn}})
	for _, e := range rows {
		if removeErr := s.client.remove(ctx, s.healthTable(), healthPartition, e.rk, ""); !errors.Is(removeErr, tables.ErrNotFound) {
			err = errors.Join(err, removeErr)
		}
	}
	if err != nil {
		return fmt.Errorf("delete health: %w", err)
	}
	return nil
}

// ExpireHealth implements tables.Healths. A row that is written meanwhile stays.
func (s *Store) ExpireHealth(ctx context.Context, before time.Time) (int64, error) {
	q := query{table: s.healthTable(), filter: filter{}.partition(healthPartition), columns: []string{updatedAtColumn, "Timestamp"}, etags: true}
	rows, err := s.client.all(ctx, q)
	var n int64
	for _, e := range rows {
		if e.notAhead(updatedAtColumn).UnixMilli() >= before.UnixMilli() {
			continue
		}
		switch removeErr := s.client.remove(ctx, s.healthTable(), healthPartition, e.rk, e.etag); {
		case removeErr == nil:
			n++
		case !movedOn(removeErr):
			err = errors.Join(err, removeErr)
		}
	}
	err = errors.Join(err, s.expireTraces(ctx, before.Add(-tables.TraceOutlives)))
	if err != nil {
		return n, fmt.Errorf("expire health: %w", err)
	}
	return n, nil
}

func healthColumns(h tables.Health) columns {
	c := columns{}
	c.exact("WebhookID", h.WebhookID)
	c.exact("Queue", h.Queue)
	c.exact("Instance", h.Instance)
	c.exact("Breaker", string(h.Breaker.Phase))
	c.time("BreakerSince", h.Breaker.Since)
	c.time("NextProbe", h.Breaker.NextProbe)
	c.duration("ProbeWait", time.Duration(h.Breaker.Wait))
	c.number("Samples", h.Breaker.Samples)
	c.number("Failures", h.Breaker.Failures)
	c.flag("Refusing", h.Refusing)
	c.flag("Throttles", h.Throttles)
	c.time("PausedUntil", h.PausedUntil)
	pace, noise := h.Pace.Milli()
	c.long("PaceMilli", pace)
	c.long("PaceNoise", noise)
	c.duration("PaceWindow", h.Pace.Window)
	c.time("PaceSince", h.Pace.Since)
	c.long("PaceRefused", h.Pace.Refused)
	c.time("FailingSince", h.Failing.FailingSince)
	c.number("FailedMessages", h.Failing.FailedMessages)
	c.time("LastSuccessAt", h.Failing.LastSuccess)
	c.time("LastFailureAt", h.LastFailureAt)
	c.number("Window", h.Window)
	c.number("InFlight", h.InFlight)
	c.long("Delivered", h.Delivered)
	c.long("Failed", h.Failed)
	c.long("Deferred", h.Postponed)
	c.time("StartedAt", h.StartedAt)
	c.time(updatedAtColumn, h.UpdatedAt)
	return c
}

func (e entity) health() tables.Health {
	h := tables.Health{
		WebhookID: e.text("WebhookID"), Queue: e.text("Queue"), Instance: e.text("Instance"),
		Breaker: policy.BreakerState{
			Phase: policy.BreakerPhase(e.text("Breaker")), Since: e.time("BreakerSince"), NextProbe: e.time("NextProbe"),
			Wait: policy.Duration(e.duration("ProbeWait")), Samples: e.number("Samples"), Failures: e.number("Failures"),
		},
		Refusing: e.flag("Refusing"), Throttles: e.flag("Throttles"), PausedUntil: e.time("PausedUntil"),
		Failing: policy.AutoDisableState{
			FailingSince: e.time("FailingSince"), FailedMessages: e.number("FailedMessages"), LastSuccess: e.time("LastSuccessAt"),
		},
		LastFailureAt: e.time("LastFailureAt"), Window: e.number("Window"), InFlight: e.number("InFlight"),
		Delivered: e.long("Delivered"), Failed: e.long("Failed"), Postponed: e.long("Deferred"),
		StartedAt: e.time("StartedAt"), UpdatedAt: e.notAhead(updatedAtColumn),
		Pace: policy.PaceState{Since: e.time("PaceSince"), Refused: e.long("PaceRefused"), Window: e.duration("PaceWindow")},
	}
	h.Pace.SetMilli(e.long("PaceMilli"), e.long("PaceNoise"))
	return h
}

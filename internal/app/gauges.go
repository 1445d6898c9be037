package app

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/pushlease/pushlease/api"
)

// checkKinds are the kinds of checks, which all have a value from the start.
var checkKinds = []string{"clock", "draining", "functions", "host", "instance", "queue", "registrations", "signature", "sockets", "storage", "tables", "triggers", "webhooks"}

// measure makes the gauges of what this process is and how it is: what /readyz says, for who
// watches with metrics. They ask storage for nothing.
func (r *readiness) measure(m metric.Meter, version string) error {
	build, err := m.Int64ObservableGauge("pushlease.build.info", metric.WithDescription("1, by version and go_version."))
	if err != nil {
		return fmt.Errorf("gauge of the version: %w", err)
	}
	ready, err := m.Int64ObservableGauge("pushlease.ready", metric.WithDescription("1 while /readyz says ready or degraded, 0 while it does not."))
	if err != nil {
		return fmt.Errorf("gauge of readiness: %w", err)
	}
	failing, err := m.Int64ObservableGauge("pushlease.checks.failing", metric.WithDescription("Checks of /readyz that fail, by kind."))
	if err != nil {
		return fmt.Errorf("gauge of failing checks: %w", err)
	}
	signature, err := m.Float64ObservableGauge("pushlease.storage.signature.left", metric.WithUnit("s"),
		metric.WithDescription("Time until the storage's shared access signature ends, where it has one."))
	if err != nil {
		return fmt.Errorf("gauge of the signature: %w", err)
	}
	ahead, err := m.Float64ObservableGauge("pushlease.clock.ahead", metric.WithUnit("s"),
		metric.WithDescription("How far the clock here is ahead of the storage's, where that was compared; negative when it is behind."))
	if err != nil {
		return fmt.Errorf("gauge of the clock: %w", err)
	}
	stalls, err := m.Int64ObservableCounter("pushlease.storage.lane.stalls",
		metric.WithDescription("Transactions of records that began beside others of their partition that took more than 25 ms; on Azure only."))
	if err != nil {
		return fmt.Errorf("counter of late transactions: %w", err)
	}
	about := metric.WithAttributes(attribute.String("version", version), attribute.String("go_version", runtime.Version()))
	_, err = m.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		o.ObserveInt64(build, 1, about)
		isReady, counts := tally(r.checks(ctx))
		o.ObserveInt64(ready, isReady)
		for kind, n := range counts {
			o.ObserveInt64(failing, n, metric.WithAttributes(attribute.String("check", kind)))
		}
		if end := r.stores.sasEnd; !end.IsZero() {
			o.ObserveFloat64(signature, time.Until(end).Seconds())
		}
		if r.stores.lanes != nil {
			_, n := r.stores.lanes()
			o.ObserveInt64(stalls, n)
		}
		if r.stores.clockAhead != nil {
			if by, known := r.stores.clockAhead(); known {
				o.ObserveFloat64(ahead, by.Seconds())
			}
		}
		return nil
	}, build, ready, failing, signature, stalls, ahead)
	if err != nil {
		return fmt.Errorf("observe readiness: %w", err)
	}
	return nil
}

// tally says whether checks make ready, and how many fail, by kind.
func tally(checks []api.Check) (ready int64, failing map[string]int64) {
	ready, failing = 1, map[string]int64{}
	for _, kind := range checkKinds {
		failing[kind] = 0
	}
	for _, c := range checks {
		if c.OK {
			continue
		}
		kind, _, _ := strings.Cut(c.Name, " ")
		failing[kind]++
		if !c.Degrades {
			ready = 0
		}
	}
	return ready, failing
}

package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/app"
	"github.com/pushlease/pushlease/internal/config"
)

// BenchmarkDrain delivers a full queue with the server in this process, so that its CPU
// and allocations can be profiled; receiver and stand-in are processes of their own:
//
//	go test -run '^$' -bench Drain/sqlite -benchtime 1x -cpuprofile cpu.out ./cmd/pushlease-bench
func BenchmarkDrain(b *testing.B) {
	b.Run("sqlite", func(b *testing.B) { benchmarkDrain(b, options{Storage: sqliteStorage}) })
	b.Run("standin", func(b *testing.B) { benchmarkDrain(b, options{Storage: standinStorage}) })
}

// profiled is how many messages one iteration delivers: seconds of work, so that a
// profile has enough samples.
const profiled = 10_000

func benchmarkDrain(b *testing.B, o options) {
	run := drainInProcess(b, o)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		s := run.filled(b, profiled)
		b.StartTimer()
		runApp(b, s, func() error {
			_, err := run.receiver.stats(b.Context(), profiled)
			b.StopTimer()
			return err
		})
	}
	b.ReportMetric(float64(profiled*b.N)/b.Elapsed().Seconds(), "messages/s")
}

// drainInProcess starts what a drain needs beside the server.
func drainInProcess(t testing.TB, o options) *bench {
	o.Size, o.Concurrency = 1024, 64
	run := &bench{options: o, report: newReport(o), out: io.Discard, work: t.TempDir()}
	var err error
	if o.Storage == standinStorage {
		if run.standin, err = startStandin(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = run.standin.close() })
	}
	if run.receiver, err = startReceiver(t.Context(), 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = run.receiver.close() })
	return run
}

// filled is a storage with so many messages for one webhook.
func (b *bench) filled(t testing.TB, count int) storage {
	s := b.fresh()
	err := s.with(t.Context(), func(st store) error {
		if err := st.register(t.Context(), s.queue(), b.receiver.URL, 1, b.Concurrency); err != nil {
			return err
		}
		return st.fill(t.Context(), s.queue(), count, b.Size)
	})
	if err == nil {
		err = b.receiver.reset(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What a delivered message allocates is most of what there is to collect, and grows unseen. It is counted while a backlog is delivered, after
// the beginning. The race detector, which empties pools at random, adds a tenth, and so do smaller
// batches on a busy machine. To do with less is to lower the bounds.
func TestADeliveredMessageAllocatesLittle(t *testing.T) {
	const begun, count = 250, 2000
	for kind, most := range map[string]float64{sqliteStorage: 125, standinStorage: 280} {
		run := drainInProcess(t, options{Storage: kind})
		runApp(t, run.filled(t, count), func() error {
			var before, after runtime.MemStats
			if _, err := run.receiver.stats(t.Context(), begun); err != nil {
				return err
			}
			runtime.ReadMemStats(&before)
			if _, err := run.receiver.stats(t.Context(), count); err != nil {
				return err
			}
			runtime.ReadMemStats(&after)
			each := float64(after.Mallocs-before.Mallocs) / (count - begun)
			if t.Logf("%s: %.1f allocations of %.1f kB", kind, each, float64(after.TotalAlloc-before.TotalAlloc)/1000/(count-begun)); each > most {
				t.Errorf("%s: %.1f allocations for a message, which are more than %.0f", kind, each, most)
			}
			return nil
		})
	}
}

// runApp runs the server in this process while do does something.
func runApp(b testing.TB, s storage, do func() error) {
	cfg, err := config.Load(nil, append(s.env(), "PUSHLEASE_LISTEN=127.0.0.1:0", "PUSHLEASE_DEV=true", "PUSHLEASE_DRAIN=5s",
		fmt.Sprintf("PUSHLEASE_INSTANCE=%s", filepath.Base(s.prefix))))
	if err != nil {
		b.Fatal(err)
	}
	a, err := app.New(b.Context(), cfg, app.Options{Version: "bench", LogOutput: io.Discard})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	err = do()
	cancel()
	select {
	case runErr := <-done:
		if err != nil || runErr != nil {
			b.Fatal(err, runErr)
		}
	case <-time.After(30 * time.Second):
		b.Fatal("the server does not stop")
	}
}

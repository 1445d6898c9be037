package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
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
	ctx := b.Context()
	o.Count, o.Size, o.Concurrency = profiled, 1024, 64
	run := &bench{options: o, report: newReport(o), out: io.Discard, work: b.TempDir()}
	var err error
	if o.Storage == standinStorage {
		if run.standin, err = startStandin(ctx, 0); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = run.standin.close() })
	}
	if run.receiver, err = startReceiver(ctx, 0, ""); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = run.receiver.close() })
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		b.StopTimer()
		s := run.fresh()
		err := s.with(ctx, func(st store) error {
			if err := st.register(ctx, s.queue(), run.receiver.URL, 1, o.Concurrency); err != nil {
				return err
			}
			return st.fill(ctx, s.queue(), o.Count, o.Size)
		})
		if err == nil {
			err = run.receiver.reset(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		runApp(b, s, func() error {
			_, err := run.receiver.stats(ctx, o.Count)
			return err
		})
	}
	b.ReportMetric(float64(profiled*b.N)/b.Elapsed().Seconds(), "messages/s")
}

// runApp runs the server in this process while do does something.
func runApp(b *testing.B, s storage, do func() error) {
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
	b.StopTimer()
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

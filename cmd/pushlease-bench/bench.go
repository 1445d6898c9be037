package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// bench is one run.
type bench struct {
	options
	*report
	out      io.Writer
	work     string // folder for databases and logs
	receiver *receiverProcess
	standin  *standinProcess
	names    int
}

// measure runs the scenarios and prints what they found.
func measure(ctx context.Context, o options, out io.Writer) (err error) {
	b := &bench{options: o, report: newReport(o), out: out}
	if o.quick {
		b.note("--quick has too few messages to judge the targets by: most of such a run is its beginning")
	}
	if load := loadAverage(); load > float64(b.CPUs)/2 {
		b.note("the machine was busy with other work before the run (load average %.1f on %d CPUs): believe ratios, and CPU figures more than rates", load, b.CPUs)
	}
	if b.work, err = os.MkdirTemp(o.dir, "pushlease-bench-"); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.work)) }()
	if b.binary == "" {
		b.say("building the server")
		if b.binary, err = build(ctx, b.work); err != nil {
			return err
		}
	}
	for _, path := range []*string{&b.binary, &b.baseline} {
		if *path != "" {
			if *path, err = filepath.Abs(*path); err != nil {
				return fmt.Errorf("find the server: %w", err)
			}
		}
	}
	if o.Storage == standinStorage {
		if b.standin, err = startStandin(ctx, o.Latency); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.standin.close()) }()
		if err := b.standin.limit(ctx, o.Limits); err != nil {
			return err
		}
	}
	if b.receiver, err = startReceiver(ctx, o.Delay, o.Answers); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.receiver.close()) }()
	if err := b.play(ctx); err != nil {
		return err
	}
	b.Took = time.Since(b.Started).Seconds()
	if !o.quick {
		b.judge(bounds(o))
	}
	b.print(out)
	if o.json != "" {
		return b.write(o.json)
	}
	return nil
}

// play runs the scenarios in the order in which they need one another.
func (b *bench) play(ctx context.Context) error {
	for _, s := range []struct {
		name string
		run  func(context.Context) error
	}{
		{drainScenario, b.drains},
		{latencyScenario, b.latencies},
		{neighboursScenario, b.neighbours},
		{limitedScenario, b.limited},
		{startScenario, b.starts},
		{memoryScenario, b.memories},
		{recoveryScenario, b.recoveries},
		{idleScenario, b.idles},
		{depthScenario, b.depths},
		{webhooksScenario, b.manyWebhooks},
		{historyScenario, b.histories},
		{checkpointsScenario, b.checkpoints},
	} {
		if !slices.Contains(b.Scenarios, s.name) {
			continue
		}
		if err := s.run(ctx); err != nil {
			return fmt.Errorf("scenario %s: %w", s.name, err)
		}
	}
	return nil
}

// say tells how far the run is.
func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.out, "… "+format+"\n", args...)
}

// fresh is a storage that nothing was done with; its name goes into files and tables.
func (b *bench) fresh() storage {
	b.names++
	name := fmt.Sprintf("bench%x%02d", b.Started.Unix()&0xffffff, b.names)
	switch {
	case b.standin != nil:
		return storage{setting: b.standin.Connection, prefix: name}
	case b.connection != "":
		return storage{setting: b.connection, prefix: name}
	}
	return storage{setting: "sqlite:" + filepath.Join(b.work, name+".db"), prefix: name}
}

// queue is a queue's name that belongs to a storage.
func (s storage) queue() string { return "q-" + s.prefix }

// remove deletes a file that is not needed any more: a deep one has gigabytes.
func (s storage) remove() error {
	path, ok := strings.CutPrefix(s.setting, "sqlite:")
	if !ok {
		return nil
	}
	var errs []error
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// receiverProcess is the receiver, running.
type receiverProcess struct {
	*child
	addresses
	client *http.Client
}

func startReceiver(ctx context.Context, delay time.Duration, answers string) (*receiverProcess, error) {
	t := &receiverProcess{client: &http.Client{}}
	var err error
	t.child, err = startRole(ctx, nil, &t.addresses, "receive", "-delay", delay.String(), "-answers", answers)
	return t, err
}

// reset forgets the POSTs so far.
func (t *receiverProcess) reset(ctx context.Context) error {
	return askControl(ctx, t.client, http.MethodPost, t.Control+"/reset", nil)
}

// stats waits until at POSTs have come, or ctx ends.
func (t *receiverProcess) stats(ctx context.Context, at int) (arrivalStats, error) {
	var s arrivalStats
	err := askControl(ctx, t.client, http.MethodGet, fmt.Sprintf("%s/stats?at=%d", t.Control, at), &s)
	return s, err
}

func askControl(ctx context.Context, client *http.Client, method, url string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return fmt.Errorf("ask a child process: %w", err)
	}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask a child process: %w", err)
	}
	defer func() { _ = res.Body.Close() }() // read to its end
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(res.Body).Decode(into); err != nil {
		return fmt.Errorf("ask a child process: %w", err)
	}
	return nil
}

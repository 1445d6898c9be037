package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// peer is another program that takes messages from a queue and POSTs them.
type peer struct{ name, command string }

// What a peer is told, in its environment. Its queue holds texts as they are to be POSTed.
const (
	peerURL     = "PEER_URL"
	peerQueue   = "PEER_QUEUE"
	peerStorage = "PEER_STORAGE" // a connection string of Azure storage
)

func parsePeer(text string) (peer, error) {
	name, command, ok := strings.Cut(text, "=")
	if !ok || name == "" || command == "" {
		return peer{}, errors.New("write name=command")
	}
	return peer{name, command}, nil
}

// drainByPeer has a peer empty a full queue, and measures it as a server is. It ends as with kill -9.
func (b *bench) drainByPeer(ctx context.Context, p peer) (d drained, err error) {
	s := b.fresh()
	err = s.with(ctx, func(st store) error { return b.fill(ctx, st, s.queue(), b.Count) })
	if err == nil {
		err = b.resetCounts(ctx)
	}
	if err != nil {
		return d, err
	}
	ctx, cancel := context.WithTimeout(ctx, drainBound)
	defer cancel()
	log, err := os.Create(filepath.Join(b.work, "peer.log"))
	if err != nil {
		return d, fmt.Errorf("make the peer's log: %w", err)
	}
	defer func() { _ = log.Close() }()                             // the process has its own handle
	cmd := exec.CommandContext(ctx, "sh", "-c", "exec "+p.command) //nolint:gosec // the command that the user gave
	cmd.Env = append(cleanEnvironment(), peerURL+"="+b.receiver.URL, peerQueue+"="+s.queue(), peerStorage+"="+s.setting)
	cmd.Stdout, cmd.Stderr = log, log
	stdin, err := cmd.StdinPipe() // open for as long as it is to go on
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return d, fmt.Errorf("start: %w", err)
	}
	going, stop := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait() // it is killed, or its log says why it ended
		text, _ := os.ReadFile(log.Name())
		stop(fmt.Errorf("it ended, and said\n%s", text[max(0, len(text)-2000):]))
	}()
	defer func() {
		_ = cmd.Process.Kill()
		_ = stdin.Close()
		<-ended
	}()
	used, err := b.begun(going, cmd.Process.Pid, b.Count)
	if err == nil {
		var came arrivalStats
		came, err = b.receiver.stats(going, b.Count)
		d.rate = rateOf(came, b.Count)
	}
	if err == nil && b.standin != nil {
		d.wire, err = b.deleted(going)
	}
	d.cpu = used.each(b.Count)
	if cause := context.Cause(going); err != nil && cause != nil {
		return d, cause
	}
	return d, err
}

// deleted waits until all messages were deleted, and returns the transactions for 1,000 of them.
func (b *bench) deleted(ctx context.Context) (map[string]float64, error) {
	for {
		counts, err := b.standin.counts(ctx)
		if err != nil || counts["queue delete"] >= float64(b.Count) {
			return perThousand(counts, b.Count), err
		}
		if err := sleep(ctx, busyPause); err != nil {
			return nil, err
		}
	}
}

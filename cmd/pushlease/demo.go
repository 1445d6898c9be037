package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/internal/app"
	"github.com/pushlease/pushlease/internal/config"
)

// demoLease is short, so that a slow receiver outlives it within seconds.
const demoLease = 3 * time.Second

// demoTimeout bounds the whole story; it takes about fifteen seconds.
const demoTimeout = 90 * time.Second

type demoCommand struct {
	exit bool
}

func newDemoCommand() *cobra.Command {
	c := &demoCommand{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See the main job end to end, with nothing to set up",
		Long: `Starts a real server on an embedded file in a temporary folder and a receiver on
this machine, registers webhooks over the REST API, publishes messages, and shows
what happens to each: one is delivered, one is answered 503 with Retry-After and then
200, one is refused with 400 and becomes a dead letter, and one takes longer than its
first lease.

It then stays up, so that you can try the API with curl, until Ctrl-C.`,
		Example: "  pushlease demo\n  pushlease demo --exit",
		Args:    arguments(0, 0, ""),
		RunE:    c.run,
	}
	cmd.Flags().BoolVar(&c.exit, "exit", false, "end at once after the summary; with 1 if anything did not end as it should")
	return cmd
}

func (c *demoCommand) run(cmd *cobra.Command, _ []string) (err error) {
	folder, err := os.MkdirTemp("", "pushlease-demo-")
	if err != nil {
		return fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	logFile, err := os.Create(filepath.Join(folder, "server.log")) //nolint:gosec // a folder of our own
	if err != nil {
		return fmt.Errorf("make the server's log: %w", err)
	}
	defer func() { err = errors.Join(err, logFile.Close()) }()

	// The server and the receiver outlive ctx: they are stopped below, in order.
	ctx, cancel := context.WithCancel(context.WithoutCancel(cmd.Context()))
	defer cancel()
	server, stopServer, err := startDemoServer(ctx, folder, logFile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer()) }()

	d := &demo{out: cmd.OutOrStdout(), api: &client{server: server}, started: time.Now()}
	stopReceiver, err := d.startReceiver(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopReceiver()) }()

	d.printf("pushlease demo\n\n  server    %s  (embedded file, lease %s; its log: %s)\n  receiver  %s\n\n", server, demoLease, logFile.Name(), d.receiverURL)
	storyCtx, endStory := context.WithTimeout(cmd.Context(), demoTimeout)
	defer endStory()
	failed := d.play(storyCtx)
	if cmd.Context().Err() != nil {
		return nil // Ctrl-C
	}
	d.summary(failed)
	if c.exit {
		if failed != nil {
			return silentError{}
		}
		return nil
	}
	d.invite()
	<-cmd.Context().Done()
	d.printf("\nstopping\n")
	return nil
}

// startDemoServer runs the same server as serve, on a port of its own. The usual
// port is taken when it is free, so that the lines to paste are the usual ones.
func startDemoServer(ctx context.Context, folder string, log io.Writer) (url string, stop func() error, err error) {
	for _, listen := range []string{"127.0.0.1:8080", "127.0.0.1:0"} {
		var cfg config.Config
		cfg, err = config.Load(nil, []string{
			"PUSHLEASE_STORAGE=sqlite:" + filepath.Join(folder, "demo.db"),
			"PUSHLEASE_LISTEN=" + listen,
			"PUSHLEASE_DEV=true",
			"PUSHLEASE_LEASE=" + demoLease.String(),
			"PUSHLEASE_POLL_MAX=1s",
			"PUSHLEASE_DRAIN=5s",
			"PUSHLEASE_INSTANCE=demo",
		})
		if err != nil {
			return "", nil, err
		}
		var a *app.App
		a, err = app.New(ctx, cfg, app.Options{Version: buildVersion(), LogOutput: log})
		if err != nil {
			continue
		}
		runCtx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- a.Run(runCtx) }()
		return a.URL(), func() error { cancel(); return <-done }, nil
	}
	return "", nil, err
}

// startReceiver serves one scripted webhook per scene.
func (d *demo) startReceiver(ctx context.Context) (stop func() error, err error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the receiver: %w", err)
	}
	d.receiverURL = "http://" + l.Addr().String()
	d.scenes = demoScenes()
	runCtx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- serveReceiver(runCtx, l, d.receivers()) }()
	return func() error { cancel(); return <-done }, nil
}

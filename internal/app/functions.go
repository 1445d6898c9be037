package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/pushlease/pushlease/functions"
	"github.com/pushlease/pushlease/internal/config"
)

// FunctionsExecutable is the program's name in a packaged app.
const FunctionsExecutable = functions.Executable

// FunctionsPackage returns the files of a packaged app, but for the program.
func FunctionsPackage(queues []string) (map[string][]byte, error) { return functions.Package(queues) }

// FunctionsJSON makes JSON of a file that the host and its tools read.
func FunctionsJSON(text []byte) []byte { return functions.PlainJSON(text) }

// CheckFunctions compares a packaged app with what pushlease needs.
func CheckFunctions(root fs.FS, env functions.Environment) ([]functions.Deviation, error) {
	return functions.Check(root, env)
}

// FunctionsCrowded is how many messages the host of a packaged app may bring at a time, where that is
// more than maxInFlight; otherwise 0.
func FunctionsCrowded(root fs.FS, env functions.Environment, maxInFlight int) int {
	layout, err := functions.ReadLayout(root, env)
	if err != nil {
		return 0 // CheckFunctions tells
	}
	return layout.Crowded(maxInFlight)
}

// FunctionsConnections are the settings that a packaged app's queue triggers name as their storage.
func FunctionsConnections(root fs.FS, env functions.Environment) []string {
	layout, err := functions.ReadLayout(root, env)
	if err != nil {
		return nil // CheckFunctions tells
	}
	return layout.Connections()
}

// ErrStopped is how RunFunctions ends when it was asked to stop.
var ErrStopped = errors.New("stopped")

// FunctionsOptions are what the Functions host and its environment decide.
type FunctionsOptions struct {
	Options
	// Port is where the host expects an answer, on 127.0.0.1.
	Port string
	// Root is the app's folder, with host.json and the functions.
	Root fs.FS
	// Getenv is where the host's settings come from.
	Getenv functions.Environment
	// Config reads the settings; it is called when the port is open.
	Config func() (config.Config, error)
	// Parent is the id of the parent process, which changes when that has ended; nil where
	// nobody is to be outlived.
	Parent func() int
}

// parentEvery is how often it is looked whether the host is still there.
const parentEvery = time.Second

// firstCall is how long it may take at most until the host calls for the first time. It waits for
// 30 s itself, and starts another process then.
const firstCall = 2 * time.Minute

// orphaned is closed when the host has ended. It tells nobody: a host that is killed leaves this
// process behind, and so does one that is stopped with a long POST in flight. One that had ended
// before its id was read here is known by never having called.
func (o FunctionsOptions) orphaned(ctx context.Context, called <-chan struct{}) <-chan struct{} {
	gone := make(chan struct{})
	if o.Parent == nil {
		return gone
	}
	host := o.Parent()
	go func() {
		look, patience := time.NewTicker(parentEvery), time.NewTimer(firstCall)
		defer look.Stop()
		defer patience.Stop()
		for o.Parent() == host {
			select {
			case <-ctx.Done():
				return
			case <-look.C:
				continue
			case <-patience.C:
			}
			select {
			case <-called:
			default:
				close(gone)
				return
			}
		}
		close(gone)
	}()
	return gone
}

// RunFunctions is one process under the Azure Functions host, until ctx ends or it can't
// go on. The port is open before anything else is looked at: the host kills what does
// not answer soon, and what is wrong then could not be told.
func RunFunctions(ctx context.Context, o FunctionsOptions) error {
	if _, err := strconv.ParseUint(o.Port, 10, 16); err != nil {
		return fmt.Errorf("the Functions host's port %q is no number from 0 to 65535", o.Port)
	}
	addr := net.JoinHostPort("127.0.0.1", o.Port)
	watched, unwatch := context.WithCancel(ctx)
	defer unwatch()
	listen := o.Outside.Listen
	if listen == nil {
		listen = (&net.ListenConfig{}).Listen
	}
	listener, err := listenWhenFree(ctx, listen, addr)
	if err != nil {
		return fmt.Errorf("listen where the Functions host expects it: %w", err)
	}
	layout, layoutErr := functions.ReadLayout(o.Root, o.Getenv)
	handler := functions.New(addr, layout)
	orphaned := o.orphaned(watched, handler.Called())
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: 3 * time.Minute, // longer than the host keeps its idle connections
		ErrorLog:    slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { _ = server.Close() }() // it was shut down before, or nobody is to be waited for

	cfg, err := o.Config()
	if err != nil {
		return err
	}
	others := layout.Others()
	o.hosted = func(name string) bool { return slices.Contains(others, name) }
	o.lookGap = func(name string) time.Duration { return layout.LookGap(name, cfg.FunctionsPoller) }
	a, err := New(ctx, cfg, o.Options)
	if err != nil {
		return err
	}
	a.readiness.asText, a.readiness.idle = layout.AsText(), layout.Idle(cfg.FunctionsPoller)
	if len(layout.Queues()) > 0 {
		a.readiness.takenAway = layout.TakenAway
	}
	if layoutErr != nil {
		a.log.Error("the app's folder is not as it should be; pushlease doctor tells more", "error", layoutErr)
	}
	a.log.Info("pushlease is up as a custom handler", "url", "http://"+addr, "storage", cfg.Storage.String(), "instance", cfg.Instance,
		"queue_triggers", layout.Queues(), "function_timeout", layout.Timeout, "api_keys", len(cfg.APIKeys))
	if brings := layout.Crowded(cfg.MaxInFlight); brings > 0 {
		a.log.Warn("max_in_flight is below what the host may bring at a time: what comes beyond it is given back, and comes again later; raise max_in_flight, or lower batchSize and newBatchThreshold in host.json",
			"max_in_flight", cfg.MaxInFlight, "host_brings", brings)
	}
	return a.runHosted(ctx, orphaned, server, served, handler)
}

// A port that is given by host.json, and not chosen by the host, may be taken for a moment: the
// process of a host that was killed keeps it until it sees that. The host waits for 30 s.
const (
	portPatience = 5 * time.Second
	portEvery    = 100 * time.Millisecond
)

// listenWhenFree listens at addr, which may be taken for up to portPatience.
func listenWhenFree(ctx context.Context, listen func(ctx context.Context, network, address string) (net.Listener, error), addr string) (net.Listener, error) {
	for start := time.Now(); ; {
		listener, err := listen(ctx, "tcp4", addr)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(start) > portPatience {
			return listener, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(portEvery):
		}
	}
}

// runHosted ends with ErrStopped when it was asked to. It drains as Run does: nothing new is
// received or begun, and what is in flight, the host's invocations and what was polled, is finished
// within one drain bound and then cut short.
func (a *App) runHosted(ctx context.Context, orphaned <-chan struct{}, server *http.Server, served <-chan error, handler *functions.Handler) error {
	runCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	stopEvents := a.events.start(a.dispatcher.Wake)
	run := a.dispatcher.RunHosted
	if a.cfg.FunctionsPoller {
		run = a.dispatcher.RunBeside
	}
	parts := a.runParts(runCtx, func(ctx context.Context) { run(ctx, handler.Finish) })
	a.house.sas.look(time.Now()) // nobody may call for housekeeping for a while
	handler.Start(functions.Parts{
		Dispatcher: a.dispatcher, Queues: a.stores.queues, API: a.api,
		Housekeep: a.house.round, Log: a.log,
	})
	var failed error
	select {
	case <-ctx.Done():
		failed = ErrStopped
	case <-orphaned:
		a.log.Warn("the Functions host has ended and left this process behind")
		failed = ErrStopped
	case err := <-served:
		failed = fmt.Errorf("serve: %w", err)
	}
	a.readiness.draining.Store(true)
	a.log.Info("stopping: nothing new is begun; what is in flight is finished", "drain", a.cfg.Drain)
	stop()
	sent, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Drain+2*closeBound)
	defer cancel()
	if err := server.Shutdown(sent); err != nil { // the port is closed at once
		a.log.Warn("requests were cut short", "error", err)
	}
	parts.Wait()
	stopEvents()
	return a.close(ctx, failed)
}

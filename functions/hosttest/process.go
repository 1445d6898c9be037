package hosttest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// handler is one process of the app. Its parent is a shell that stands for the host's process:
// the process of the tests can't be killed.
type handler struct {
	cmd  *exec.Cmd // the shell
	pid  int
	addr string
	up   chan struct{} // closed when it has answered
	gone chan struct{} // closed when it has ended
	// expected: the host killed it on purpose.
	expected bool
	// unneeded is closed when it has ended with 0: the host goes on without one.
	unneeded chan struct{}
}

// errNoHandler: the handler ended with 0, and there is none any more.
var errNoHandler = errors.New("there is no handler any more")

// kill ends the process, not its parent.
func (p *handler) kill() {
	select {
	case <-p.gone: // its number may be another's by now
	default:
		_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended
	}
}

// freeAddress is one that a handler can listen at. It keeps it when it is started again.
func freeAddress() string {
	free, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		panic(err) // without loopback nothing can be tested
	}
	defer free.Close() // only its number is of interest
	return free.Addr().String()
}

// launch starts a process and watches it.
func (h *Host) launch(l life, addr string) {
	_, port, _ := net.SplitHostPort(addr)
	id, p := newGUID(), &handler{addr: addr, up: make(chan struct{}), gone: make(chan struct{}), unneeded: make(chan struct{})}
	p.cmd = exec.Command("/bin/sh", append([]string{"-c", parentScript, h.app.executable}, h.app.arguments...)...)
	p.cmd.Dir = h.o.Root
	p.cmd.Env = h.handlerEnvironment(port, id)
	p.cmd.Stdout, p.cmd.Stderr = &h.log.out, &h.log.err
	start := time.Now()
	h.mu.Lock()
	if l.ctx.Err() != nil {
		h.mu.Unlock()
		return
	}
	err := p.start()
	if err == nil {
		h.handler = p
	}
	h.mu.Unlock()
	if err != nil {
		h.halt(fmt.Errorf("start the handler: %w", err))
		return
	}
	l.work.Go(func() { h.watch(l, p) })
	l.work.Go(func() { h.probe(l, p, start) })
}

// handlerEnvironment is a handler's.
func (h *Host) handlerEnvironment(port, id string) []string {
	return append(h.environment(),
		"FUNCTIONS_CUSTOMHANDLER_PORT="+port, "FUNCTIONS_HTTPWORKER_PORT="+port,
		"FUNCTIONS_CUSTOMHANDLER_WORKER_ID="+id, "FUNCTIONS_HTTPWORKER_ID="+id, "FUNCTIONS_APP_ROOT_PATH="+h.o.Root)
}

// parentScript starts the handler, tells its id, and ends as it does; SIGTERM changes nothing about that.
// The shell's own words about it are not the handler's.
const parentScript = `trap : TERM; exec 4>&2 2>/dev/null; "$0" "$@" 2>&4 3>&- 4>&- & exec 4>&-; p=$!; echo $p >&3; exec 3>&-
wait $p; c=$?; while kill -0 $p; do wait $p; c=$?; done; exit $c`

// start starts the shell and with it the handler, whose id the shell tells.
func (p *handler) start() error {
	tell, told, err := os.Pipe()
	if err != nil {
		return err
	}
	defer tell.Close()
	p.cmd.ExtraFiles = []*os.File{told}
	err = p.cmd.Start()
	_ = told.Close() // the shell has its own
	if err == nil {
		_, err = fmt.Fscan(tell, &p.pid)
	}
	return err
}

// probe asks every 25 ms until anything answers.
func (h *Host) probe(l life, p *handler, start time.Time) {
	for time.Since(start) < h.app.initTime {
		resp, err := h.client.Get("http://" + p.addr + "/")
		if err == nil {
			_ = resp.Body.Close()
			h.mu.Lock()
			h.started = append(h.started, time.Since(start))
			h.mu.Unlock()
			close(p.up)
			return
		}
		select {
		case <-time.After(25 * time.Millisecond):
		case <-p.gone:
			return
		case <-l.ctx.Done():
			return
		}
	}
	p.kill() // which counts as an error, and the third one ends the host
}

// watch waits for the process's end and does what the host does about it.
func (h *Host) watch(l life, p *handler) {
	_ = p.cmd.Wait() // its code is looked at
	close(p.gone)
	code := p.cmd.ProcessState.ExitCode()
	h.mu.Lock()
	expected := p.expected
	if !expected && code != 0 && code != 200 {
		if time.Since(h.lastFail) > 30*time.Minute {
			h.failures = 0
		}
		h.failures++
		h.lastFail = time.Now()
	}
	failures := h.failures
	h.mu.Unlock()
	switch {
	case l.ctx.Err() != nil:
	case !expected && code == 0:
		close(p.unneeded)
	case failures >= maxFailures:
		h.halt(fmt.Errorf("the handler ended %d times, the last time with %d", failures, code))
	default:
		h.launch(l, p.addr)
	}
}

// overrun is the end of a handler one of whose invocations took too long. Its other invocations
// have a moment to end.
func (h *Host) overrun(l life, p *handler) {
	h.mu.Lock()
	p.expected = true
	h.mu.Unlock()
	l.work.Go(func() {
		select {
		case <-time.After(grace):
		case <-l.ctx.Done():
		}
		p.kill()
	})
}

// ready waits for a handler that answers, as invocations do.
func (h *Host) ready(ctx context.Context) (*handler, error) {
	deadline := time.After(4 * h.app.initTime)
	for {
		h.mu.Lock()
		p := h.handler
		h.mu.Unlock()
		if p == nil {
			return nil, errors.New("no handler was ever started")
		}
		select { // one that was up may have ended since
		case <-p.unneeded:
			return nil, errNoHandler
		default:
		}
		select {
		case <-p.unneeded:
			return nil, errNoHandler
		case <-p.gone:
		case <-p.up:
			return p, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-deadline:
			err := errors.New("no handler came up in time")
			h.halt(err)
			return nil, err
		}
		select { // a new one is on its way
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

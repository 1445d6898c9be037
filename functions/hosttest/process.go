package hosttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
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
	// reads are the host's ends of standard output and error, and logged the copying from them.
	reads  []*os.File
	logged sync.WaitGroup
	// alive ends when the shell and the process have ended, which both have its other end.
	alive *os.File
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

// ownAddress is one that a handler can listen at, and again when it is started again. Nobody else is given
// it before free is called: a test's receiver that came to listen there while no handler did was taken for it.
func ownAddress() (addr string, free func()) {
	addr, free, err := reserve()
	if err != nil {
		panic(err) // without loopback nothing can be tested
	}
	if runtime.GOOS != "linux" { // elsewhere the handler would not be let in either
		free()
		free = func() {}
	}
	return addr, free
}

// reserve binds a socket to a port and does not listen: who asks for any port gets another one, and who asks for this one, as a
// handler does, is let in because both say that they share it, as Go's listeners always do.
func reserve() (addr string, free func(), err error) {
	syscall.ForkLock.RLock()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(socket)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return "", nil, err
	}
	free = func() { _ = syscall.Close(socket) } // nothing was written
	var at syscall.Sockaddr
	if err = syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	if err == nil {
		at, err = syscall.Getsockname(socket)
	}
	if err != nil {
		free()
		return "", nil, err
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port), free, nil
}

// launch starts a process and watches it.
func (h *Host) launch(l life, addr string) {
	_, port, _ := net.SplitHostPort(addr)
	id, p := newGUID(), &handler{addr: addr, up: make(chan struct{}), gone: make(chan struct{}), unneeded: make(chan struct{})}
	env := h.handlerEnvironment(port, id)
	p.cmd = exec.Command("/bin/sh", slices.Concat([]string{"-c", parentScript, "env"}, unnamable(env), []string{h.app.executable}, h.app.arguments)...)
	p.cmd.Dir = h.o.Root
	p.cmd.Env = env
	start := time.Now()
	h.mu.Lock()
	if l.ctx.Err() != nil {
		h.mu.Unlock()
		return
	}
	to := &h.log
	if h.o.Unread {
		to = nil
	}
	err := p.start(to)
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

// unnamable are the settings that no shell passes on, such as AzureWebJobs.api.Disabled.
func unnamable(env []string) (settings []string) {
	for _, line := range env {
		if name, _, _ := strings.Cut(line, "="); strings.ContainsAny(name, ".-:") {
			settings = append(settings, line)
		}
	}
	return settings
}

// parentScript starts the handler, tells its id, and ends as it does; SIGTERM changes nothing about that.
// The shell's own words about it are not the handler's.
const parentScript = `trap : TERM; exec 4>&2 2>/dev/null; "$0" "$@" 2>&4 3>&- 4>&- & exec 4>&-; p=$!; echo $p >&3; exec 3>&-
wait $p; c=$?; while kill -0 $p; do wait $p; c=$?; done; exit $c`

// start starts the shell and with it the handler, whose id the shell tells. What it writes goes to to, or
// is read by nobody.
func (p *handler) start(to *log) error {
	var ours, theirs []*os.File
	defer func() {
		for _, f := range theirs {
			_ = f.Close() // the processes have their own
		}
	}()
	for range 4 {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		ours, theirs = append(ours, r), append(theirs, w)
	}
	p.reads, p.alive = ours[:2], ours[2]
	defer ours[3].Close()
	p.cmd.Stdout, p.cmd.Stderr = theirs[0], theirs[1]
	p.cmd.ExtraFiles = []*os.File{theirs[3], nil, theirs[2]} // 3, and 5, which the handler has too
	if err := p.cmd.Start(); err != nil {
		return err
	}
	if to != nil {
		for i, into := range []io.Writer{&to.out, &to.err} {
			p.logged.Go(func() { _, _ = io.Copy(into, ours[i]) }) // until unread, or its end
		}
	}
	_, err := fmt.Fscan(ours[3], &p.pid)
	return err
}

// unread closes the host's ends of what the handler writes to, as they are when the host has ended.
func (p *handler) unread() {
	for _, f := range p.reads {
		_ = f.Close() // a second time when the handler has ended
	}
}

// wait returns when the handler has ended, and the shell too.
func (p *handler) wait() {
	_ = p.cmd.Wait() // its code is looked at
	_, _ = io.Copy(io.Discard, p.alive)
	p.logged.Wait()
	p.unread()
	_ = p.alive.Close()
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
	p.wait()
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

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// child is this program in one of its roles.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
}

// startRole starts this program in a role and decodes the first line that it prints.
func startRole(ctx context.Context, env []string, first any, args ...string) (*child, error) {
	c, err := beginRole(ctx, env, args...)
	if err != nil {
		return nil, err
	}
	if err := c.decode(first); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", args[0], err), c.close())
	}
	return c, nil
}

// beginRole starts this program in a role. Environment lines in env go to it: a connection string must not be an argument, which
// every user of the machine can see.
func beginRole(ctx context.Context, env []string, args ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	c := &child{cmd: exec.CommandContext(ctx, self, args...)} //nolint:gosec // it is this program
	c.cmd.Env = append(cleanEnvironment(), env...)
	c.cmd.Stderr = os.Stderr
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	c.stdin, c.out = stdin, bufio.NewReader(stdout)
	return c, nil
}

func (c *child) decode(into any) error {
	line, err := c.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("it ended without an answer: %w", err)
	}
	return json.Unmarshal(line, into)
}

// close ends the child, which leaves when its standard input does.
func (c *child) close() error {
	_ = c.stdin.Close() // it is gone already, or hears it
	stop := time.AfterFunc(5*time.Second, func() { _ = c.cmd.Process.Kill() })
	defer stop.Stop()
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("end of a child process: %w", err)
	}
	return nil
}

// cleanEnvironment is this machine's, without what would change the server's settings.
func cleanEnvironment() []string {
	var env []string
	for _, line := range os.Environ() {
		name, _, _ := strings.Cut(line, "=")
		if !strings.HasPrefix(name, "PUSHLEASE_") && !strings.HasPrefix(name, "OTEL_") &&
			!strings.HasPrefix(name, "FUNCTIONS_") && !strings.HasPrefix(name, "AzureWebJobs") {
			env = append(env, line)
		}
	}
	return env
}

// ticksPerSecond is the unit of the times in /proc/<pid>/stat: USER_HZ, which is 100 on
// every Linux that Go runs on. Source: proc(5), sysconf(3).
const ticksPerSecond = 100

// cpuSeconds is what a process has used, in user and kernel mode, to 10 ms; 0 where there
// is no /proc.
func cpuSeconds(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field is the name in parentheses, which may hold anything.
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, errUser := strconv.ParseFloat(fields[11], 64)
	system, errSystem := strconv.ParseFloat(fields[12], 64)
	if errUser != nil || errSystem != nil {
		return 0
	}
	return (user + system) / ticksPerSecond
}

// usage is what a process had used when the first of its POSTs had come: its start is no cost of a message.
type usage struct {
	pid   int
	cpu   float64
	posts int
}

// begun waits for a tenth of the POSTs of a process.
func (b *bench) begun(ctx context.Context, pid, posts int) (usage, error) {
	s, err := b.receiver.stats(ctx, max(posts/10, 1))
	return usage{pid, cpuSeconds(pid), s.Count}, err
}

// each is what it has used since for 1,000 of its POSTs, in seconds, when all have come.
func (u usage) each(posts int) float64 {
	if posts == u.posts {
		return 0
	}
	return (cpuSeconds(u.pid) - u.cpu) / float64(posts-u.posts) * 1000
}

// loadAverage is how many processes wanted to run, on average of the last minute; 0 where
// there is no /proc.
func loadAverage() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}

// memory is the resident set of a process, now and at its highest, in MB; 0 where there
// is no /proc.
func memory(pid int) (now, peak float64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		kilobytes, err := strconv.ParseFloat(fields[0], 64)
		switch {
		case err != nil:
		case name == "VmRSS":
			now = kilobytes / 1024
		case name == "VmHWM":
			peak = kilobytes / 1024
		}
	}
	return now, peak
}

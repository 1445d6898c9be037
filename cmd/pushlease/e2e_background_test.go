//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// As the README starts it: in the background of a shell on a terminal, where who reads the terminal is stopped.
func TestListenServesInTheBackgroundOfATerminal(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	terminal := newTerminal(t, "")
	cmd := exec.CommandContext(ctx, "sh", "-c", `set -m; "$1" listen --port 0 & echo "job $!" >&2; wait`, "sh", path)
	cmd.Dir, cmd.Env, cmd.Stdin = t.TempDir(), environment(), terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // standard input is its terminal
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var url string
	var job int
	for lines := bufio.NewScanner(said); (url == "" || job == 0) && lines.Scan(); {
		if m := regexp.MustCompile(`Receiving on (http://\S+)`).FindStringSubmatch(lines.Text()); m != nil {
			url = m[1]
		}
		_, _ = fmt.Sscanf(lines.Text(), "job %d", &job) // another line
	}
	if url == "" || job == 0 {
		t.Fatal("it does not say where it receives")
	}
	t.Cleanup(func() {
		_ = syscall.Kill(job, syscall.SIGKILL)
		_ = cmd.Wait() // as it was killed, or its job was
	})
	for stopped := time.Now().Add(2 * time.Second); time.Now().Before(stopped); { // it is stopped as soon as it reads

		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&http.Client{Timeout: 10 * time.Second}).Do(request)
		if err != nil {
			t.Fatalf("a job in the background does not answer: %v", err)
		}
		_ = answer.Body.Close()
	}
}

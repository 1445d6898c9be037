package mutant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// testTimeout bounds one go test command: a fault may make a test wait for ever, which counts
// as noticed.
const testTimeout = 5 * time.Minute

// Result is what the tests said about one patch.
type Result struct {
	// Noticed is whether a test failed; By names those that did, or is empty when a test
	// took longer than testTimeout or ended the process.
	Noticed bool
	By      []string
	// Rules are those of the simulation that found something.
	Rules []string
	Took  time.Duration
}

// Run runs the patch's tests over the patched module in root, an absolute path. An error says that nothing was
// found out: the patch does not fit or does not compile, or the go command failed.
func Run(ctx context.Context, root string, p Patch) (Result, error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // what is left lies in the system's temporary folder
	overlay, err := p.overlay(root, dir)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	r, err := test(ctx, root, p.Tests, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", p.Name, err)
	}
	r.Noticed = r.Noticed && (p.Rule == "" || slices.Contains(r.Rules, p.Rule))
	return r, nil
}

// Unpatched runs the tests of the patches without any patch, each command once. Only where
// they pass does a failure say something about a patch.
func Unpatched(ctx context.Context, root string, patches []Patch) error {
	var done []string
	for _, p := range patches {
		command := strings.Join(p.Tests, " ")
		if slices.Contains(done, command) {
			continue
		}
		done = append(done, command)
		r, err := test(ctx, root, p.Tests)
		if err == nil && r.Noticed {
			err = fmt.Errorf("fails without a patch: %v", r.By)
		}
		if err != nil {
			return fmt.Errorf("go test %s: %w", command, err)
		}
	}
	return nil
}

var (
	failedTest = regexp.MustCompile(`(?m)^--- FAIL: (\S+)`)
	brokenRule = regexp.MustCompile(`(?m)^\s+(?:sim|points)_test\.go:\d+: ([a-z ]+): `)
	notBuilt   = regexp.MustCompile(`(?m)^FAIL\s.*\[(build|setup) failed\]`)
)

// test runs tests with variables of their own: those are passed on to the go commands that tests run, so
// that a program which a test builds has the patch too.
func test(ctx context.Context, root string, args []string, environment ...string) (Result, error) {
	began := time.Now()
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-vet=off", "-failfast", "-timeout=" + testTimeout.String()}, args...)...) //nolint:gosec // the tests that a patch names
	cmd.Dir = root
	cmd.Env = append(os.Environ(), environment...)
	cmd.WaitDelay = time.Second // a test's own child may keep the output open
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	r := Result{Took: time.Since(began)}
	var exit *exec.ExitError
	switch {
	case err == nil:
		return r, nil
	case ctx.Err() != nil:
		return r, ctx.Err()
	case !errors.As(err, &exit):
		return r, err
	case notBuilt.Match(out.Bytes()), !bytes.Contains(out.Bytes(), []byte("\nFAIL")) && !bytes.HasPrefix(out.Bytes(), []byte("FAIL")):
		return r, fmt.Errorf("does not build: %s", out.String())
	}
	r.Noticed = true
	for _, m := range failedTest.FindAllStringSubmatch(out.String(), -1) {
		r.By = append(r.By, m[1])
	}
	for _, m := range brokenRule.FindAllStringSubmatch(out.String(), -1) {
		if !slices.Contains(r.Rules, m[1]) {
			r.Rules = append(r.Rules, m[1])
		}
	}
	return r, nil
}

// Package npmtest installs tools from npm for tests, pinned by a lock file, once for all
// test binaries.
package npmtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// ErrNoNode is the one reason for which tests are left out.
var ErrNoNode = errors.New("no Node.js on the PATH (node and npm)")

// Tools are packages to install.
type Tools struct {
	// Name is part of the folder's name, and what is said about the installation.
	Name string
	// Package and Lock are package.json and package-lock.json.
	Package, Lock []byte
}

// Node returns the path of node, or ErrNoNode.
func Node() (string, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return "", ErrNoNode
	}
	return node, nil
}

// InstallFor installs for a test, which is left out where Node is missing, and fails
// there in CI.
func (t Tools) InstallFor(tb testing.TB) string {
	tb.Helper()
	dir, err := t.Install()
	switch {
	case err == nil:
		return dir
	case errors.Is(err, ErrNoNode) && os.Getenv("CI") != "true":
		fmt.Fprintf(os.Stderr, "\n*** LEFT OUT: %s needs %s, and there is %v. Install Node 20 or later to run it. ***\n\n", tb.Name(), t.Name, err)
		tb.Skipf("LEFT OUT: needs %s, and there is %v", t.Name, err)
	default:
		tb.Fatalf("%s: %v", t.Name, err)
	}
	return ""
}

// Install returns the folder that holds the tools, after installing them there if it is
// the first to ask. Test binaries run at the same time: a file lock makes one install
// and the others wait, and the folder gets its final name only when it is complete.
func (t Tools) Install() (string, error) {
	if _, err := Node(); err != nil {
		return "", err
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", ErrNoNode
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "pushlease")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	hash := sha256.Sum256(t.Lock)
	installed := filepath.Join(cache, t.Name+"-"+hex.EncodeToString(hash[:6]))
	if complete(installed) {
		return installed, nil
	}
	unlock, err := lockFile(installed + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if complete(installed) {
		return installed, nil
	}
	if err := t.npmInstall(npm, cache, installed); err != nil {
		return "", fmt.Errorf("install %s: %w", t.Name, err)
	}
	return installed, nil
}

func complete(installed string) bool {
	_, err := os.Stat(installed)
	return err == nil
}

func (t Tools) npmInstall(npm, cache, installed string) error {
	dir, err := os.MkdirTemp(cache, "installing-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }() // nothing is left there after the rename
	for name, content := range map[string][]byte{"package.json": t.Package, "package-lock.json": t.Lock} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "npmtest: installing %s into %s (once; up to 200 MB, half a minute) ...\n", t.Name, installed)
	cmd := exec.CommandContext(context.Background(), npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := os.Rename(dir, installed); err != nil && !complete(installed) {
		return err
	}
	fmt.Fprintf(os.Stderr, "npmtest: %s is installed\n", t.Name)
	return nil
}

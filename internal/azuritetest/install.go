package azuritetest

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed package.json
var packageJSON []byte

//go:embed package-lock.json
var packageLock []byte

// install returns the folder that holds the pinned Azurite, after installing
// it there if it is the first to ask. Test binaries run at the same time: a
// file lock makes one install and the others wait, and the folder gets its
// final name only when it is complete.
func install(npm string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "pushlease")
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	hash := sha256.Sum256(packageLock)
	installed := filepath.Join(cache, "azurite-"+hex.EncodeToString(hash[:6]))
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
	if err := npmInstall(npm, cache, installed); err != nil {
		return "", fmt.Errorf("install Azurite: %w", err)
	}
	return installed, nil
}

func complete(installed string) bool {
	_, err := os.Stat(installed)
	return err == nil
}

func npmInstall(npm, cache, installed string) error {
	dir, err := os.MkdirTemp(cache, "installing-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) // nothing is left there after the rename
	for name, content := range map[string][]byte{"package.json": packageJSON, "package-lock.json": packageLock} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "azuritetest: installing Azurite into %s (once; about 190 MB, half a minute) ...\n", installed)
	cmd := exec.Command(npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	if err := os.Rename(dir, installed); err != nil && !complete(installed) {
		return err
	}
	fmt.Fprintln(os.Stderr, "azuritetest: Azurite is installed")
	return nil
}

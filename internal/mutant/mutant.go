// Package mutant puts faults into the code, one at a time, and asks whether a test
// notices. A fault is a Patch: a text of a source file and what takes its place. It is laid
// over the module with the go command's -overlay, so the product has no switch for it and
// the working tree is not touched.
package mutant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Patch is one fault.
type Patch struct {
	// Name says where the fault is and what it does, in words with dashes.
	Name string
	// In is the directory below which the fault's file is; files may move within it.
	In string
	// Old occurs once in the Go files below In, tests left out. New takes its place.
	Old, New string
	// Brings is what a user would see of the fault.
	Brings string
	// Tests are the arguments of the go test command that has to fail.
	Tests []string
	// Rule is the one of the simulation's that has to find it, where that is asked.
	Rule string
}

// All lists every patch.
func All() []Patch {
	return slices.Concat(policyPatches, limitPatches, queuePatches, webhookPatches, sqlitePatches, azurePatches, dispatcherPatches, apiPatches, appPatches, teeth)
}

// find returns the file that holds the patch's old text, and what that file becomes.
// root is the module's directory.
func (p Patch) find(root string) (file string, patched []byte, err error) {
	var found []string
	err = filepath.WalkDir(filepath.Join(root, filepath.FromSlash(p.In)), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path) //nolint:gosec // a source file of this module
		if err != nil {
			return err
		}
		for range bytes.Count(text, []byte(p.Old)) {
			found = append(found, path)
			file, patched = path, bytes.Replace(text, []byte(p.Old), []byte(p.New), 1)
		}
		return nil
	})
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("its old text occurs %d times below %s %v: once is right. Where the code was rewritten, "+
			"write the patch anew so that it brings back the same: %s", len(found), p.In, found, p.Brings)
	}
	return file, patched, err
}

// overlay writes the patched file and the overlay that names it into dir, and returns the
// path of the overlay.
func (p Patch) overlay(root, dir string) (string, error) {
	file, patched, err := p.find(root)
	if err != nil {
		return "", err
	}
	instead := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(instead, patched, 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]map[string]string{"Replace": {file: instead}})
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "overlay.json")
	return path, os.WriteFile(path, text, 0o600)
}

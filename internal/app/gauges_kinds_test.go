package app

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A kind of check that is missing among checkKinds has no series until it fails, and none once it is mended.
func TestEachCheckHasAValueFromTheStart(t *testing.T) {
	named := regexp.MustCompile(`api\.Check\{\s*Name: "(\w+)"`)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range named.FindAllStringSubmatch(string(text), -1) {
			if found++; !slices.Contains(checkKinds, name[1]) {
				t.Errorf("%s: the check %s is not among checkKinds", file, name[1])
			}
		}
	}
	if found < 6 {
		t.Errorf("%d checks were found", found)
	}
}

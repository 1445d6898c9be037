package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFieldFailuresPageNamesTestsThatThereAre compares the page with the tests.
func TestFieldFailuresPageNamesTestsThatThereAre(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "field-failures.md"))
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range function.FindAllSubmatch(text, -1) {
			declared[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| C01 |", "| C40 |", "| R1 |", "| R7 |"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page has no row %s", want)
		}
	}
	seen := map[string]bool{}
	for _, row := range regexp.MustCompile(`(?m)^\| [CR]\d+ \| [^|]+\|`).FindAllString(string(page), -1) {
		if seen[row] {
			t.Errorf("the page has %s twice: make one row of them", row)
		}
		seen[row] = true
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(page, -1)
	if len(named) < 100 {
		t.Errorf("the page names %d tests: fewer than it has cases for", len(named))
	}
	for _, m := range named {
		if !declared[string(m[1])] {
			t.Errorf("the page names %s, which no test is called", m[1])
		}
	}
}

package mutant

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// compiled is a package as the go command knows it.
type compiled struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// packages lists the packages below the patches' directories and all that they import, with
// the compiler's export data.
func packages(t *testing.T) (byDir map[string]compiled, export map[string]string) {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}
	seen := map[string]bool{}
	for _, p := range All() {
		if !seen[p.In] {
			seen[p.In] = true
			args = append(args, "./"+p.In+"/...")
		}
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	byDir, export = map[string]compiled{}, map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var c compiled
		if err := dec.Decode(&c); errors.Is(err, io.EOF) {
			return byDir, export
		} else if err != nil {
			t.Fatal(err)
		}
		byDir[c.Dir], export[c.ImportPath] = c, c.Export
	}
}

// checker compiles patched packages as far as errors go: without making code, a hundred of
// them take seconds.
type checker struct {
	set     *token.FileSet
	imports types.Importer
}

func newChecker(export map[string]string) checker {
	set := token.NewFileSet()
	return checker{set, importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(export[path]) })}
}

// check compiles a package with one file replaced.
func (k checker) check(c compiled, file string, patched []byte) error {
	var files []*ast.File
	for _, name := range c.GoFiles {
		var text any
		if name == filepath.Base(file) {
			text = patched
		}
		f, err := parser.ParseFile(k.set, filepath.Join(c.Dir, name), text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, f)
	}
	config := types.Config{Importer: k.imports}
	_, err := config.Check(c.ImportPath, k.set, files, nil)
	return err
}

func TestEachPatchFitsOnceAndCompiles(t *testing.T) {
	byDir, export := packages(t)
	k, top := newChecker(export), root(t)
	for _, p := range All() {
		t.Run(p.Name, func(t *testing.T) {
			file, patched, err := p.find(top)
			if err != nil {
				t.Fatal(err)
			}
			c, known := byDir[filepath.Dir(file)]
			if !known {
				t.Fatalf("%s is in no package", file)
			}
			if err := k.check(c, file, patched); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPatchesAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, p := range All() {
		if names[p.Name] {
			t.Errorf("two patches are called %s", p.Name)
		}
		names[p.Name] = true
		if p.Name == "" || p.In == "" || p.Old == p.New || p.Brings == "" || len(p.Tests) == 0 || !strings.HasPrefix(p.Tests[0], "./") {
			t.Errorf("patch %q lacks something", p.Name)
		}
	}
	if len(names) < 60 {
		t.Errorf("there are %d patches: the list has become too short to say something", len(names))
	}
}

// rounding is a patch of one line that one fast test notices, and another does not.
var rounding = Patch{
	Name: "rounding", In: "policy", Brings: "a delay that is cut off",
	Old: "whole += time.Second", New: "whole += 0",
}

func TestAFaultIsNoticedBySomeTestsAndNotByOthers(t *testing.T) {
	noticed := rounding
	noticed.Tests = []string{"./policy", "-run", "^TestDelaysAreWholeSecondsRoundedUp$"}
	survives := rounding
	survives.Tests = []string{"./policy", "-run", "^TestUnknownPresetIsRefusedWithTheNames$"}
	for _, p := range []Patch{noticed, survives} {
		r, err := Run(t.Context(), root(t), p)
		if err != nil {
			t.Fatal(err)
		}
		if want := p.Tests[2] == noticed.Tests[2]; r.Noticed != want {
			t.Errorf("%v: noticed is %v, by %v", p.Tests, r.Noticed, r.By)
		}
	}
}

func TestAPatchThatDoesNotCompileIsNoFaultNoticed(t *testing.T) {
	p := rounding
	p.New, p.Tests = "whole += nowhere", []string{"./policy", "-run", "^$"}
	if r, err := Run(t.Context(), root(t), p); err == nil {
		t.Errorf("got %+v", r)
	}
	p.Old = "no such text"
	if r, err := Run(t.Context(), root(t), p); err == nil {
		t.Errorf("got %+v for a text that is nowhere", r)
	}
}

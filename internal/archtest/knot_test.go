package archtest

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// maxCycle is how many files of one package may need each other, all in a circle: who changes one of
// them has to read them all.
const maxCycle = 4

// untied are the packages without a knot, with all that is below them.
var untied = []string{"dispatcher", "tables/azuretable", "internal/app", "internal/sqlite", "queue/azurequeue", "tables/tablestest"}

func TestFilesFormNoKnot(t *testing.T) {
	packages := map[string][]source{}
	for _, s := range sources(t) {
		if !s.test() && slices.ContainsFunc(untied, func(p string) bool { return s.pkg == p || strings.HasPrefix(s.pkg, p+"/") }) {
			packages[s.pkg] = append(packages[s.pkg], s)
		}
	}
	for _, p := range untied {
		if len(packages[p]) == 0 {
			t.Errorf("%s was not found", p)
		}
	}
	if len(packages) < 10 {
		t.Fatalf("%d packages only: they were not found", len(packages))
	}
	for pkg, files := range packages {
		if knot := largestCycle(references(files)); len(knot) > maxCycle {
			t.Errorf("%s: %d files need each other, over %d: %s", pkg, len(knot), maxCycle, strings.Join(knot, " "))
		}
	}
}

func TestAKnotOfFilesIsFound(t *testing.T) {
	var files []source
	for name, text := range map[string]string{
		"a.go": "package x\ntype a struct{ n b }\n",
		"b.go": "package x\nimport \"fmt\"\ntype b int\nfunc (b) ask() { fmt.Println(c) }\n",
		"c.go": "package x\nvar c = func(v a) { v.n.ask() }\n",
		"d.go": "package x\nfunc d() { c(a{}) }\n",
	} {
		files = append(files, parse(t, "x", name, text))
	}
	if knot := largestCycle(references(files)); !slices.Equal(knot, []string{"a.go", "b.go", "c.go"}) {
		t.Errorf("the knot is %v, want a.go, b.go and c.go", knot)
	}
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) { return nil, errors.New("not looked into") }

// references says for each file which others of its package declare what it uses. Other packages are not
// looked into: no name of this one comes from there.
func references(files []source) map[string][]string {
	set, parsed := token.NewFileSet(), make([]*ast.File, len(files))
	for i, s := range files {
		parsed[i], _ = parser.ParseFile(set, s.name, s.text, parser.SkipObjectResolution)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	check := types.Config{Importer: noImports{}, Error: func(error) {}}
	pkg, _ := check.Check("x", set, parsed, info)
	base := func(p token.Pos) string { return filepath.Base(set.Position(p).Filename) }
	refs := map[string][]string{}
	for id, used := range info.Uses {
		from, to := base(id.Pos()), ""
		if f, ok := used.(*types.Func); used.Pkg() == pkg && (used.Parent() == pkg.Scope() || ok && f.Signature().Recv() != nil) {
			to = base(used.Pos())
		}
		if to != "" && to != from && !slices.Contains(refs[from], to) {
			refs[from] = append(refs[from], to)
		}
	}
	return refs
}

// largestCycle is the largest set of files each of which needs each other one.
func largestCycle(refs map[string][]string) (largest []string) {
	for file := range refs {
		var knot []string
		for other := range reachable(refs, file) {
			if reachable(refs, other)[file] {
				knot = append(knot, other)
			}
		}
		if len(knot) > len(largest) {
			largest = knot
		}
	}
	slices.Sort(largest)
	return largest
}

func reachable(refs map[string][]string, from string) map[string]bool {
	seen, next := map[string]bool{}, []string{from}
	for len(next) > 0 {
		file := next[0]
		next = next[1:]
		for _, to := range refs[file] {
			if !seen[to] {
				seen[to] = true
				next = append(next, to)
			}
		}
	}
	return seen
}

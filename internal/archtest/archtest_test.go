package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/pushlease/pushlease/"

// allowed says which of our packages a package may import (docs/architecture.md
// draws it). "*" means any. A package that is not here fails the test: decide
// where it belongs first.
var allowed = map[string][]string{
	"policy":                     {},
	"webhook":                    {"webhook/content", "webhook/internal/transport"},
	"webhook/content":            {},
	"webhook/internal/transport": {"internal/tcp"},
	"webhook/webhooktest":        {"webhook"},
	"queue":                      {},
	"queue/azurequeue":           {"queue", "internal/azureconn"},
	"queue/queuetest":            {"queue"},
	"tables":                     {"policy", "webhook"},
	"tables/azuretable":          {"tables", "policy", "webhook", "internal/azureconn", "tables/azuretable/internal/commit"},
	"tables/tablestest":          {"tables", "policy", "webhook", "webhook/content"},
	"api":                        {"tables", "webhook", "webhook/content", "queue", "policy", "internal/status", "api/internal/web", "api/internal/publish", "api/ui"},
	"api/ui":                     {},
	"api/client":                 {},
	"api/internal/web":           {"queue", "tables"},
	"api/internal/publish":       {"api/internal/web", "queue", "tables", "webhook/content"},
	"functions":                  {"dispatcher", "queue", "policy"},
	"functions/hosttest":         {},
	"internal/sqlite":            {"queue", "tables", "policy", "webhook", "webhook/content"},
	"internal/sqlite/sqlitetest": {"internal/sqlite", "internal/bubble"},
	"internal/azureconn":         {"internal/tcp"},
	"internal/tcp":               {},
	"internal/azuritetest":       {"internal/npmtest"},
	"internal/npmtest":           {},
	"internal/wire":              {},
	"internal/azurestandin":      {},
	"internal/config":            {"queue", "webhook", "internal/azureconn"},
	"internal/telemetry":         {},
	"internal/archtest":          {},
	"internal/status":            {"policy"},
	"internal/bubble":            {},
	"internal/mutant":            {},
	"internal/sim":               {"internal/app", "internal/config", "internal/azurestandin", "internal/bubble", "internal/sqlite", "queue"},
	"internal/sim/cmd/sim":       {"internal/sim"},
	"docs/model":                 {},
	"internal/mutant/cmd/mutant": {"internal/mutant"},
	"internal/app":               {"*"},
	"cmd/pushlease":              {"api/client", "internal/app", "internal/config", "webhook", "webhook/content", "policy", "queue"},
	"cmd/pushlease-bench":        {"*"},

	"dispatcher": {"internal/status", "queue", "webhook", "policy", "tables", "dispatcher/internal/flow", "dispatcher/internal/claims", "dispatcher/internal/journal",
		"dispatcher/internal/lease", "dispatcher/internal/registry", "dispatcher/internal/settle", "dispatcher/internal/meter", "dispatcher/internal/retry",
		"dispatcher/internal/admission", "dispatcher/internal/delivery", "dispatcher/internal/receive"},
	// Inside the dispatcher each part imports only what stands below it.
	"dispatcher/internal/receive": {"queue", "policy", "tables", "dispatcher/internal/delivery", "dispatcher/internal/settle", "dispatcher/internal/flow", "dispatcher/internal/journal",
		"dispatcher/internal/lease", "dispatcher/internal/registry", "dispatcher/internal/meter", "dispatcher/internal/retry", "dispatcher/internal/admission"},
	"dispatcher/internal/delivery": {"queue", "webhook", "webhook/content", "policy", "tables", "dispatcher/internal/settle", "dispatcher/internal/flow", "dispatcher/internal/claims",
		"dispatcher/internal/journal", "dispatcher/internal/lease", "dispatcher/internal/registry", "dispatcher/internal/meter", "dispatcher/internal/retry",
		"dispatcher/internal/admission"},
	"dispatcher/internal/settle": {"queue", "policy", "tables", "dispatcher/internal/flow", "dispatcher/internal/claims", "dispatcher/internal/journal",
		"dispatcher/internal/lease", "dispatcher/internal/meter", "dispatcher/internal/retry"},
	"dispatcher/internal/admission": {"queue"},
	"dispatcher/internal/flow":      {"internal/status", "queue", "policy", "tables", "dispatcher/internal/retry"},
	"dispatcher/internal/claims":    {"tables", "dispatcher/internal/meter", "dispatcher/internal/retry"},
	"dispatcher/internal/lease":     {"internal/status", "queue", "policy", "dispatcher/internal/meter", "dispatcher/internal/retry"},
	"dispatcher/internal/registry":  {"tables", "dispatcher/internal/retry"},
	"dispatcher/internal/journal":   {"tables", "dispatcher/internal/meter", "dispatcher/internal/retry"},
	"dispatcher/internal/meter":     {"internal/status", "policy", "tables"},
	"dispatcher/internal/retry":     {"queue", "tables"},

	"tables/azuretable/internal/commit": {},
}

// reserved says who alone may import a foreign module, and why.
var reserved = []struct {
	prefix string
	by     []string
	why    string
}{
	{"github.com/Azure/", []string{"queue/azurequeue", "tables/azuretable", "functions/hosttest"}, "the Azure SDKs stay behind the contracts; the fake host is not ours to look through them"},
	{"github.com/go-chi/", []string{"api", "api/internal/web"}, "routing is the API's; others mount its handler"},
	{"modernc.org/sqlite", []string{"internal/sqlite", "internal/sqlite/sqlitetest"}, "one package owns the database file"},
	{"modernc.org/libc", []string{"internal/sqlite", "internal/sqlite/sqlitetest"}, "it is how the database's C is called"},
	{"github.com/hashicorp/go-retryablehttp", []string{"webhook"}, "nothing else repeats a request"},
	{"github.com/spf13/cobra", []string{"cmd/pushlease"}, "commands are the program's"},
	{"go.opentelemetry.io/otel/sdk", []string{"internal/telemetry"}, "packages use the API; telemetry sets it up"},
	{"go.opentelemetry.io/otel/exporters", []string{"internal/telemetry"}, "packages use the API; telemetry sets it up"},
	{module + "internal/azurestandin", []string{"cmd/pushlease-bench", "internal/sim"}, "storage that forgets is for benchmarks and tests"},
	{"testing", []string{"webhook/webhooktest", "queue/queuetest", "tables/tablestest", "internal/azuritetest", "internal/npmtest", "internal/bubble", "internal/sqlite/sqlitetest", "functions/hosttest", "internal/sim", "internal/sim/cmd/sim", "internal/wire"}, "test support stays in test packages"},
}

// source is one Go file.
type source struct {
	pkg  string // directory below the module
	name string
	file *ast.File
	set  *token.FileSet
	text string
}

func (s source) test() bool { return strings.HasSuffix(s.name, "_test.go") }

func parse(t *testing.T, pkg, name, text string) source {
	t.Helper()
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, text, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return source{pkg: pkg, name: name, file: f, set: set, text: text}
}

func sources(t *testing.T) []source {
	t.Helper()
	root := filepath.Join("..", "..")
	var all []source
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "node_modules" || d.Name() == "testdata" || d.Name() == "dist"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if strings.HasSuffix(rel, ".gen.go") { // nobody reads or writes it
			return nil
		}
		all = append(all, parse(t, filepath.ToSlash(filepath.Dir(rel)), rel, string(text)))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 20 {
		t.Fatalf("only %d files found: the walk is wrong", len(all))
	}
	return all
}

// forbiddenImports lists what is wrong with a file's imports. Tests may use any
// of our packages, but the message path stays out of them in policy, webhook and
// queue, so that these can be understood alone.
func forbiddenImports(s source) []string {
	rule, known := allowed[s.pkg]
	if !known {
		return []string{fmt.Sprintf("%s: package %s is not in the table of internal/archtest", s.name, s.pkg)}
	}
	var bad []string
	for _, imp := range s.file.Imports {
		path := strings.Trim(imp.Path.Value, `"`)
		if ours, ok := strings.CutPrefix(path, module); ok && !s.test() {
			if !slices.Contains(rule, "*") && !slices.Contains(rule, ours) {
				bad = append(bad, fmt.Sprintf("%s imports %s: %s may import %v", s.name, ours, s.pkg, rule))
			}
		}
		for _, r := range reserved {
			if (path == r.prefix || strings.HasPrefix(path, strings.TrimSuffix(r.prefix, "/")+"/")) && !s.test() && !slices.Contains(r.by, s.pkg) {
				bad = append(bad, fmt.Sprintf("%s imports %s, which is for %v: %s", s.name, path, r.by, r.why))
			}
		}
		if path == module+"dispatcher" && s.pkg != "dispatcher" && s.pkg != "functions" && s.pkg != "internal/app" {
			bad = append(bad, fmt.Sprintf("%s imports dispatcher: only functions and internal/app may", s.name))
		}
	}
	return bad
}

func TestImportsFollowTheLayout(t *testing.T) {
	for _, s := range sources(t) {
		for _, problem := range forbiddenImports(s) {
			t.Error(problem)
		}
	}
}

// Calling synctest.Test directly lets the race detector break, at random.
func TestBubblesAreOpenedByOnePackage(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok || s.pkg == "internal/bubble" {
				return true
			}
			if of, ok := call.X.(*ast.Ident); ok && of.Name == "synctest" && call.Sel.Name == "Test" {
				t.Errorf("%s calls synctest.Test: use bubble.Test (docs/adr/0023-simulated-time-on-one-processor.md)", s.name)
			}
			return true
		})
	}
}

func TestForbiddenImportIsFound(t *testing.T) {
	tests := []struct{ pkg, imports string }{
		{"policy", module + "queue"},
		{"queue", module + "tables"},
		{"webhook", module + "policy"},
		{"api", module + "dispatcher"},
		{"api", module + "internal/sqlite"},
		{"dispatcher", module + "internal/sqlite"},
		{"dispatcher", "github.com/Azure/azure-sdk-for-go/sdk/azcore"},
		{"tables", "github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"},
		{"functions", "github.com/go-chi/chi/v5"},
		{"dispatcher", "testing"},
		{"internal/app", module + "internal/azurestandin"},
		{"brand/new", "fmt"},
	}
	for _, tt := range tests {
		s := parse(t, tt.pkg, tt.pkg+"/x.go", "package x\nimport _ \""+tt.imports+"\"\n")
		if len(forbiddenImports(s)) == 0 {
			t.Errorf("%s importing %s was not found", tt.pkg, tt.imports)
		}
	}
	if bad := forbiddenImports(parse(t, "dispatcher", "dispatcher/x.go", "package x\nimport _ \""+module+"queue\"\n")); len(bad) > 0 {
		t.Errorf("an allowed import was refused: %v", bad)
	}
}

const (
	maxFileLines     = 500
	maxTestFileLines = 800
	maxFuncLines     = 80
	// maxDispatcherLines is how long the dispatcher may be, without its tests. Whoever makes it longer raises
	// this, and says what for (ADR 0096); whoever makes it shorter lowers it.
	maxDispatcherLines = 11_800
)

func TestTheDispatcherGrowsForAReason(t *testing.T) {
	n := 0
	for _, s := range sources(t) {
		if !s.test() && (s.pkg == "dispatcher" || strings.HasPrefix(s.pkg, "dispatcher/")) {
			n += strings.Count(s.text, "\n")
		}
	}
	if n > maxDispatcherLines || n < maxDispatcherLines-500 {
		t.Errorf("the dispatcher has %d lines, and the bound is %d", n, maxDispatcherLines)
	}
}

func TestFilesAndFunctionsFitTheirBudget(t *testing.T) {
	for _, s := range sources(t) {
		limit := maxFileLines
		if s.test() {
			limit = maxTestFileLines
		}
		if n := strings.Count(s.text, "\n"); n > limit {
			t.Errorf("%s has %d lines, over %d", s.name, n, limit)
		}
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || s.test() {
				continue
			}
			if n := s.set.Position(f.End()).Line - s.set.Position(f.Pos()).Line + 1; n > maxFuncLines {
				t.Errorf("%s: %s has %d lines, over %d", s.name, f.Name.Name, n, maxFuncLines)
			}
		}
	}
}

func TestEveryPackageIsExplainedInOnePlace(t *testing.T) {
	comments := map[string]int{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		if s.file.Doc != nil {
			comments[s.pkg]++
		} else if _, seen := comments[s.pkg]; !seen {
			comments[s.pkg] = 0
		}
	}
	for pkg, n := range comments {
		if n != 1 {
			t.Errorf("%s has %d package comments, want exactly one", pkg, n)
		}
	}
}

// root is everything that may lie in the repository's first level.
var root = []string{
	".ci", ".dockerignore", ".editorconfig", ".gitattributes", ".github", ".gitignore", ".golangci.yml", "CHANGELOG.md", "CONTRIBUTING.md",
	"Dockerfile", "LICENSE", "README.md", "SECURITY.md", "Taskfile.yml", "api", "cmd", "deploy", "dispatcher", "docs", "functions", "go.mod", "go.sum",
	"host.json", "internal", "policy", "queue", "tables", "webhook",
}

// ignored are what builds and runs leave behind; .gitignore names them too.
var ignored = []string{".git", ".task", "bin", "dist", "pushlease", "pushlease-bench"}

func TestTheRootStaysQuiet(t *testing.T) {
	entries, err := os.ReadDir(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(root, e.Name()) && !slices.Contains(ignored, e.Name()) && !strings.Contains(e.Name(), ".db") {
			t.Errorf("%s: the root holds only what the layout names", e.Name())
		}
	}
}

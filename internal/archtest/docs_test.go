package archtest

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/internal/config"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

// read returns a file of the repository, by its path below the root.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(path)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// pages are all Markdown files of the repository.
func pages(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		paths, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			rel, err := filepath.Rel(filepath.Join("..", ".."), p)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, filepath.ToSlash(rel))
		}
	}
	if len(found) < 15 {
		t.Fatalf("only %d pages found: the search is wrong", len(found))
	}
	return found
}

// section is the part of a page under one heading.
func section(t *testing.T, page, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(read(t, page), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("%s has no heading %q", page, heading)
	}
	level := heading[:strings.IndexByte(heading, ' ')+1]
	text, _, _ := strings.Cut(rest, "\n"+level)
	return text
}

var firstCell = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")

// rows are the names in the first cells of the tables in a text.
func rows(text string) []string {
	var names []string
	for _, m := range firstCell.FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	return names
}

// same reports names that only one side has, and names that are there twice.
func same(t *testing.T, where string, got, want []string) {
	t.Helper()
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("%s has no row for %s", where, name)
		}
	}
	for i, name := range got {
		if !slices.Contains(want, name) {
			t.Errorf("%s has a row for %s, which is not in the code", where, name)
		}
		if slices.Contains(got[:i], name) {
			t.Errorf("%s has two rows for %s", where, name)
		}
	}
}

func texts[T ~string](values []T) []string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = string(v)
	}
	return list
}

func TestStateMachinePageNamesEveryStateActionAndReason(t *testing.T) {
	const page = "docs/state-machine.md"
	same(t, page+" under States", rows(section(t, page, "## States")), texts(tables.States()))
	same(t, page+" under Actions", rows(section(t, page, "## Actions")), texts(policy.Actions()))
	same(t, page+" under Reasons", rows(section(t, page, "## Reasons")), texts(policy.Reasons()))
	same(t, page+" under the presets", rows(section(t, page, "## When the next attempt is due")), policy.PresetNames())
	same(t, page+" in the diagram", arrows(t, page), waysOfStates())
	answers := section(t, page, "## What an answer means")
	for _, class := range policy.ErrorClasses() {
		if !strings.Contains(answers, "`"+string(class)+"`") {
			t.Errorf("%s does not say what the error class %s means", page, class)
		}
	}
}

// arrows are those of the page's diagram, each as "from to". The end of a message is no state.
func arrows(t *testing.T, page string) (list []string) {
	t.Helper()
	arrow := regexp.MustCompile(`(?m)^    (\S+) --> (\w+)(: .*, a new generation)?`)
	for _, m := range arrow.FindAllStringSubmatch(strings.Join(blocks(t, page, "mermaid"), "\n"), -1) {
		list = append(list, strings.ReplaceAll(m[1], "[*]", "")+" "+m[2]+m[3])
	}
	return list
}

// waysOfStates are the arrows that the table of states has.
func waysOfStates() (list []string) {
	for _, from := range append(tables.States(), "") {
		for _, to := range from.Next() {
			list = append(list, string(from)+" "+string(to))
		}
	}
	return append(list, "dead_lettered pending: replay, a new generation",
		"withdrawn pending: its webhook registered anew under its id, a new generation")
}

// TestAnswersPageAgreesWithThePolicy looks up each row of statuses in the table of
// answers.
func TestAnswersPageAgreesWithThePolicy(t *testing.T) {
	p, err := policy.Preset(policy.DefaultPreset)
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| ((?:\d{3} ?)+) \| (.*) \|$`)
	listed := map[int]string{}
	for _, m := range row.FindAllStringSubmatch(section(t, "docs/state-machine.md", "## What an answer means"), -1) {
		for _, s := range strings.Fields(m[1]) {
			status, err := strconv.Atoi(s)
			if err != nil {
				t.Fatal(err)
			}
			listed[status] = m[2]
		}
	}
	if len(listed) < 10 {
		t.Fatalf("only %d statuses are listed: the table was not found", len(listed))
	}
	for status := 300; status < 600; status++ {
		d := p.Decide(policy.Try{Response: policy.Response{Status: status}})
		if text, ok := listed[status]; ok != (d.Action == policy.DeadLetter) || ok && !strings.Contains(text, "`"+string(d.Reason)+"`") {
			t.Errorf("%d is decided as %s, %s, and the page says %q", status, d.Action, d.Reason, text)
		}
	}
}

// cell writes a text as a cell of a Markdown table.
var cell = strings.NewReplacer("|", `\|`, "<", "&lt;")

func TestConfigurationPageNamesEverySetting(t *testing.T) {
	const page = "docs/configuration.md"
	text, _, _ := strings.Cut(read(t, page), "\n## ")
	var names []string
	for _, s := range config.Settings() {
		names = append(names, s.Name)
		def := "–"
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		want := fmt.Sprintf("| `%s` | `%s` | `--%s` | %s | %s |", s.Name, s.Env, s.Flag, def, cell.Replace(s.Help))
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("%s has another row for %s than the code; it is:\n%s", page, s.Name, want)
		}
	}
	same(t, page, rows(text), names)
}

var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// blocks are the fenced blocks of a page in one language.
func blocks(t *testing.T, page, language string) []string {
	t.Helper()
	var found []string
	for _, m := range fence.FindAllStringSubmatch(read(t, page), -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	return found
}

func TestExampleConfigurationIsTaken(t *testing.T) {
	examples := blocks(t, "docs/configuration.md", "yaml")
	if len(examples) == 0 {
		t.Fatal("the page has no example")
	}
	for _, text := range examples {
		path := filepath.Join(t.TempDir(), "pushlease.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := config.Load(nil, []string{"PUSHLEASE_CONFIG=" + path}); err != nil {
			t.Errorf("the example is refused: %v", err)
		}
	}
}

// route is one operation of the API's document, which the API's own tests compare
// with its router.
type route struct {
	method string
	path   *regexp.Regexp
}

func routes(t *testing.T) []route {
	t.Helper()
	var found []route
	var path *regexp.Regexp
	pathLine, methodLine := regexp.MustCompile(`^  (/\S*):$`), regexp.MustCompile(`^    (get|post|patch|delete|put):$`)
	for line := range strings.SplitSeq(read(t, "api/openapi.yaml"), "\n") {
		if m := pathLine.FindStringSubmatch(line); m != nil {
			path = regexp.MustCompile("^" + regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(m[1]), `[^/]+`) + "$")
		}
		if m := methodLine.FindStringSubmatch(line); m != nil {
			found = append(found, route{strings.ToUpper(m[1]), path})
		}
	}
	if len(found) < 20 {
		t.Fatalf("only %d operations found in the API's document", len(found))
	}
	return found
}

func TestCurlLinesAskForRoutesThatThereAre(t *testing.T) {
	all := routes(t)
	url := regexp.MustCompile(`https?://(?:localhost|127\.0\.0\.1):8080(/[^\s"'?;]*)`)
	method := regexp.MustCompile(`-X ([A-Z]+)`)
	seen := 0
	for _, page := range pages(t) {
		for _, block := range blocks(t, page, "bash") {
			for line := range strings.SplitSeq(block, "\n") {
				for command := range strings.SplitSeq(line, "curl ") {
					u := url.FindStringSubmatch(command)
					if u == nil {
						continue
					}
					verb := "GET"
					if strings.Contains(command, " -d ") {
						verb = "POST"
					}
					if m := method.FindStringSubmatch(command); m != nil {
						verb = m[1]
					}
					seen++
					if !slices.ContainsFunc(all, func(r route) bool { return r.method == verb && r.path.MatchString(u[1]) }) {
						t.Errorf("%s: the API has no %s %s", page, verb, u[1])
					}
				}
			}
		}
	}
	if seen < 8 {
		t.Errorf("only %d curl lines found: the search is wrong", seen)
	}
}

// TestCommandsInPagesExist looks for the words after pushlease, and for the flags,
// in the sources of the commands.
func TestCommandsInPagesExist(t *testing.T) {
	var program strings.Builder
	for _, s := range sources(t) {
		if s.pkg == "cmd/pushlease" && !s.test() {
			program.WriteString(s.text)
		}
	}
	program.WriteString(`Use: "completion"`) // cobra's
	for _, s := range config.Settings() {
		fmt.Fprintf(&program, "%q", s.Flag)
	}
	command := regexp.MustCompile("(?:^|[\\s`;&(/])pushlease((?: [a-z][a-z-]+)+)")
	flag := regexp.MustCompile(` --([a-z][a-z-]+)`)
	code := regexp.MustCompile("`[^`\n]+`")
	for _, page := range pages(t) {
		text := strings.Join(blocks(t, page, "bash"), "\n")
		prose := fence.ReplaceAllString(read(t, page), "")
		text += "\n" + strings.Join(code.FindAllString(prose, -1), "\n")
		for line := range strings.SplitSeq(text, "\n") {
			m := command.FindStringSubmatch(line)
			if m == nil || strings.Contains(line, "pushlease functions") { // planned, and the page says so
				continue
			}
			word := strings.Fields(m[1])[0]
			if !regexp.MustCompile(`Use:\s+"` + word + `\b`).MatchString(program.String()) {
				t.Errorf("%s: there is no command pushlease %s", page, word)
			}
			for _, f := range flag.FindAllStringSubmatch(line[strings.Index(line, "pushlease"):], -1) {
				if !strings.Contains(program.String(), strconv.Quote(f[1])) && f[1] != "help" && f[1] != "config" {
					t.Errorf("%s: pushlease %s has no flag --%s", page, word, f[1])
				}
			}
		}
	}
}

// anchor is what GitHub makes of a heading.
func anchor(heading string) string {
	heading = strings.ToLower(strings.TrimSpace(heading))
	heading = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(heading, "")
	return strings.ReplaceAll(heading, " ", "-")
}

func anchors(text string) []string {
	var found []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found = append(found, anchor(m[1]))
	}
	return found
}

func TestLinksResolve(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target, fragment, _ := strings.Cut(m[1], "#")
			path := page
			if target != "" {
				path = filepath.ToSlash(filepath.Join(filepath.Dir(page), target))
			}
			info, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(path)))
			if err != nil {
				t.Errorf("%s: the link %s leads nowhere", page, m[1])
				continue
			}
			if fragment != "" && (info.IsDir() || !slices.Contains(anchors(read(t, path)), fragment)) {
				t.Errorf("%s: %s has no heading for the link %s", page, path, m[1])
			}
		}
	}
}

// TestPagesNamedInSourcesExist is about what the program tells its users to read.
func TestPagesNamedInSourcesExist(t *testing.T) {
	page := regexp.MustCompile(`\bdocs/[\w/-]+\.md\b`)
	for _, s := range sources(t) {
		for _, path := range page.FindAllString(s.text, -1) {
			if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(path))); err != nil {
				t.Errorf("%s names %s, which is not there", s.name, path)
			}
		}
	}
}

// instruments finds the instruments that the code makes and returns their names in
// Prometheus' form.
func instruments(t *testing.T) []string {
	t.Helper()
	kinds := map[string]string{"counter": "counter", "histogram": "histogram"}
	for _, number := range []string{"Int64", "Float64"} {
		for _, kind := range []string{"Counter", "Histogram", "UpDownCounter", "Gauge", "ObservableCounter", "ObservableGauge", "ObservableUpDownCounter"} {
			kinds[number+kind] = strings.ToLower(kind)
		}
	}
	var names []string
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			var called string
			switch fun := call.Fun.(type) {
			case *ast.Ident:
				called = fun.Name
			case *ast.SelectorExpr:
				called = fun.Sel.Name
			}
			name, isText := literal(call.Args[0])
			if kind := kinds[called]; kind != "" && isText {
				names = append(names, prometheusName(name, kind, call.Args[1:]))
			}
			return true
		})
	}
	return names
}

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

// prometheusName is the name on /metrics: telemetry uses the strategy
// UnderscoreEscapingWithSuffixes.
func prometheusName(name, kind string, args []ast.Expr) string {
	name = strings.ReplaceAll(name, ".", "_")
	for _, arg := range args {
		if call, ok := arg.(*ast.CallExpr); ok && len(call.Args) == 1 { // metric.WithUnit("s")
			arg = call.Args[0]
		}
		if unit, _ := literal(arg); unit == "s" {
			name += "_seconds"
		}
	}
	if strings.HasSuffix(kind, "counter") && !strings.HasSuffix(kind, "updowncounter") {
		name += "_total"
	}
	return name
}

func TestMetricsInPagesAreThoseOfTheCode(t *testing.T) {
	const page = "docs/operations.md"
	known := instruments(t)
	listed, _, _ := strings.Cut(section(t, page, "## Metrics"), "\n### ")
	same(t, page, rows(listed), known)

	metric := regexp.MustCompile(`\b[a-z][a-z0-9_]*_(?:total|seconds|utilization)(?:_bucket|_count|_sum)?\b`)
	suffix := regexp.MustCompile(`_(?:bucket|count|sum)$`)
	for _, p := range pages(t) {
		for _, name := range metric.FindAllString(read(t, p), -1) {
			if !slices.Contains(known, suffix.ReplaceAllString(name, "")) {
				t.Errorf("%s names the metric %s, which the code does not have", p, name)
			}
		}
	}
}

func TestEveryDirectDependencyHasItsReason(t *testing.T) {
	const page = "docs/adr/0008-dependencies.md"
	var named []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(read(t, page), -1) {
		named = append(named, m[1])
	}
	direct := regexp.MustCompile(`(?m)^\t(\S+) v\S+$`).FindAllStringSubmatch(read(t, "go.mod"), -1)
	if len(direct) < 10 {
		t.Fatalf("only %d direct dependencies found in go.mod", len(direct))
	}
	for _, m := range direct {
		if !slices.ContainsFunc(named, func(n string) bool { return m[1] == n || strings.HasPrefix(m[1], n+"/") }) {
			t.Errorf("%s does not say what %s saves", page, m[1])
		}
	}
}

// TestFunctionsFolderIsWhatTheHostTakes checks what the Functions host is strict
// about: one function.json in each folder and nothing else, and valid names.
func TestFunctionsFolderIsWhatTheHostTakes(t *testing.T) {
	if !json.Valid([]byte(read(t, "host.json"))) {
		t.Error("host.json is not JSON")
	}
	name := regexp.MustCompile(`^[a-z][a-z0-9_-]{0,127}$`)
	root := filepath.Join("..", "..", "functions")
	folders := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		if d.Name() == "hosttest" { // Go code: the fake host
			return filepath.SkipDir
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		folder, file := filepath.Split(rel)
		switch {
		case d.IsDir():
			folders++
			if !name.MatchString(rel) || rel == "host" {
				t.Errorf("functions/%s: the host does not take that name", rel)
			}
			if !json.Valid([]byte(read(t, "functions/"+filepath.ToSlash(rel)+"/function.json"))) {
				t.Errorf("functions/%s/function.json is not JSON", rel)
			}
		case folder != "" && file != "function.json":
			t.Errorf("functions/%s: a function's folder holds nothing but function.json", filepath.ToSlash(rel))
		}
		return nil
	})
	if err != nil || folders == 0 {
		t.Errorf("%d folders, %v", folders, err)
	}
}

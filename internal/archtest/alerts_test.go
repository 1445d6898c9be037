package archtest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// words of PromQL and labels that the rules use.
var promWords = strings.Fields(`sum max by rate increase histogram_quantile topk and queue reason le webhook outcome service operation action result status
	complete deleted failed lease_lost unverified replayed dead_lettered state why disabled paused failing probing operator m h d
	unless offset last_over_time or absent abs min blocked gone kind redelivery check registrations tables clock draining storage webhooks
	on hidden decision abandon changes process_start_time_seconds job instance
	route api v queues messages method`)

// unknownNames returns the names in an expression that are neither metrics nor words.
func unknownNames(expr string, known []string) []string {
	var unknown []string
	for _, name := range regexp.MustCompile(`\b[a-z][a-z_]*`).FindAllString(expr, -1) {
		metric := regexp.MustCompile(`_(?:bucket|count|sum)$`).ReplaceAllString(name, "")
		if !slices.Contains(promWords, name) && !slices.Contains(known, metric) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

const alertRules = "deploy/prometheus/rules.yml"

type alertRule struct {
	Alert, Record, Expr, For string
	Labels, Annotations      map[string]string
}

func readRules(t *testing.T) (all []alertRule) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alertRule } }
	if err := yaml.Unmarshal([]byte(read(t, alertRules)), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func TestAlertRulesAreAboutMetricsOfTheCodeAndEachIsTestedAndDescribed(t *testing.T) {
	known, page := instruments(t), read(t, "docs/alerts.md")
	tests := read(t, "deploy/prometheus/rules_test.yml") + read(t, "deploy/prometheus/rules_day_test.yml")
	for _, r := range readRules(t) {
		if r.Record != "" {
			known = append(known, strings.FieldsFunc(r.Record, func(c rune) bool { return c == ':' })...)
		}
	}
	for _, r := range readRules(t) {
		if names := unknownNames(r.Expr, known); len(names) > 0 {
			t.Errorf("%s%s: neither metric nor word: %v", r.Alert, r.Record, names)
		}
		if r.Record != "" {
			continue
		}
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
			t.Errorf("%s has no severity or no summary", r.Alert)
		}
		if !strings.Contains(page, "`"+r.Alert+"`") {
			t.Errorf("docs/alerts.md does not describe %s", r.Alert)
		}
		if !regexp.MustCompile("alertname: "+r.Alert+`\n +exp_alerts:\n +- exp_labels`).MatchString(tests) ||
			!strings.Contains(tests, "alertname: "+r.Alert+", exp_alerts: []") {
			t.Errorf("no test shows that %s fires, or none that it is silent", r.Alert)
		}
	}
	queries := blocks(t, "docs/alerts.md", "promql")
	if len(queries) == 0 {
		t.Fatal("the page has no queries")
	}
	for line := range strings.SplitSeq(queries[0], "\n") {
		if names := unknownNames(line, known); !strings.HasPrefix(line, "#") && len(names) > 0 {
			t.Errorf("query %s: neither metric nor word: %v", line, names)
		}
	}
}

// Every count of an hour or a day is taken in the one way that neither misses the first event nor
// counts what was before a gap.
func TestCountsOfAlertRulesAreTakenInOneWay(t *testing.T) {
	start := regexp.MustCompile(`^sum(?: by \([a-z, ]+\))? \(\((\S+) unless `)
	for _, r := range readRules(t) {
		if r.Record == "" {
			continue
		}
		m, window := start.FindStringSubmatch(r.Expr), r.Record[strings.LastIndex(r.Record, "increase")+len("increase"):]
		if m == nil {
			t.Errorf("%s begins in another way: %s", r.Record, r.Expr)
			continue
		}
		want := m[0] + strings.NewReplacer("M", m[1], "W", window).Replace("M offset W unless last_over_time(M[W] offset W) <= M) or increase(M[W]))")
		if r.Expr != want {
			t.Errorf("%s is\n%s\nwant\n%s", r.Record, r.Expr, want)
		}
	}
}

func TestAlertsFireAtTheFirstEventAndAreSilentBesideWhatIsHealthy(t *testing.T) {
	for _, tests := range []string{"rules_test.yml", "rules_day_test.yml"} {
		if out, err := promtool(t, "test", "rules", filepath.Join("..", "..", "deploy", "prometheus", tests)); err != nil {
			t.Errorf("%s: %v\n%s", tests, err, out)
		}
	}
}

// The dashboard's queries are about metrics of the code, and Prometheus can read them.
func TestDashboardIsAboutMetricsOfTheCode(t *testing.T) {
	var board struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			Targets []struct{ Expr string }
			GridPos struct{ X, Y, W, H int }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/pushlease.json")), &board); err != nil {
		t.Fatal(err)
	}
	known := append(instruments(t), "process_resident_memory_bytes")
	metric := regexp.MustCompile(`\b(?:pushlease|process)_[a-z_]+`)
	suffix := regexp.MustCompile(`_(?:bucket|count|sum)$`)
	seen, queries := map[int]bool{}, strings.Builder{}
	for _, p := range board.Panels {
		if seen[p.ID] || p.Title == "" || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d %q: its id is used twice, it has no title, or it is beyond the page", p.ID, p.Title)
		}
		seen[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			names := metric.FindAllString(target.Expr, -1)
			for _, name := range names {
				if !slices.Contains(known, suffix.ReplaceAllString(name, "")) {
					t.Errorf("%s: the code has no metric %s", p.Title, name)
				}
			}
			if len(names) == 0 {
				t.Errorf("%s: %s is about no metric", p.Title, target.Expr)
			}
			fmt.Fprintf(&queries, "  - record: a:b:c\n    expr: %q\n", strings.NewReplacer("$__rate_interval", "5m", "$queue", ".*").Replace(target.Expr))
		}
	}
	rules := filepath.Join(t.TempDir(), "queries.yml")
	if err := os.WriteFile(rules, []byte("groups:\n- name: dashboard\n  rules:\n"+queries.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := promtool(t, "check", "rules", "--lint=none", rules); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// promtool runs Prometheus' own checker; a machine without it is said loudly, and is a fault in CI.
func promtool(t *testing.T, args ...string) (out []byte, err error) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("promtool is missing, and CI has to check alert rules and queries: apt-get install prometheus")
		}
		t.Skip("ALERT RULES AND QUERIES ARE NOT CHECKED: promtool is missing (apt-get install prometheus)")
	}
	return exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
}

// The label "other" stands for many webhooks: a query that keeps the newest row of each label would hide all but one of them.
func TestQueriesForAzureKeepEachStateOfOtherWebhooks(t *testing.T) {
	for _, file := range []string{"deploy/azure/queries.kql", "deploy/azure/alerts.bicep"} {
		found := regexp.MustCompile(`arg_max\(timestamp, state, why\) by .*`).FindAllString(read(t, file), -1)
		if len(found) == 0 {
			t.Errorf("%s asks for no newest state of a webhook", file)
		}
		for _, by := range found {
			if !strings.Contains(by, `iff(webhook == "other", strcat(state, " ", why), "")`) {
				t.Errorf("%s keeps one row of all other webhooks: %s", file, by)
			}
		}
	}
}

// What is queried in Application Insights are instruments of the code, in their names with
// dots. Whether Azure takes the queries is not tested: there is no Azure here.
func TestQueriesForAzureAreAboutInstrumentsOfTheCode(t *testing.T) {
	known := instruments(t)
	for _, file := range []string{"deploy/azure/queries.kql", "deploy/azure/alerts.bicep"} {
		names := regexp.MustCompile(`["'](pushlease\.[a-z_.]+)["']`).FindAllStringSubmatch(read(t, file), -1)
		if len(names) == 0 {
			t.Errorf("%s is about nothing", file)
		}
		for _, m := range names {
			name := strings.ReplaceAll(m[1], ".", "_")
			if !slices.ContainsFunc([]string{"", "_total", "_seconds"}, func(end string) bool { return slices.Contains(known, name+end) }) {
				t.Errorf("%s: the code has no instrument %s", file, m[1])
			}
		}
	}
}

// Who has Application Insights and no Prometheus is told of the same: each alert has its rule there under its own name, or the file
// says that it has none.
func TestAlertsForAzureAreThoseForPrometheus(t *testing.T) {
	bicep := read(t, "deploy/azure/alerts.bicep")
	_, without, _ := strings.Cut(bicep, "// Not here: ")
	without, _, _ = strings.Cut(without, ",")
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(read(t, "deploy/prometheus/rules.yml"), -1) {
		name := strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(m[1], "$1-$2"))
		if there := strings.Contains(bicep, "name: '"+name+"'"); there == slices.Contains(strings.Fields(without), m[1]) {
			t.Errorf("%s has a rule %s: %t, and is named as one without: %t", m[1], name, there, slices.Contains(strings.Fields(without), m[1]))
		}
	}
}

// A workbook keeps its queries as strings of JSON: they are those that can be read in queries.kql.
func TestTheWorkbookAsksWhatTheQueriesAsk(t *testing.T) {
	var book struct {
		Items []struct {
			Name    string
			Content struct{ Query string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/azure/workbook.json")), &book); err != nil {
		t.Fatal(err)
	}
	asked, queries := 0, read(t, "deploy/azure/queries.kql")
	for _, i := range book.Items {
		if q := i.Content.Query; q != "" {
			asked++
			if !strings.Contains(queries, "\n"+q+"\n") {
				t.Errorf("%s asks what queries.kql does not have:\n%s", i.Name, q)
			}
		}
	}
	if asked < 7 {
		t.Errorf("the workbook asks %d queries, want 7", asked)
	}
}

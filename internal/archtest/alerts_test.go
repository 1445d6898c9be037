package archtest

import (
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
	complete deleted failed lease_lost unverified replayed state why disabled paused failing probing operator m h d
	unless offset or absent abs min blocked gone`)

// unknownNames returns the names in an expression that are neither metrics nor words.
func unknownNames(expr string, known []string) []string {
	var unknown []string
	for _, name := range regexp.MustCompile(`[a-z][a-z_]*`).FindAllString(expr, -1) {
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
	known, tests, page := instruments(t), read(t, "deploy/prometheus/rules_test.yml"), read(t, "docs/alerts.md")
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

func TestAlertsFireAtTheFirstEventAndAreSilentBesideWhatIsHealthy(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("promtool is missing, and CI has to check the alert rules: apt-get install prometheus")
		}
		t.Skip("ALERT RULES ARE NOT CHECKED: promtool is missing (apt-get install prometheus)")
	}
	folder := filepath.Join("..", "..", "deploy", "prometheus")
	if out, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", filepath.Join(folder, "rules_test.yml")).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

package archtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// words of PromQL and labels that the rules use.
var promWords = strings.Fields(`sum max by rate increase histogram_quantile topk and queue reason le webhook outcome service operation action result status
	complete deleted failed lease_lost unverified replayed state why disabled paused failing probing operator m h d`)

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

func TestAlertRulesAreAboutMetricsOfTheCodeWithTheDocumentedThresholds(t *testing.T) {
	const page = "docs/alerts.md"
	known := instruments(t)
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr         string
				For                 string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(strings.Join(blocks(t, page, "yaml"), "\n")), &file); err != nil || len(file.Groups) != 1 {
		t.Fatalf("%v, %d groups", err, len(file.Groups))
	}
	exprs := map[string]string{}
	for _, r := range file.Groups[0].Rules {
		exprs[r.Alert] = strings.Join(strings.Fields(r.Expr), " ")
		if r.Labels["severity"] == "" || r.Annotations["summary"] == "" {
			t.Errorf("%s has no severity or no summary", r.Alert)
		}
		if names := unknownNames(r.Expr, known); len(names) > 0 {
			t.Errorf("%s: neither metric nor word: %v", r.Alert, names)
		}
		if strings.Count(r.Expr, "(") != strings.Count(r.Expr, ")") {
			t.Errorf("%s: unbalanced parentheses", r.Alert)
		}
	}
	for alert, end := range map[string]string{
		"PushleaseDuplicates": "> 0.05", "PushleaseDeletesFail": "> 0.02", "PushleaseLeaseTooShort": "(pushlease_lease_at_risk_total[1h])) > 10",
		"PushleaseDeadLetters": "> 100", "PushleaseManyDeadLetters": "> 1000",
	} {
		if !strings.HasSuffix(exprs[alert], end) {
			t.Errorf("%s ends with another threshold than %s: %s", alert, end, exprs[alert])
		}
	}
	if !strings.Contains(exprs["PushleaseDeadLetterShare"], "> 0.1 and") {
		t.Errorf("share of dead letters: %s", exprs["PushleaseDeadLetterShare"])
	}
	queries := blocks(t, page, "promql")
	if len(queries) == 0 {
		t.Fatal("the page has no queries")
	}
	for line := range strings.SplitSeq(queries[0], "\n") {
		if names := unknownNames(line, known); !strings.HasPrefix(line, "#") && len(names) > 0 {
			t.Errorf("query %s: neither metric nor word: %v", line, names)
		}
	}
}

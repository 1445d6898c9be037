package policy_test

import (
	"testing"

	"github.com/pushlease/pushlease/policy"
)

func TestAWebhookRefusesEverythingAfterTenRefusalsInARow(t *testing.T) {
	ok, forbidden, missing := 0, 403, 404
	row := func(n, status int) (all []int) {
		for range n {
			all = append(all, status)
		}
		return all
	}
	for _, tt := range []struct {
		name  string
		posts [][]int
		want  bool
	}{
		{"nine", [][]int{row(9, forbidden)}, false},
		{"ten", [][]int{row(10, forbidden)}, true},
		{"two statuses", [][]int{row(9, forbidden), row(9, missing)}, false},
		{"ten after many that were taken", [][]int{row(50, ok), row(10, forbidden)}, false},
		{"nineteen after these", [][]int{row(50, ok), row(19, forbidden)}, true},
		{"one taken between", [][]int{row(9, forbidden), row(1, ok), row(9, forbidden)}, false},
		{"nine after another status", [][]int{row(1, missing), row(9, forbidden)}, false},
		{"two others of twenty", [][]int{row(2, missing), row(18, forbidden)}, false},
		{"one other of twenty", [][]int{row(1, missing), row(19, forbidden)}, true},
	} {
		var r policy.Refusals
		got := false
		for _, posts := range tt.posts {
			for _, status := range posts {
				got = r.Report(status)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

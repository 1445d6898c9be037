package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Shrink leaves steps and faults out of a plan, as long as a run of what is left still
// breaks the same rule, and returns the last such run. It ends after a time.
func Shrink(t *testing.T, r *Result, rule string, bound time.Duration) *Result {
	t.Helper()
	until := time.Now().Add(bound)
	atoms := r.Drawn
	for _, s := range r.Plan.Steps {
		if r.Plan.kept(s.ID) {
			atoms = append(atoms, s.ID)
		}
	}
	fails := func(left []string) *Result {
		p, _ := NewPlan(r.Plan.Profile, r.Plan.Seed)
		p.Only = map[string]bool{}
		for _, id := range left {
			p.Only[id] = true
		}
		if again := Run(t, p); again.Broke(rule) {
			return again
		}
		return nil
	}
	for parts := 2; len(atoms) > 0 && time.Now().Before(until); {
		size := (len(atoms) + parts - 1) / parts
		shrunk := false
		for from := 0; from < len(atoms) && time.Now().Before(until); {
			left := slices.Concat(atoms[:from], atoms[min(from+size, len(atoms)):])
			if again := fails(left); again != nil {
				r, atoms, shrunk = again, left, true
				continue
			}
			from += size
		}
		switch {
		case size == 1 && !shrunk:
			return r
		case !shrunk:
			parts = min(2*parts, len(atoms))
		case len(atoms) > 0:
			parts = min(max(2, parts-1), len(atoms))
		}
	}
	return r
}

// Broke is whether a run broke a rule.
func (r *Result) Broke(rule string) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Rule == rule })
}

// Replay is the command that repeats the run.
func (r *Result) Replay() string {
	command := fmt.Sprintf("go run ./internal/sim/cmd/sim -profile %s -seed %d -v", r.Plan.Profile, r.Plan.Seed)
	if r.Plan.Only == nil {
		return command
	}
	var ids []string
	for id := range r.Plan.Only {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return command + " -only '" + strings.Join(ids, ",") + "'"
}

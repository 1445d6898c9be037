package mutant

import (
	"slices"
	"strings"
	"testing"
)

// A few of the faults that the simulation has to find; task mutants has it look for all.
func TestTheSimulationFindsFaultsThatArePutBack(t *testing.T) {
	if testing.Short() {
		t.Skip("each builds the simulation anew")
	}
	for _, name := range []string{"teeth-c54-rare-looks", "teeth-c55-doubt-is-posted", "teeth-c70-unmatched-deleted"} {
		t.Run(name, func(t *testing.T) {
			i := slices.IndexFunc(teeth, func(p Patch) bool { return p.Name == name })
			if i < 0 {
				t.Fatal("there is no such fault")
			}
			r, err := Run(t.Context(), root(t), teeth[i])
			if err != nil {
				t.Fatal(err)
			}
			if !r.Noticed || !strings.Contains(strings.Join(r.By, " "), "TestHunt") {
				t.Errorf("not found: %s (by %v)", teeth[i].Brings, r.By)
			}
		})
	}
}

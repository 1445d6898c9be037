package sim

import (
	"testing"
)

// Every point of failure on every path, one at a time.
func TestEveryPointOfFailure(t *testing.T) {
	for _, path := range Paths {
		for _, file := range []bool{false, true} {
			store := "azure"
			if file {
				store = "file"
			}
			t.Run(path.Name+"/"+store, func(t *testing.T) {
				points := path.Points(t, file)
				for _, point := range points {
					r := Run(t, point.Plan)
					for _, f := range r.New() {
						t.Errorf("%s: %s", point.What, f)
					}
				}
				t.Logf("%d points", len(points))
				if len(points) < 20 {
					t.Errorf("only %d points were found", len(points))
				}
			})
		}
	}
}

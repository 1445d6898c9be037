package sim

import (
	"flag"
	"testing"
)

var everyPoint = flag.Bool("every-point", false, "try every point of failure, and not one in thirty")

// Every point of failure on every path, one at a time: all of them in .ci/run, and one in
// thirty here.
func TestPointsOfFailure(t *testing.T) {
	step := 30
	if *everyPoint {
		step = 1
	}
	for _, path := range Paths {
		for _, file := range []bool{false, true} {
			if file && path.Name == "hosted" {
				continue // the host receives from an account
			}
			store := "azure"
			if file {
				store = "file"
			}
			t.Run(path.Name+"/"+store, func(t *testing.T) {
				points := path.Points(t, file)
				for i := 0; i < len(points); i += step {
					for _, f := range Run(t, points[i].Plan).Findings {
						t.Errorf("%s: %s", points[i].What, f)
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

package sim

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"
)

var (
	everyPoint = flag.Bool("every-point", false, "try every point of failure, and not one in sixty, with a process for each processor; and the seeds that take long")
	pointsFor  = flag.String("points-for", "", "which of the processes of -every-point this one is: 0/2 is the first of two")
)

// Every point of failure on every path, one at a time: all of them in .ci/run, and one in
// sixty here.
func TestPointsOfFailure(t *testing.T) {
	first, step := 0, 60
	switch {
	case *pointsFor != "":
		if _, err := fmt.Sscanf(*pointsFor, "%d/%d", &first, &step); err != nil || step < 1 {
			t.Fatalf("-points-for=%s: %v", *pointsFor, err)
		}
	case *everyPoint:
		inProcesses(t)
		return
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
				for i := first; i < len(points); i += step {
					for _, f := range Run(t, points[i].Plan).Findings {
						t.Errorf("%s\nwhere %s", f, points[i].What)
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

// inProcesses runs every point in as many processes as there are processors: a simulation uses one.
func inProcesses(t *testing.T) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for n := range runtime.NumCPU() {
		all.Go(func() {
			cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestPointsOfFailure$", "-test.v", fmt.Sprintf("-points-for=%d/%d", n, runtime.NumCPU()))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("process %d: %v\n%s", n, err, out)
			}
		})
	}
	all.Wait()
}

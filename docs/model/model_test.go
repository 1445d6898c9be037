// Package model holds a formal model of one message, and the test that checks it.
package model

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTheModelSaysWhatItsPageSays checks the model with each set of switches in README.md.
func TestTheModelSaysWhatItsPageSays(t *testing.T) {
	for _, tool := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is missing, and CI has to check the model: apt-get install spin gcc", tool)
			}
			t.Skipf("THE MODEL IS NOT CHECKED: %s is missing (apt-get install spin gcc)", tool)
		}
	}
	const lost, unrecorded, twice = "((taken>0)", "((delivered", "((taken<=1)"
	for _, c := range []struct {
		switches string
		violates string // a part of the assertion; empty where all hold
	}{
		{"-DKEEP=0 -DLOST=0", twice},
		{"-DKEEP=1 -DLOST=0", ""},
		{"-DKEEP=1 -DLOST=1", twice},
		{"-DFENCE=1", ""},
		{"-DFENCE=1 -DKEEP=0", ""},
		{"-DNOTE=1", ""},
		{"-DNOTE=1 -DKEEP=0", twice},
		{"-DNOTE=1 -DKILLED=0", twice},
		{"-DNOTE=1 -DSTILL=0", twice},
		{"-DNOTE=1 -DNO_QUEUE=0", twice},
		{"-DNOTE=1 -DNO_STORE=0", twice},
		{"-DNOTE=1 -DUNRECORDED=1", unrecorded},
		{"-DFENCE=1 -DUNTOLD=1", lost},
		{"-DFENCE=1 -DUNRECORDED=1", unrecorded},
		{"-DFENCE=1 -DKILLED=0", twice},
		{"-DFENCE=1 -DSTILL=0", twice},
		{"-DFENCE=1 -DNO_QUEUE=0", twice},
		{"-DFENCE=1 -DNO_STORE=0", unrecorded},
	} {
		t.Run(c.switches, func(t *testing.T) {
			out := explore(t, strings.Fields(c.switches), c.violates != "")
			switch {
			case c.violates == "" && !strings.Contains(out, "errors: 0"):
				t.Errorf("a run breaks a promise:\n%s", out)
			case c.violates != "" && !strings.Contains(out, "assertion violated "+c.violates):
				t.Errorf("no run breaks %s:\n%s", c.violates, out)
			}
		})
	}
}

// explore visits every state that the model can reach, and returns what the checker says.
// With breadth first the run that it shows is the shortest one; it takes more memory.
func explore(t *testing.T, switches []string, breadthFirst bool) string {
	t.Helper()
	model, err := filepath.Abs("message.pml")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	run("spin", append(append([]string{"-a"}, switches...), model)...)
	compile := []string{"-O1", "-w", "-DSAFETY", "-o", "pan", "pan.c"}
	if breadthFirst { // it ends soon: to make it quick takes longer than to run it
		compile = append(compile, "-O0", "-DBFS")
	}
	run("gcc", compile...)
	out := run("./pan", "-m1000000")
	// A search that was cut short proves nothing.
	if strings.Contains(out, "max search depth too small") || strings.Contains(out, "out of memory") {
		t.Fatalf("the search was not complete:\n%s", out)
	}
	return out
}

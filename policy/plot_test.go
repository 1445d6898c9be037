package policy_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var writePlot = flag.Bool("plot", false, "write the plot into docs/flow-control.md")

const (
	plotPage         = "../docs/flow-control.md"
	plotBegin        = "```limited-run\n"
	plotEnd          = "```\n"
	plotStep, plotTo = 5 * time.Second, 150 * time.Second
)

// limitedRun is a run of a backlog against a receiver whose limit rises and goes, as text: POSTs
// a second that were taken, and refused, in each stretch.
func limitedRun() string {
	rises := then(tokenBucket(20, 20), time.Minute, tokenBucket(80, 20))
	tr := &trial{
		accepts: then(rises, 105*time.Second, unlimited), senders: []learner{newPacer(1)},
		latency: 20 * time.Millisecond, window: true, jitter: 200 * time.Microsecond,
	}
	tr.run(plotTo, 1)
	var b strings.Builder
	fmt.Fprintln(&b, "second  limit   taken refused, a second; # is 4")
	for at := time.Duration(0); at < plotTo; at += plotStep {
		limit := "20"
		switch {
		case at >= 105*time.Second:
			limit = "none"
		case at >= time.Minute:
			limit = "80"
		}
		taken, refused := tr.between(at, at+plotStep)
		rate := float64(taken) / plotStep.Seconds()
		bar := strings.Repeat("#", min(int(rate/4+0.5), 60))
		fmt.Fprintf(&b, "%6.0f %6s %7.1f %7.1f  %s\n", at.Seconds(), limit, rate, float64(refused)/plotStep.Seconds(), bar)
	}
	return b.String()
}

// The plot of docs/flow-control.md is one of a run: task plot writes it.
func TestThePlotOfALimitedReceiverIsOfARun(t *testing.T) {
	text, err := os.ReadFile(plotPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), plotBegin)
	shown, after, ended := strings.Cut(rest, plotEnd)
	if !found || !ended {
		t.Fatalf("%s has no plot", plotPage)
	}
	run := limitedRun()
	if *writePlot {
		if err := os.WriteFile(plotPage, []byte(before+plotBegin+run+plotEnd+after), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if shown != run {
		t.Errorf("the plot of %s is of another run; task plot writes it anew:\n%s", plotPage, run)
	}
}

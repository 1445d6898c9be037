package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"
)

// print writes the report for people.
func (r *report) print(out io.Writer) {
	o := r.Options
	where := o.Storage
	if o.Storage == standinStorage {
		where = fmt.Sprintf("standin, %v latency, published limits", o.Latency)
		if o.Limits == noLimits {
			where = fmt.Sprintf("standin, %v latency, WITHOUT the limits of an account", o.Latency)
		}
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }
	say("\n%s, %s, %d CPUs; storage %s; %d rounds of %d messages of %d bytes, %d in flight; receiver %v; took %v\n\n",
		r.Go, r.Platform, r.CPUs, where, o.Rounds, o.Count, o.Size, o.Concurrency, o.Delay,
		(time.Duration(r.Took) * time.Second))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "figure\tmedian\tunit\tleast … most\tratios (least … most)")
	for _, f := range r.Figures {
		var ratios []string
		for _, x := range f.Ratios {
			ratios = append(ratios, fmt.Sprintf("%.2f of %s (%.2f … %.2f)", x.Median, x.To, x.Min, x.Max))
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s … %s\t%s\n", f.Name, number(f.Median), f.Unit, number(f.Min), number(f.Max), strings.Join(ratios, "; "))
	}
	_ = w.Flush() // as for every line above: a terminal that is gone reads nothing
	if len(r.Targets) > 0 {
		say("\ntargets\n")
	}
	for _, t := range r.Targets {
		verdict := "not met"
		if t.Met {
			verdict = "met"
		}
		say("  %-8s %s: %s\n", verdict, t.Text, number(t.Got))
	}
	for _, n := range r.Notes {
		say("\nnote: %s\n", n)
	}
}

// number prints with about three digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// compare prints the figures that two reports share side by side.
func compare(out io.Writer, oldPath, newPath string) error {
	before, err := readReport(oldPath)
	if err != nil {
		return err
	}
	after, err := readReport(newPath)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "figure\told\tnew\tunit\tchange\t")
	row := func(name, unit string, a, b spread) {
		change, remark := "", ""
		if a.Median != 0 {
			change = fmt.Sprintf("%+.0f %%", (b.Median/a.Median-1)*100)
		}
		if a.Min <= b.Max && b.Min <= a.Max {
			remark = "within the spread of the rounds"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", name, number(a.Median), number(b.Median), unit, change, remark)
	}
	for _, a := range before.Figures {
		b := after.find(a.Name)
		if b == nil {
			continue
		}
		row(a.Name, a.Unit, a.spread, b.spread)
		for _, x := range a.Ratios {
			for _, y := range b.Ratios {
				if x.To == y.To {
					row("  ratio to "+x.To, "", x.spread, y.spread)
				}
			}
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	_, err = fmt.Fprintln(out, "\nThe two were measured at different times: trust the ratios more than the rest.")
	return err
}

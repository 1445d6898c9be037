package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

// spread is a series of measured values, one for each round.
type spread struct {
	Values []float64 `json:"values"`
	Min    float64   `json:"min"`
	Median float64   `json:"median"`
	Max    float64   `json:"max"`
}

func (s *spread) add(v float64) {
	s.Values = append(s.Values, v)
	sorted := slices.Sorted(slices.Values(s.Values))
	n := len(sorted)
	s.Min, s.Max = sorted[0], sorted[n-1]
	s.Median = (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// figure is one thing that was measured.
type figure struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	spread
	// Ratios are to references of the same round, by their name.
	Ratios []ratio `json:"ratios,omitempty"`
}

type ratio struct {
	To string `json:"to"`
	spread
}

// target is a figure that issue-tracked work aims at, and whether this run met it.
type target struct {
	Text string  `json:"text"`
	Got  float64 `json:"got"`
	Met  bool    `json:"met"`
}

// report is everything that one run found.
type report struct {
	Tool     string    `json:"tool"`
	Started  time.Time `json:"started"`
	Took     float64   `json:"took_seconds"`
	Go       string    `json:"go"`
	Platform string    `json:"platform"`
	CPUs     int       `json:"cpus"`
	Options  options   `json:"options"`
	Figures  []*figure `json:"figures"`
	Targets  []target  `json:"targets,omitempty"`
	// Notes are what a reader must know to believe the figures.
	Notes []string `json:"notes,omitempty"`
}

func newReport(o options) *report {
	return &report{
		Tool: "pushlease-bench", Started: time.Now().UTC(), Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Options: o,
	}
}

// find returns the figure of a name, or nil.
func (r *report) find(name string) *figure {
	for _, f := range r.Figures {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// add notes one value of a figure.
func (r *report) add(name, unit string, value float64) {
	f := r.find(name)
	if f == nil {
		f = &figure{Name: name, Unit: unit}
		r.Figures = append(r.Figures, f)
	}
	f.add(value)
}

// relate notes that a value of a figure was so many times a reference of its round.
func (r *report) relate(name, to string, value, reference float64) {
	f := r.find(name)
	if f == nil || reference == 0 {
		return
	}
	for i := range f.Ratios {
		if f.Ratios[i].To == to {
			f.Ratios[i].add(value / reference)
			return
		}
	}
	one := ratio{To: to}
	one.add(value / reference)
	f.Ratios = append(f.Ratios, one)
}

func (r *report) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// bound is a target: a figure, or its ratio, that must not be above or below a limit.
type bound struct {
	figure, to string
	atLeast    bool
	limit      float64
	text       string
}

func (r *report) judge(bounds []bound) {
	for _, b := range bounds {
		f := r.find(b.figure)
		if f == nil {
			continue
		}
		got := f.Median
		if b.to != "" {
			i := slices.IndexFunc(f.Ratios, func(x ratio) bool { return x.To == b.to })
			if i < 0 {
				continue
			}
			got = f.Ratios[i].Median
		}
		r.Targets = append(r.Targets, target{Text: b.text, Got: got, Met: b.atLeast == (got >= b.limit) || got == b.limit})
	}
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the report: %w", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func readReport(path string) (*report, error) {
	text, err := os.ReadFile(path) //nolint:gosec // the file that the user named
	if err != nil {
		return nil, fmt.Errorf("read a report: %w", err)
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil || r.Tool != "pushlease-bench" {
		return nil, fmt.Errorf("%s is no report of pushlease-bench", path)
	}
	return &r, nil
}

package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// autoLease is the value of lease that lets measured time decide.
const autoLease = "auto"

func parseLease(v string) (time.Duration, error) {
	if v == autoLease {
		return 0, nil
	}
	d, err := parseDuration(v, minLease, queue.MaxLease)
	if err != nil {
		return 0, fmt.Errorf("%w, or auto", err)
	}
	return d, nil
}

func showLease(d time.Duration) string {
	if d == 0 {
		return autoLease
	}
	return d.String()
}

// Limits of the expected times: a message that takes longer than a lease can be is
// split, or is no message.
const (
	minProcessing = time.Millisecond
	maxProcessing = queue.MaxLease
)

// queueSetting is one thing that can be set for a queue.
type queueSetting struct {
	name string
	set  func(*Queue, string) error
	show func(Queue) string
}

// queueSettings are in the order in which they are shown. The encoding is first, and
// its name may be left out where fields are joined with colons.
var queueSettings = []queueSetting{
	{"encoding", func(q *Queue, v string) (err error) { q.Encoding, err = queue.ParseEncoding(v); return err },
		func(q Queue) string { return string(q.Encoding) }},
	expected("processing", func(q *Queue) *time.Duration { return &q.Processing }),
	expected("processing_min", func(q *Queue) *time.Duration { return &q.ProcessingMin }),
	expected("processing_max", func(q *Queue) *time.Duration { return &q.ProcessingMax }),
	{"lease_from", func(q *Queue, v string) error {
		_, err := oneOf(v, "average", "max")
		q.LeaseFromMax = v == "max"
		return err
	}, func(q Queue) string {
		if q.LeaseFromMax {
			return "max"
		}
		return ""
	}},
	choice("dedup", "message-id", "event-id", func(q *Queue) *bool { return &q.ByEvent }),
	choice("unmatched", "dead-letter", "complete", func(q *Queue) *bool { return &q.CompleteUnmatched }),
}

// choice is a setting with two values, of which usual is in force without it.
func choice(name, usual, other string, field func(*Queue) *bool) queueSetting {
	return queueSetting{name,
		func(q *Queue, v string) error {
			_, err := oneOf(v, usual, other)
			*field(q) = v == other
			return err
		},
		func(q Queue) string {
			if *field(&q) {
				return other
			}
			return ""
		}}
}

func expected(name string, field func(*Queue) *time.Duration) queueSetting {
	return queueSetting{name,
		func(q *Queue, v string) (err error) {
			*field(q), err = parseDuration(v, minProcessing, maxProcessing)
			return err
		},
		func(q Queue) string {
			if d := *field(&q); d > 0 {
				return d.String()
			}
			return ""
		}}
}

func queueSettingNames() []string {
	names := make([]string, len(queueSettings))
	for i, s := range queueSettings {
		names[i] = s.name
	}
	return names
}

// faults joins what is wrong with several parts of one setting, so that all of it is
// told at once.
type faults []error

func (f faults) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "\n    ")
}

// err is nil when nothing is wrong.
func (f faults) err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

// parseQueues reads queue=encoding:name=value:…, with any of the fields left out,
// and commas between queues. The error names all that is wrong.
func parseQueues(v string) (map[string]Queue, error) {
	var found map[string]Queue
	var wrong faults
	for _, item := range splitList(v) {
		name, fields, ok := strings.Cut(item, "=")
		if !ok {
			wrong = append(wrong, fmt.Errorf("%q is not queue=encoding; write orders=base64,invoices=none", item))
			continue
		}
		if err := queue.ValidateName(name); err != nil {
			wrong = append(wrong, fmt.Errorf("queue %q: %w", name, err))
			continue
		}
		if _, twice := found[name]; twice {
			wrong = append(wrong, fmt.Errorf("queue %s is named twice; keep one", name))
			continue
		}
		q, of := parseQueue(fields)
		for _, err := range of {
			wrong = append(wrong, fmt.Errorf("queue %s: %w", name, err))
		}
		if found == nil {
			found = map[string]Queue{}
		}
		found[name] = q
	}
	return found, wrong.err()
}

func parseQueue(fields string) (Queue, faults) {
	var q Queue
	var seen []string
	var wrong faults
	for i, field := range strings.Split(fields, ":") {
		name, v, named := strings.Cut(field, "=")
		if !named {
			if i > 0 {
				wrong = append(wrong, fmt.Errorf("%q is not name=value; write base64:processing=45s", field))
				continue
			}
			name, v = queueSettings[0].name, field
		}
		k := slices.IndexFunc(queueSettings, func(s queueSetting) bool { return s.name == name })
		switch {
		case k < 0:
			wrong = append(wrong, fmt.Errorf("there is no setting %q; %s", name, suggest(name, queueSettingNames(), "use "+strings.Join(queueSettingNames(), ", "))))
			continue
		case slices.Contains(seen, name):
			wrong = append(wrong, fmt.Errorf("%s is there twice; keep one", name))
			continue
		}
		seen = append(seen, name)
		if err := queueSettings[k].set(&q, v); err != nil {
			if name != queueSettings[0].name {
				err = fmt.Errorf("%s: %w", name, err)
			}
			wrong = append(wrong, err)
		}
	}
	if err := q.contradiction(); err != nil && len(wrong) == 0 { // of values that could be read
		wrong = append(wrong, err)
	}
	return q, wrong
}

// contradiction says which expected times can't be true together.
func (q Queue) contradiction() error {
	ascending := []struct {
		name string
		d    time.Duration
	}{{"processing_min", q.ProcessingMin}, {"processing", q.Processing}, {"processing_max", q.ProcessingMax}}
	for i, low := range ascending {
		for _, high := range ascending[i+1:] {
			if low.d > 0 && high.d > 0 && low.d > high.d {
				return fmt.Errorf("%s is %s, above %s, %s; correct one of them", low.name, low.d, high.name, high.d)
			}
		}
	}
	if q.LeaseFromMax && q.ProcessingMax == 0 {
		return errors.New("lease_from is max, and there is no processing_max; set it, or take lease_from away")
	}
	return nil
}

func showQueues(queues map[string]Queue) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		var fields []string
		for i, s := range queueSettings {
			v := s.show(queues[name])
			switch {
			case v == "":
			case i == 0:
				fields = append(fields, v)
			default:
				fields = append(fields, s.name+"="+v)
			}
		}
		parts = append(parts, name+"="+strings.Join(fields, ":"))
	}
	return strings.Join(parts, ",")
}

// queuesText turns the map of the YAML file into the form that parseQueues reads.
func queuesText(queues map[string]any) (string, error) {
	var parts []string
	var wrong faults
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		settings, ok := queues[name].(map[string]any)
		if !ok || len(settings) == 0 {
			wrong = append(wrong, fmt.Errorf("queue %q has no settings; write %s: {encoding: base64}", name, name))
			continue
		}
		var fields []string
		for _, key := range slices.Sorted(maps.Keys(settings)) {
			v := fmt.Sprint(settings[key])
			if strings.ContainsAny(key+v, ":=, \t\r\n") { // they would mean something else in one line
				wrong = append(wrong, fmt.Errorf("queue %q: %q is no value of %q", name, v, key))
				continue
			}
			fields = append(fields, key+"="+v)
		}
		parts = append(parts, name+"="+strings.Join(fields, ":"))
	}
	text := strings.Join(parts, ",")
	if _, err := parseQueues(text); err != nil && len(wrong) > 0 { // it is not read otherwise
		wrong = append(wrong, err)
	}
	return text, wrong.err()
}

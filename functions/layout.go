package functions

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// The triggers that pushlease has functions for.
const (
	queueTrigger = "queueTrigger"
	timerTrigger = "timerTrigger"
	httpTrigger  = "httpTrigger"
)

// appStorage is the setting of the account that pushlease uses, and triggers by default.
const appStorage = "AzureWebJobsStorage"

const defaultFunctionTimeout = 5 * time.Minute // the shortest default of all plans

// Layout is what the folder of a deployed app says.
type Layout struct {
	// Functions by name, which is the name of the folder.
	Functions map[string]Function
	// Timeout is host.json's functionTimeout: an invocation that takes longer has this
	// process killed. Zero where there is none.
	Timeout time.Duration
	// AtOnce is how many messages of one queue the host may bring at a time.
	AtOnce int
	// TakenAway says which settings have the host move messages to its poison queue unseen.
	TakenAway []string
}

// Function is one function.json.
type Function struct {
	Name, Trigger string
	// Binding is the name of the trigger's value.
	Binding string
	// Queue, Connection and DataType are a queue trigger's, with %SETTINGS% filled in.
	Queue, Connection, DataType string
	// Route is an HTTP trigger's, below the host's prefix.
	Route string
	// Schedule is a timer trigger's, with %SETTINGS% filled in.
	Schedule string
	// DisabledBy is what keeps the host from calling it: function.json, a setting or a list.
	DisabledBy string
}

// ReadLayout reads the app below root as the host does: host.json, and function.json of
// each folder beside it. The error names everything that is wrong; what could be read is returned
// with it.
func ReadLayout(root fs.FS, env Environment) (Layout, error) {
	host, err := readHostSettings(root, env)
	l := Layout{Functions: map[string]Function{}, AtOnce: atOnce(host), TakenAway: takesAway(host)}
	errs := []error{err}
	if l.Timeout, err = timeoutOf(host); err != nil {
		errs = append(errs, err)
	}
	entries, err := fs.ReadDir(root, ".")
	if err != nil {
		return l, errors.Join(append(errs, fmt.Errorf("read the app's folder: %w", err))...)
	}
	for _, e := range entries {
		text, err := fs.ReadFile(root, path.Join(e.Name(), "function.json"))
		if errors.Is(err, fs.ErrNotExist) || !e.IsDir() {
			continue
		}
		f := Function{Name: e.Name()}
		if err == nil {
			err = f.read(text, host)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s/function.json: %w", e.Name(), err))
			continue
		}
		l.Functions[f.Name] = f
	}
	return l, errors.Join(errs...)
}

// usualPrefix is the host's own routePrefix, and the packaged one.
const usualPrefix = "api"

// timeoutOf reads functionTimeout; zero is for ever.
func timeoutOf(host hostSettings) (time.Duration, error) {
	text, _ := textOf(host.get("functionTimeout"))
	if text == "" {
		return defaultFunctionTimeout, nil
	}
	timeout, err := parseTimeSpan(text)
	if err != nil {
		return defaultFunctionTimeout, fmt.Errorf("host.json: functionTimeout: %w", err)
	}
	return max(timeout, 0), nil
}

// atOnce reads batchSize and newBatchThreshold: the host receives a batch whenever it has no more
// than the threshold in hand. Where they can't be read they are the host's own defaults.
func atOnce(host hostSettings) int {
	number := func(setting string, otherwise int) int {
		if n, ok := numberOf(host.get("extensions.queues." + setting)); ok {
			return max(n, 0)
		}
		return otherwise
	}
	batch := number("batchSize", 16)
	return batch + number("newBatchThreshold", batch/2) // and more on several processors
}

// Crowded says that the host may bring more messages at a time, of all queues with a trigger, than
// maxInFlight allows in hand, and how many; 0 where there is room for all.
func (l Layout) Crowded(maxInFlight int) (brings int) {
	if brings = l.AtOnce * len(l.Queues()); brings <= maxInFlight {
		return 0
	}
	return brings
}

// parseTimeSpan reads what .NET writes as [-][d.]hh:mm:ss; negative means without end.
func parseTimeSpan(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is no time span; write hh:mm:ss", s)
	if s == "-1" || strings.HasPrefix(s, "-") {
		return -1, nil
	}
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return 0, bad
	}
	days, hours, dotted := strings.Cut(parts[0], ".")
	if !dotted {
		days, hours = "0", parts[0]
	}
	seconds, _, _ := strings.Cut(parts[2], ".")
	total := time.Duration(0)
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, err := strconv.ParseUint([]string{days, hours, parts[1], seconds}[i], 10, 16)
		if err != nil {
			return 0, bad
		}
		total += time.Duration(n) * unit
	}
	if total == 0 {
		return 0, bad
	}
	return total, nil
}

func (f *Function) read(body []byte, host hostSettings) error {
	var file struct {
		Bindings []struct{ Type, Name, QueueName, Connection, DataType, Route, Schedule string }
		Disabled any // true, or the name of a setting that says so
	}
	if err := json.Unmarshal(PlainJSON(body), &file); err != nil {
		return fmt.Errorf("it is not JSON: %w", err)
	}
	for _, b := range file.Bindings {
		if !strings.HasSuffix(strings.ToLower(b.Type), "trigger") {
			continue
		}
		i := slices.IndexFunc([]string{queueTrigger, timerTrigger, httpTrigger}, func(t string) bool { return strings.EqualFold(t, b.Type) })
		if i < 0 {
			return fmt.Errorf("its trigger %s is none of pushlease's", b.Type)
		}
		f.DisabledBy = disabledBy(f.Name, file.Disabled, host)
		f.Trigger, f.Binding, f.DataType, f.Route = []string{queueTrigger, timerTrigger, httpTrigger}[i], b.Name, b.DataType, b.Route
		f.Schedule = expand(b.Schedule, host.env)
		if f.Trigger != queueTrigger {
			return nil
		}
		f.Queue, f.Connection = expand(b.QueueName, host.env), b.Connection
		if f.Connection == "" {
			f.Connection = appStorage
		}
		if err := queue.ValidateName(f.Queue); err != nil {
			return fmt.Errorf("queueName %q: %w", f.Queue, err)
		}
		return nil
	}
	return errors.New("it has no trigger")
}

// disabledBy says what keeps the host from calling a function, of which its own file says this; empty
// when nothing does.
func disabledBy(function string, inFile any, host hostSettings) string {
	on := func(name string) bool { v := host.env.get(name); return strings.EqualFold(v, "true") || v == "1" }
	for _, between := range []string{".", "_", "__"} { // of the dots of a setting's name Linux plans make underscores
		if name := "AzureWebJobs" + between + function + between + "Disabled"; on(name) {
			return name
		}
	}
	named := func(name string) bool { return strings.EqualFold(name, function) }
	if len(host.functions) > 0 && !slices.ContainsFunc(host.functions, named) {
		return "the list functions in host.json or AzureFunctionsJobHost__functions__*"
	}
	if setting, _ := inFile.(string); inFile == true || setting != "" && on(strings.Trim(setting, "%")) {
		return `"disabled" in its function.json`
	}
	return ""
}

// expand fills in %SETTINGS% as the host does.
func expand(s string, env Environment) string {
	parts := strings.Split(s, "%")
	for i := 1; i < len(parts)-1; i += 2 {
		parts[i] = env.get(parts[i])
	}
	return strings.Join(parts, "")
}

// asText reports whether the host passes a queue trigger's messages on as text.
func (f Function) asText() bool {
	return f.Trigger == queueTrigger && !strings.EqualFold(f.DataType, "binary")
}

// AsText names the queues of which the host passes messages on as text: those with a brace are not
// believed. One that the host does not call passes on nothing.
func (l Layout) AsText() (queues []string) {
	for _, f := range l.Functions {
		if f.asText() && f.DisabledBy == "" {
			queues = append(queues, f.Queue)
		}
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

// Idle says what is not done, or late, since the host does not call a function; polls: queues without a
// trigger are polled all the time, and nobody lacks the pump.
func (l Layout) Idle(polls bool) (all []string) {
	for _, name := range []string{timerPump, timerHousekeeping} {
		if f := l.Functions[name]; f.Trigger != timerTrigger && missed(name, polls) {
			all = append(all, name+" is not there: "+l.without(Function{Name: name, Trigger: timerTrigger}, polls))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.Functions)) {
		if f := l.Functions[name]; f.DisabledBy != "" && missed(name, polls) {
			all = append(all, name+" is disabled by "+f.DisabledBy+": "+l.without(f, polls))
		}
	}
	return all
}

// missed: the poller replaces the pump, and nothing else.
func missed(function string, polls bool) bool { return !polls || function != timerPump }

// without says what it means that the host does not call f.
func (l Layout) without(f Function, polls bool) string {
	pump := l.Functions[timerPump]
	elsewhere := ""
	if f.Connection != appStorage {
		elsewhere = ", if " + f.Connection + " is the storage of pushlease, and with nobody otherwise"
	}
	switch pumped := pump.Trigger == timerTrigger && pump.DisabledBy == ""; {
	case f.Trigger == queueTrigger && pumped && !polls:
		return "the messages of " + f.Queue + " come with the pump, as those of a queue without a trigger" + elsewhere + "; what should not be POSTed is a matter of its webhooks"
	case f.Trigger == queueTrigger && (!polls || l.switchedOff(f)):
		return "nobody receives from " + f.Queue + " here, and its messages expire where no other app does"
	case f.Trigger == queueTrigger:
		return "the messages of " + f.Queue + " are polled, as those of a queue without a trigger" + elsewhere
	case f.Trigger == httpTrigger:
		return "the API is not reached from outside"
	case f.Name == timerHousekeeping:
		return "records are never removed"
	}
	return "nobody receives from queues without a trigger, and what waits there expires unseen"
}

// switchedOff: the host is to call neither f, a queue's trigger, nor the pump. A poller would be a third way, in an
// app, a slot or a part of an app that is to do nothing.
func (l Layout) switchedOff(f Function) bool {
	return f.Trigger == queueTrigger && f.DisabledBy != "" && l.Functions[timerPump].DisabledBy != ""
}

// Others names the queues that are left to others than the pump and the poller.
func (l Layout) Others() []string {
	return l.ofQueueTriggers(func(f Function) bool { return f.DisabledBy == "" || l.switchedOff(f) }, func(f Function) string { return f.Queue })
}

// hostGap is how long it takes the host at most to look at a queue with a trigger, where it may
// have to be started first. It is no longer than from one run of the pump to the next.
const hostGap = 6 * time.Minute

// LookGap is how long a queue may be without anybody who looks at it. polls: those without a
// trigger are polled all the time.
func (l Layout) LookGap(queueName string, polls bool) time.Duration {
	switch {
	case slices.Contains(l.Queues(), queueName):
		return min(l.pumpGap(), hostGap)
	case polls:
		return 0
	}
	return l.pumpGap()
}

// pumpGap is how long it is from one run of the pump to the next, which waits for the end of the
// one before.
func (l Layout) pumpGap() time.Duration {
	every, ok := everyOf(l.Functions[timerPump].Schedule)
	if !ok {
		every = slowestPump
	}
	return every + tickTimeout(l.Timeout)
}

// slowestPump is how seldom the pump may run, and what is assumed where that can't be told.
const slowestPump = 10 * time.Minute

// everyOf reads how often a timer runs from a schedule of {second} {minute} {hour} {day}
// {month} {weekday}; ok is false for one that is not simply every so many minutes.
func everyOf(schedule string) (every time.Duration, ok bool) {
	fields := strings.Fields(schedule)
	if len(fields) != 6 || strings.Join(fields[2:], "") != "****" {
		return 0, false
	}
	if _, err := strconv.ParseUint(fields[0], 10, 8); err != nil {
		return 0, false
	}
	if fields[1] == "*" {
		return time.Minute, true
	}
	step, stepped := strings.CutPrefix(fields[1], "*/")
	n, err := strconv.ParseUint(step, 10, 8)
	if !stepped || err != nil || n < 1 || n > 59 {
		return 0, false
	}
	return time.Duration(n) * time.Minute, true
}

// Connections names the settings of the storage that the host receives from.
func (l Layout) Connections() []string {
	return l.ofQueueTriggers(isCalled, func(f Function) string { return f.Connection })
}

// Queues names the queues that the host receives from. A queue whose trigger is disabled is one without a trigger.
func (l Layout) Queues() []string {
	return l.ofQueueTriggers(isCalled, func(f Function) string { return f.Queue })
}

func isCalled(f Function) bool { return f.DisabledBy == "" }

// ofQueueTriggers is what those queue triggers have, each once, in order.
func (l Layout) ofQueueTriggers(those func(Function) bool, what func(Function) string) (all []string) {
	for _, f := range l.Functions {
		if f.Trigger == queueTrigger && those(f) {
			all = append(all, what(f))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

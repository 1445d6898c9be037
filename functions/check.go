package functions

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Deviation is one way in which a deployed app differs from what pushlease needs.
type Deviation struct {
	// Where is a file and the setting in it, Is what it says.
	Where, Is string
	// Why is what goes wrong; Cure what to write instead.
	Why, Cure string
	// Fatal: messages or requests are not handled as they should be. Otherwise it costs
	// time or money only.
	Fatal bool
}

// need is what one of host.json's settings has to be.
type need struct {
	setting string
	// good says whether a value will do; it is nil for one that is not there.
	good  func(v any) bool
	why   string
	cure  string
	fatal bool
}

// Settings with which the host takes messages away before they are seen here.
const (
	dequeueCount    = "extensions.queues.maxDequeueCount"
	messageEncoding = "extensions.queues.messageEncoding"
)

const (
	// leastDequeueCount is five weeks of a message that comes by every 30 s.
	leastDequeueCount = 100_000
	leastTimeout      = time.Minute
	apiRoute          = "v1/{*path}"
)

// sameText takes another case too, as the host does of a route, a truth value and a choice.
func sameText(v any, want string) bool {
	text, ok := textOf(v)
	return ok && strings.EqualFold(strings.TrimSpace(text), want)
}

func is(want any) func(any) bool { return func(v any) bool { return v == want } }

func isTrue(v any) bool { return sameText(v, "true") }

func oneOrMore(most int) func(any) bool {
	return func(v any) bool {
		n, ok := numberOf(v)
		return v == nil || ok && n >= 1 && n <= most
	}
}

// needs are in the order of host.json.
func needs() []need {
	return []need{
		{"version", is("2.0"), "the host knows no other", `write "2.0"`, true},
		{"functionTimeout", longEnough, "POSTs end up to 30 s before it, and below a minute hardly any receiver is quick enough; without a function timeout the default of the plan is not known here", `write "00:05:00"`, false},
		{"extensionBundle.id", is("Microsoft.Azure.Functions.ExtensionBundle"), "queue triggers come with it", `write "Microsoft.Azure.Functions.ExtensionBundle"`, true},
		{"extensionBundle.version", func(v any) bool { return v == "[4.0.0, 5.0.0)" || v == "[4.*, 5.0.0)" }, "older bundles are not maintained, and odd ranges don't resolve", `write "[4.0.0, 5.0.0)"`, true},
		{"customHandler.description.defaultExecutablePath", is(Executable), "this is the program's name in the package", `write "` + Executable + `"`, true},
		{"customHandler.enableForwardingHttpRequest", isTrue, "older hosts pass the API's requests on only with it", "write true", true},
		{"customHandler.enableProxyingHttpRequest", isTrue, "newer hosts stream the API's requests with it; without it, chunked bodies are lost", "write true", true},
		{"customHandler.http", is(nil), "the host refuses to start with it, since there are function.json files", "remove it", true},
		{"extensions.http.routePrefix", func(v any) bool { return v == nil || sameText(v, usualPrefix) }, "the API is at /api/v1; with an empty prefix callers from outside come near the paths of invocations", `write "api"`, true},
		{"extensions.queues.batchSize", oneOrMore(32), "the host takes 1 to 32", "write 8", true},
		{dequeueCount, func(v any) bool { n, ok := numberOf(v); return ok && n >= leastDequeueCount },
			"the host counts every receive, also of messages that wait, and moves messages away by itself when it is reached, without a dead letter", "write 100000", true},
		{"extensions.queues.visibilityTimeout", positive, "what could not be taken over is tried again at once without it, over and over", `write "00:00:30"`, true},
		{"extensions.queues.maxPollingInterval", func(v any) bool { d, ok := span(v); return ok && d <= time.Minute }, "a message on an idle queue waits for so long", `write "00:00:10"`, false},
		{messageEncoding, func(v any) bool { return sameText(v, "none") }, "with base64, the default, the host decodes texts itself, and moves those that it can't decode to the poison queue before they are seen here; the queue's encoding is set here", `write "none"`, true},
	}
}

// takesAway says with which settings the host moves messages to its poison queue that pushlease never sees, and why.
func takesAway(host hostSettings) (all []string) {
	for _, n := range needs() {
		if v := host.get(n.setting); (n.setting == dequeueCount || n.setting == messageEncoding) && !n.good(v) {
			all = append(all, fmt.Sprintf("host.json: %s is %s: %s; %s", n.setting, shown(v), n.why, n.cure))
		}
	}
	return all
}

func span(v any) (time.Duration, bool) {
	text, _ := textOf(v)
	d, err := parseTimeSpan(text)
	return d, err == nil
}

func positive(v any) bool { d, ok := span(v); return ok && d > 0 }

func longEnough(v any) bool { d, ok := span(v); return ok && (d < 0 || d >= leastTimeout) }

// Check compares the app below root with what pushlease needs. An error means that there is nothing
// to compare.
func Check(root fs.FS, env Environment) ([]Deviation, error) {
	host, err := readHostSettings(root, env)
	if err != nil {
		return nil, err
	}
	var found []Deviation
	for _, n := range needs() {
		if v := host.get(n.setting); !n.good(v) {
			found = append(found, Deviation{"host.json: " + n.setting, shown(v), n.why, n.cure, n.fatal})
		}
	}
	if info, err := fs.Stat(root, Executable); err == nil && info.Mode()&0o111 == 0 && runtime.GOOS != "windows" {
		found = append(found, Deviation{Executable, "not executable", "the host can't start it, and the app never comes up", "chmod +x " + Executable + ", or deploy the zip itself", true})
	}
	return append(append(found, checkPlan(host)...), checkFunctions(root, host)...), nil
}

// longestConsumption is what the plan Consumption allows.
const longestConsumption = 10 * time.Minute

// checkPlan finds a function timeout that the plan Consumption does not take.
func checkPlan(host hostSettings) []Deviation {
	const setting = "functionTimeout"
	v := host.get(setting)
	timeout, ok := span(v)
	plan := host.env.get("WEBSITE_SKU") // Azure sets it
	if !ok || timeout >= 0 && timeout <= longestConsumption || plan != "" && plan != "Dynamic" {
		return nil
	}
	return []Deviation{{"host.json: " + setting, shown(v), "on the plan Consumption the host does not start with more than 10 minutes; on all others it is fine",
		`write "00:05:00", or up to "00:10:00"`, plan != ""}}
}

func shown(v any) string {
	if v == nil {
		return "not set"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "not readable"
	}
	return string(text)
}

// checkFunctions looks at each function.json.
func checkFunctions(root fs.FS, host hostSettings) []Deviation {
	var found []Deviation
	layout, err := ReadLayout(root, host.env)
	if err != nil {
		found = append(found, Deviation{"function.json", err.Error(), "the host, or this program, does not take it", "package the app anew", true})
	}
	polls := strings.EqualFold(host.env.get("PUSHLEASE_FUNCTIONS_POLLER"), "true")
	byQueue := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(layout.Functions)) {
		f := layout.Functions[name]
		where := path.Join(name, "function.json")
		if f.DisabledBy != "" && missed(name, polls) {
			found = append(found, Deviation{where, "disabled by " + f.DisabledBy, "the host does not call it: " + layout.without(f, polls), "take it out of there; to stop a webhook, disable that", true})
		}
		if f.Trigger == httpTrigger && f.Route != apiRoute {
			found = append(found, Deviation{where + ": route", shown(nonEmpty(f.Route)), "the API is at /api/v1, and no other address is answered", `write "` + apiRoute + `"`, true})
		}
		if f.Trigger != queueTrigger || f.DisabledBy != "" {
			continue
		}
		if f.Connection != appStorage && host.env.get("PUSHLEASE_STORAGE") == "" {
			found = append(found, Deviation{where + ": connection", shown(f.Connection), "messages of this account can't be given back in the one that pushlease uses, " + appStorage + ": they come back after the host's delay, over and over",
				`write "` + appStorage + `", or set PUSHLEASE_STORAGE to the same account`, true})
		}
		if f.asText() {
			found = append(found, Deviation{where + ": dataType", shown(nonEmpty(f.DataType)),
				"a message that is a JSON object would replace its own id and receipt; no text with a brace is POSTed, and such messages wait until they expire", `write "binary"`, true})
		}
		if other, twice := byQueue[f.Queue]; twice {
			found = append(found, Deviation{where + ": queueName", f.Queue, "the function " + other + " has a trigger for it too, and they compete", "remove one of them", true})
		}
		byQueue[f.Queue] = name
	}
	for _, timer := range []string{timerPump, timerHousekeeping} {
		if f, ok := layout.Functions[timer]; (!ok || f.Trigger != timerTrigger) && missed(timer, polls) {
			found = append(found, Deviation{timer, "not there", layout.without(Function{Name: timer, Trigger: timerTrigger}, polls), "package the app anew", timer == timerPump})
		}
	}
	if f := layout.Functions[timerPump]; f.Trigger == timerTrigger {
		if every, ok := everyOf(f.Schedule); !ok || every > time.Minute {
			found = append(found, Deviation{timerPump + "/function.json: schedule", shown(nonEmpty(f.Schedule)),
				"messages on queues without a trigger come later, and of messages that live no longer than a few runs some expire unseen" + map[bool]string{false: "; how often it runs can't be told, and every 10 minutes is assumed"}[ok],
				`write "0 * * * * *"`, ok && every > slowestPump})
		}
	}
	return found
}

func nonEmpty(s string) any {
	if s == "" {
		return nil
	}
	return s
}

package functions

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func packaged(t *testing.T, queues ...string) fstest.MapFS {
	t.Helper()
	files, err := Package(queues)
	if err != nil {
		t.Fatal(err)
	}
	app := fstest.MapFS{}
	for name, text := range files {
		app[name] = &fstest.MapFile{Data: text}
	}
	return app
}

func noSettings(string) (string, bool) { return "", false }

func settings(of map[string]string) Environment {
	return func(name string) (string, bool) { v, ok := of[name]; return v, ok }
}

func TestThePackageIsWhatCheckAsksFor(t *testing.T) {
	app := packaged(t, "orders", "invoices")
	app["host.json"].Data = bytes.Replace(app["host.json"].Data, []byte("[4.0.0, "), []byte("[4.*, "), 1) // as the Core Tools write it
	app[Executable] = &fstest.MapFile{Mode: 0o755}
	deviations, err := Check(app, noSettings)
	if err != nil || len(deviations) != 0 {
		t.Errorf("%v, %+v", err, deviations)
	}
}

func TestTheRepositoryHasThePackagedHostFile(t *testing.T) {
	text, err := os.ReadFile("../host.json")
	if err != nil || string(text) != hostJSON {
		t.Errorf("host.json and the packaged one differ: %v", err)
	}
}

// TestEveryDeviationIsFoundWithACure breaks one setting after the other.
func TestEveryDeviationIsFoundWithACure(t *testing.T) {
	wrong := map[string]string{
		"version": `"3.0"`, "functionTimeout": `"00:00:30"`, "extensionBundle.id": `"x"`, "extensionBundle.version": `"[3.*, 4.0.0)"`,
		"customHandler.description.defaultExecutablePath": `"other"`, "customHandler.enableForwardingHttpRequest": `false`,
		"customHandler.enableProxyingHttpRequest": `null`, "customHandler.http": `{"routes":[]}`, "extensions.http.routePrefix": `""`,
		"extensions.queues.batchSize": `33`, "extensions.queues.maxDequeueCount": `5`, "extensions.queues.visibilityTimeout": `"00:00:00"`,
		"extensions.queues.maxPollingInterval": `"00:05:00"`, "extensions.queues.messageEncoding": `"base64"`,
	}
	for _, n := range needs() {
		t.Run(n.setting, func(t *testing.T) {
			value, ok := wrong[n.setting]
			if !ok {
				t.Fatal("there is no wrong value for it here")
			}
			app := packaged(t, "orders")
			app["host.json"].Data = withSetting(t, app["host.json"].Data, n.setting, value)
			deviations, err := Check(app, noSettings)
			if err != nil || len(deviations) != 1 || deviations[0].Where != "host.json: "+n.setting || deviations[0].Cure == "" || deviations[0].Why == "" {
				t.Errorf("%v, %+v", err, deviations)
			}
		})
	}
}

// withSetting changes one setting in host.json.
func withSetting(t *testing.T, text []byte, setting, value string) []byte {
	t.Helper()
	var host map[string]any
	if err := json.Unmarshal(text, &host); err != nil {
		t.Fatal(err)
	}
	names := strings.Split(setting, ".")
	m := host
	for _, name := range names[:len(names)-1] {
		m = m[name].(map[string]any)
	}
	m[names[len(names)-1]] = json.RawMessage(value)
	text, err := json.Marshal(host)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestAVariableReplacesASettingOfHostJSON(t *testing.T) {
	getenv := settings(map[string]string{
		"AzureFunctionsJobHost__extensions__queues__maxDequeueCount":      "5",
		"AzureFunctionsJobHost__functionTimeout":                          "00:10:00",
		"AzureFunctionsJobHost__customHandler__enableProxyingHttpRequest": "True",
	})
	deviations, err := Check(packaged(t, "orders"), getenv)
	if err != nil || len(deviations) != 1 || !strings.HasSuffix(deviations[0].Where, "maxDequeueCount") {
		t.Errorf("%v, %+v", err, deviations)
	}
	deviations, err = Check(packaged(t, "orders"), settings(map[string]string{"AzureWebJobs.dispatch-orders.Disabled": "True"}))
	if err != nil || len(deviations) != 1 || deviations[0].Where != "dispatch-orders/function.json" {
		t.Errorf("%v, %+v", err, deviations)
	}
	layout, err := ReadLayout(packaged(t, "orders"), getenv)
	if err != nil || layout.Timeout != 10*time.Minute {
		t.Errorf("timeout %s, %v", layout.Timeout, err)
	}
}

func TestALongTimeoutIsForOtherPlansThanConsumption(t *testing.T) {
	for _, tt := range []struct {
		timeout, plan string
		found, fatal  bool
	}{
		{`"00:10:00"`, "Dynamic", false, false}, {`"00:10:01"`, "Dynamic", true, true}, {`"-1"`, "Dynamic", true, true},
		{`"00:30:00"`, "", true, false}, {`"00:30:00"`, "FlexConsumption", false, false}, {`"-1"`, "ElasticPremium", false, false},
	} {
		app := packaged(t, "orders")
		app["host.json"].Data = withSetting(t, app["host.json"].Data, "functionTimeout", tt.timeout)
		deviations, err := Check(app, settings(map[string]string{"WEBSITE_SKU": tt.plan}))
		if err != nil || (len(deviations) == 1) != tt.found || tt.found && (deviations[0].Fatal != tt.fatal || deviations[0].Cure == "") {
			t.Errorf("%s on %q: %v, %+v", tt.timeout, tt.plan, err, deviations)
		}
	}
}

func TestDeviationsOfFunctionsAreFound(t *testing.T) {
	tests := []struct {
		name   string
		change func(app fstest.MapFS)
		where  string
	}{
		{"text", func(app fstest.MapFS) {
			app["dispatch-orders/function.json"].Data = bytes.Replace(app["dispatch-orders/function.json"].Data, []byte(`"binary"`), []byte(`"string"`), 1)
		}, "dispatch-orders/function.json: dataType"},
		{"two triggers", func(app fstest.MapFS) { app["second/function.json"] = app["dispatch-orders/function.json"] }, "second/function.json: queueName"},
		{"no pump", func(app fstest.MapFS) { delete(app, "pump/function.json") }, "pump"},
		{"a pump that is rare", func(app fstest.MapFS) { schedule(app, "0 */5 * * * *") }, "pump/function.json: schedule"},
		{"a pump by the hour", func(app fstest.MapFS) { schedule(app, "0 0 * * * *") }, "pump/function.json: schedule"},
		{"no housekeeping", func(app fstest.MapFS) { delete(app, "housekeeping/function.json") }, "housekeeping"},
		{"no exec bit", func(app fstest.MapFS) { app["pushlease"] = &fstest.MapFile{Mode: 0o644} }, "pushlease"},
		{"another route", func(app fstest.MapFS) {
			app["api/function.json"].Data = bytes.Replace(app["api/function.json"].Data, []byte("v1/{*path}"), []byte("{*path}"), 1)
		}, "api/function.json: route"},
		{"another account", func(app fstest.MapFS) {
			app["dispatch-orders/function.json"].Data = bytes.Replace(app["dispatch-orders/function.json"].Data, []byte("AzureWebJobsStorage"), []byte("Other"), 1)
		}, "dispatch-orders/function.json: connection"},
		{"disabled", func(app fstest.MapFS) {
			app["pump/function.json"].Data = bytes.Replace(app["pump/function.json"].Data, []byte("{"), []byte(`{"disabled": true,`), 1)
		}, "pump/function.json"},
		{"not listed", func(app fstest.MapFS) {
			app["host.json"].Data = bytes.Replace(app["host.json"].Data, []byte("{"), []byte(`{"functions": ["api", "PUMP", "housekeeping"],`), 1)
		}, "dispatch-orders/function.json"},
		{"no JSON", func(app fstest.MapFS) { app["dispatch-orders/function.json"].Data = []byte("{") }, "function.json"},
		{"foreign trigger", func(app fstest.MapFS) {
			app["x/function.json"] = &fstest.MapFile{Data: []byte(`{"bindings":[{"type":"blobTrigger"}]}`)}
		}, "function.json"},
		{"a queue from a setting that is not there", func(app fstest.MapFS) {
			app["x/function.json"] = &fstest.MapFile{Data: []byte(`{"bindings":[{"type":"queueTrigger","queueName":"%NONE%","dataType":"binary"}]}`)}
		}, "function.json"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			app := packaged(t, "orders")
			tt.change(app)
			deviations, err := Check(app, noSettings)
			if err != nil || len(deviations) != 1 || deviations[0].Where != tt.where {
				t.Errorf("%v, %+v", err, deviations)
			}
		})
	}
	if _, err := Check(fstest.MapFS{}, noSettings); err == nil {
		t.Error("an app without host.json was checked")
	}
}

func schedule(app fstest.MapFS, text string) {
	app["pump/function.json"].Data = bytes.Replace(app["pump/function.json"].Data, []byte("0 * * * * *"), []byte(text), 1)
}

// TestHowLongNobodyLooksIsReadFromTheSchedule: a run waits for the one before, which may
// take as long as the function timeout.
func TestHowLongNobodyLooksIsReadFromTheSchedule(t *testing.T) {
	for text, every := range map[string]time.Duration{
		"0 * * * * *": time.Minute, "30 */2 * * * *": 2 * time.Minute, "0 */10 * * * *": 10 * time.Minute,
		"0 0 * * * *": slowestPump, "0 */61 * * * *": slowestPump, "0 */0 * * * *": slowestPump, "0 * 8-18 * * *": slowestPump,
		"00:01:00": slowestPump, "* * * * *": slowestPump, "": slowestPump, "x * * * * *": slowestPump,
	} {
		app := packaged(t)
		schedule(app, text)
		layout, err := ReadLayout(app, noSettings)
		if err != nil || layout.pumpGap() != every+5*time.Minute {
			t.Errorf("%q: %s, %v; want %s", text, layout.pumpGap(), err, every+5*time.Minute)
		}
	}
}

func TestThePackageIsFlatAndTakesNothingTwice(t *testing.T) {
	files, err := Package([]string{"orders", "invoices"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		".funcignore", "api/function.json", "dispatch-invoices/function.json", "dispatch-orders/function.json", "host.json",
		"housekeeping/function.json", "local.settings.template.json", "pump/function.json",
	}
	if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	name := regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_-]{0,127}$`)
	for file, text := range files {
		if dir := path.Dir(file); dir != "." && !name.MatchString(dir) {
			t.Errorf("%s: the host does not take that name", dir)
		}
		if strings.HasSuffix(file, ".json") && !json.Valid(text) {
			t.Errorf("%s is no JSON", file)
		}
	}
	for _, queues := range [][]string{{"orders", "orders"}, {"Orders"}, {`x","y`}, {""}} {
		if _, err := Package(queues); err == nil {
			t.Errorf("%q was packaged", queues)
		}
	}
	if _, err := Package([]string{strings.Repeat("q", 63)}); err != nil {
		t.Errorf("the longest name: %v", err)
	}
}

// A queue is named once, and for functions that the host calls.
func TestQueuesWhoseMessagesComeAsTextAreThoseOfFunctionsThatAreCalled(t *testing.T) {
	app := packaged(t, "orders", "invoices", "quotes")
	for name, file := range app {
		if strings.HasSuffix(name, "function.json") {
			file.Data = bytes.Replace(file.Data, []byte(`"binary"`), []byte(`"string"`), 1)
		}
	}
	app["twice/function.json"] = app["dispatch-orders/function.json"]
	getenv := settings(map[string]string{"AzureWebJobs.dispatch-invoices.Disabled": "true"})
	if layout, err := ReadLayout(app, getenv); err != nil || !slices.Equal(layout.AsText(), []string{"orders", "quotes"}) {
		t.Errorf("%q, %v", layout.AsText(), err)
	}
	app["host.json"].Data = bytes.Replace(app["host.json"].Data, []byte("{"), []byte(`{"functions": ["dispatch-orders", "dispatch-invoices"],`), 1)
	if layout, err := ReadLayout(app, getenv); err != nil || !slices.Equal(layout.AsText(), []string{"orders"}) {
		t.Errorf("%q, %v", layout.AsText(), err)
	}
	app["dispatch-orders/function.json"].Data = bytes.Replace(app["dispatch-orders/function.json"].Data, []byte("{"), []byte(`{"disabled": true,`), 1)
	if layout, err := ReadLayout(app, getenv); err != nil || len(layout.AsText()) > 0 {
		t.Errorf("%q, %v", layout.AsText(), err)
	}
}

// Both have a default of the host's with which messages go away unseen.
func TestSettingsThatTakeMessagesAwayAreNamed(t *testing.T) {
	for name, tt := range map[string]struct {
		replace, by string
		named       []string
	}{
		"as packaged":        {"", "", nil},
		"few receives":       {`"maxDequeueCount": 100000`, `"maxDequeueCount": 5`, []string{"host.json: extensions.queues.maxDequeueCount is 5: "}},
		"receives left out":  {`"maxDequeueCount": 100000`, `"more": 1`, []string{"host.json: extensions.queues.maxDequeueCount is not set: "}},
		"base64":             {`"messageEncoding": "none"`, `"messageEncoding": "base64"`, []string{"host.json: extensions.queues.messageEncoding is "}},
		"encoding left out":  {`"messageEncoding": "none"`, `"more": 1`, []string{"host.json: extensions.queues.messageEncoding is not set: "}},
		"another, which can": {`"batchSize": 8`, `"batchSize": 1`, nil},
	} {
		app := packaged(t, "orders")
		if !bytes.Contains(app["host.json"].Data, []byte(tt.replace)) {
			t.Fatalf("%s: host.json has no %s", name, tt.replace)
		}
		app["host.json"].Data = bytes.Replace(app["host.json"].Data, []byte(tt.replace), []byte(tt.by), 1)
		layout, err := ReadLayout(app, settings(nil))
		if err != nil || len(layout.TakenAway) != len(tt.named) {
			t.Errorf("%s: %q, %v", name, layout.TakenAway, err)
			continue
		}
		for i, begins := range tt.named {
			if !strings.HasPrefix(layout.TakenAway[i], begins) {
				t.Errorf("%s: %q, want %q…", name, layout.TakenAway[i], begins)
			}
		}
	}
}

func TestQueuesAndTimeoutsAreReadAsTheHostReadsThem(t *testing.T) {
	app := packaged(t, "orders")
	app["dispatch/function.json"] = &fstest.MapFile{Data: must(folders.ReadFile("dispatch/function.json"))}
	layout, err := ReadLayout(app, settings(map[string]string{"DISPATCH_QUEUE": "from-setting"}))
	if err != nil || !slices.Equal(layout.Queues(), []string{"from-setting", "orders"}) || layout.Timeout != 5*time.Minute {
		t.Errorf("%v, %v, %s", err, layout.Queues(), layout.Timeout)
	}
	app["host.json"].Data = withSetting(t, app["host.json"].Data, "functionTimeout", `"-1"`)
	if layout, err := ReadLayout(app, noSettings); layout.Timeout != 0 || layout.pumpGap() != time.Minute+longestTick {
		t.Errorf("without a function timeout: %s, a look after %s, %v", layout.Timeout, layout.pumpGap(), err)
	}
	for text, want := range map[string]time.Duration{
		"00:05:00": 5 * time.Minute, "1.00:00:00": 24 * time.Hour, "00:00:04.5": 4 * time.Second, "-1": -1, "-00:00:01": -1,
		"5": 0, "00:00": 0, "aa:00:00": 0, "": 0, "00:00:00": 0, "99999999999999999999:00:00": 0,
	} {
		got, err := parseTimeSpan(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q is %s, %v; want %s", text, got, err, want)
		}
	}
	if _, err := ReadLayout(fstest.MapFS{}, noSettings); err == nil {
		t.Error("a folder without host.json has a layout")
	}
}

func must(text []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return text
}

// A queue that is polled all the time has nobody to wait for, and one with a trigger waits for the
// host and not for the pump.
func TestHowLongNobodyLooksGoesByWhoLooks(t *testing.T) {
	app := packaged(t, "orders")
	app["host.json"].Data = withSetting(t, app["host.json"].Data, "functionTimeout", `"-1"`)
	delete(app, "pump/function.json")
	layout, err := ReadLayout(app, noSettings)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		queue string
		polls bool
		want  time.Duration
	}{
		"pumped": {"invoices", false, slowestPump + longestTick}, "polled": {"invoices", true, 0},
		"triggered": {"orders", false, hostGap}, "triggered, others polled": {"orders", true, hostGap},
	} {
		if got := layout.LookGap(tt.queue, tt.polls); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// The host's parser passes over more than Go's.
func TestFilesThatTheHostReadsAreReadHere(t *testing.T) {
	app := packaged(t, "orders")
	for name, file := range app {
		if strings.HasSuffix(name, ".json") {
			file.Data = []byte("\ufeff// \"a\", {\r\n/* ] \n } */" + strings.ReplaceAll(strings.ReplaceAll(string(file.Data), "\n}", ", // last\n}"), "]", ", /* end */ ]"))
		}
	}
	app["pump/function.json"].Data = bytes.Replace(app["pump/function.json"].Data, []byte(`"0 * * * * *"`), []byte(`"0 */2 * * * *"`), 1)
	layout, err := ReadLayout(app, noSettings)
	if err != nil || !slices.Equal(layout.Queues(), []string{"orders"}) || len(layout.Functions) != 4 || layout.Timeout != 5*time.Minute {
		t.Errorf("%+v, %v", layout, err)
	}
	if f := layout.Functions["pump"]; f.Schedule != "0 */2 * * * *" {
		t.Errorf("a comment was seen in a string: %q", f.Schedule)
	}
	deviations, err := Check(app, noSettings)
	if err != nil || len(deviations) != 1 || deviations[0].Where != "pump/function.json: schedule" {
		t.Errorf("%v, %+v", err, deviations)
	}
	for text, want := range map[string]string{
		`{"a":"//x","b":"/*y*/","c":",}"}`: `{"a":"//x","b":"/*y*/","c":",}"}`, `{"a":"\\"//x` + "\n}": `{"a":"\\"` + " \n}",
		`[1,2, ]`: `[1,2 ]`, `{"a":"\",}" , }`: `{"a":"\",}"  }`, "/* open": "/* open",
	} {
		if got := string(PlainJSON([]byte(text))); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

// A queue whose trigger is disabled is one without a trigger, and what that means is told.
func TestTheQueueOfADisabledFunctionIsPumped(t *testing.T) {
	app := packaged(t, "orders", "invoices")
	env := map[string]string{"AzureWebJobs.dispatch-orders.Disabled": "1"}
	for _, tt := range []struct {
		disable string
		polls   bool
		queues  []string
		idle    []string // what each sentence has
	}{
		{"", false, []string{"invoices"}, []string{"orders come with the pump"}},
		{"", true, []string{"invoices"}, []string{"orders are polled"}},
		{"pump", false, []string{"invoices"}, []string{"nobody receives from orders", "expires unseen"}},
		{"housekeeping", true, []string{"invoices"}, []string{"nobody receives from orders", "never removed"}},
		{"api", true, []string{"invoices"}, []string{"not reached", "nobody receives from orders", "never removed"}},
	} {
		env["AzureWebJobs__"+tt.disable+"__Disabled"] = "True"
		layout, err := ReadLayout(app, settings(env))
		idle := layout.Idle(tt.polls)
		if err != nil || !slices.Equal(layout.Queues(), tt.queues) || len(idle) != len(tt.idle) {
			t.Errorf("%s: %v, %q, %q", tt.disable, err, layout.Queues(), idle)
			continue
		}
		for i, part := range tt.idle {
			if !strings.Contains(idle[i], part) {
				t.Errorf("%s: %s does not say %s", tt.disable, idle[i], part)
			}
		}
	}
	delete(app, "pump/function.json")
	layout, _ := ReadLayout(app, settings(map[string]string{"AzureWebJobs.dispatch-orders.Disabled": "0"}))
	if idle := layout.Idle(false); len(idle) != 1 || !strings.HasPrefix(idle[0], "pump is not there: nobody") {
		t.Errorf("%q", idle)
	}
}

// The host knows all of these ways to disable a function, and puts a list together from host.json and variables.
func TestEachWayToDisableATriggerIsKnown(t *testing.T) {
	const list = "AzureFunctionsJobHost__functions"
	for name, tt := range map[string]struct {
		listed string
		env    map[string]string
		called bool
	}{
		"nothing":                            {"", nil, true},
		"a setting":                          {"", map[string]string{"AzureWebJobs.dispatch-orders.Disabled": "true"}, false},
		"a setting on a Linux plan":          {"", map[string]string{"AzureWebJobs_dispatch-orders_Disabled": "1"}, false},
		"a setting of two underscores":       {"", map[string]string{"AzureWebJobs__dispatch-orders__Disabled": "True"}, false},
		"a list":                             {`["pump"]`, nil, false},
		"an empty list":                      {`[]`, nil, true}, // the host sees no element, and so no list
		"a list of variables":                {"", map[string]string{list + "__0": "api", list + "__1": "pump"}, false},
		"a list of variables with colons":    {"", map[string]string{"AzureFunctionsJobHost:functions:0": "api"}, false},
		"a list of variables that has it":    {"", map[string]string{list + "__0": "api", list + "__7": "Dispatch-Orders"}, true},
		"a variable instead of its element":  {`["dispatch-orders", "pump"]`, map[string]string{list + "__0": "api"}, false},
		"a variable instead of another":      {`["pump", "api"]`, map[string]string{list + "__1": "dispatch-orders"}, true},
		"a variable after the list's end":    {`["pump"]`, map[string]string{list + "__1": "dispatch-orders"}, true},
		"a variable with the list's name":    {`["pump"]`, map[string]string{list: "dispatch-orders"}, false},
		"only a variable of the list's name": {"", map[string]string{list: "pump"}, true},
	} {
		app := packaged(t, "orders")
		if tt.listed != "" {
			app["host.json"].Data = withSetting(t, app["host.json"].Data, "functions", tt.listed)
		}
		layout, err := ReadLayout(app, settings(tt.env))
		if called := slices.Contains(layout.Queues(), "orders"); err != nil || called != tt.called {
			t.Errorf("%s: called %t, want %t; %v", name, called, tt.called, err)
		}
	}
}

// An app, or a slot, whose pump and triggers are switched off is not polled either.
func TestThePollerIsNoThirdWayIntoAnAppThatIsSwitchedOff(t *testing.T) {
	const orders, pump = "AzureWebJobs.dispatch-orders.Disabled", "AzureWebJobs.pump.Disabled"
	for name, tt := range map[string]struct {
		env    map[string]string
		others []string
	}{
		"all on":       {nil, []string{"invoices", "orders"}},
		"one off":      {map[string]string{orders: "1"}, []string{"invoices"}},
		"the pump off": {map[string]string{pump: "1"}, []string{"invoices", "orders"}},
		"both off":     {map[string]string{orders: "1", pump: "1"}, []string{"invoices", "orders"}},
	} {
		layout, err := ReadLayout(packaged(t, "orders", "invoices"), settings(tt.env))
		if others := layout.Others(); err != nil || !slices.Equal(others, tt.others) {
			t.Errorf("%s: %q, want %q; %v", name, others, tt.others, err)
		}
	}
}

// The poller may replace the pump, which is then missed by nobody.
func TestAnAppThatIsPolledNeedsNoPump(t *testing.T) {
	off, gone := packaged(t, "orders"), packaged(t, "orders")
	off["pump/function.json"].Data = bytes.Replace(off["pump/function.json"].Data, []byte("{"), []byte(`{"disabled": true,`), 1)
	delete(gone, "pump/function.json")
	for name, app := range map[string]fstest.MapFS{"off": off, "gone": gone} {
		for polls, want := range map[string]int{"false": 1, "true": 0} {
			env := settings(map[string]string{"PUSHLEASE_FUNCTIONS_POLLER": polls})
			layout, err := ReadLayout(app, env)
			deviations, checkErr := Check(app, env)
			if idle := layout.Idle(polls == "true"); err != nil || checkErr != nil || len(idle) != want || len(deviations) != want {
				t.Errorf("%s, polled %s: %v, %v, %q, %+v", name, polls, err, checkErr, idle, deviations)
			}
		}
	}
}

// Messages of another account come with the pump only if pushlease uses that account.
func TestADisabledTriggerOfAnotherAccountIsToldAsSuch(t *testing.T) {
	app := packaged(t, "orders")
	app["dispatch-orders/function.json"].Data = bytes.Replace(app["dispatch-orders/function.json"].Data, []byte("AzureWebJobsStorage"), []byte("Other"), 1)
	layout, err := ReadLayout(app, settings(map[string]string{"AzureWebJobs.dispatch-orders.Disabled": "1"}))
	for _, polls := range []bool{false, true} {
		if idle := layout.Idle(polls); err != nil || len(idle) != 1 || !strings.Contains(idle[0], "if Other is the storage of pushlease") {
			t.Errorf("%v, %q", err, idle)
		}
	}
}

// The host's configuration knows only texts: a number and its text are the same.
func TestTextsNumbersAndTruthValuesAreTheSameToTheHost(t *testing.T) {
	app := packaged(t, "orders")
	for setting, value := range map[string]string{
		"extensions.queues.maxDequeueCount": `"100000"`, "extensions.queues.batchSize": `"4"`, "customHandler.enableProxyingHttpRequest": `"True"`,
		"extensions.queues.messageEncoding": `"None"`,
	} {
		app["host.json"].Data = withSetting(t, app["host.json"].Data, setting, value)
	}
	number := packaged(t, "orders")
	number["host.json"].Data = withSetting(t, number["host.json"].Data, "functionTimeout", `-1`)
	endless := map[string]string{"WEBSITE_SKU": "FlexConsumption", "AzureFunctionsJobHost__functionTimeout": "-1"}
	for name, tt := range map[string]struct {
		app     fstest.MapFS
		env     map[string]string
		timeout time.Duration
		atOnce  int
	}{
		"texts":                   {app, nil, 5 * time.Minute, 20},
		"endless, by a variable":  {packaged(t, "orders"), endless, 0, 24},
		"endless, by a number":    {number, map[string]string{"WEBSITE_SKU": "FlexConsumption"}, 0, 24},
		"a number by a variable":  {packaged(t, "orders"), map[string]string{"AzureFunctionsJobHost__extensions__queues__batchSize": " 4 "}, 5 * time.Minute, 20},
		"the truth by a variable": {packaged(t, "orders"), map[string]string{"AzureFunctionsJobHost__customHandler__enableForwardingHttpRequest": "TRUE"}, 5 * time.Minute, 24},
	} {
		layout, err := ReadLayout(tt.app, settings(tt.env))
		deviations, checkErr := Check(tt.app, settings(tt.env))
		if err != nil || checkErr != nil || layout.Timeout != tt.timeout || layout.AtOnce != tt.atOnce || len(deviations) > 0 {
			t.Errorf("%s: %v, %v, timeout %s, %d at once, %+v", name, err, checkErr, layout.Timeout, layout.AtOnce, deviations)
		}
	}
}

// What the host brings at a time is batchSize and newBatchThreshold for each queue with a trigger.
func TestALimitBelowWhatTheHostBringsIsFound(t *testing.T) {
	for name, tt := range map[string]struct {
		queues                       []string
		batch, threshold, overriding string
		max, brings                  int
	}{
		"as packaged":           {[]string{"orders"}, "8", "16", "", 24, 0},
		"one too few":           {[]string{"orders"}, "8", "16", "", 23, 24},
		"two queues":            {[]string{"orders", "invoices"}, "8", "16", "", 47, 48},
		"no triggers":           {nil, "16", "8", "", 1, 0},
		"a threshold of 0":      {[]string{"orders"}, "1", "0", "", 1, 0},
		"without a threshold":   {[]string{"orders"}, "32", "null", "", 47, 48},
		"what is no number":     {[]string{"orders"}, `"many"`, `"many"`, "", 23, 24},
		"replaced by a setting": {[]string{"orders"}, "1", "0", "32", 31, 32},
	} {
		app := packaged(t, tt.queues...)
		text := strings.Replace(string(app["host.json"].Data), `"batchSize": 8`, `"batchSize": `+tt.batch, 1)
		app["host.json"].Data = []byte(strings.Replace(text, `"newBatchThreshold": 16`, `"newBatchThreshold": `+tt.threshold, 1))
		overriding := map[string]string{}
		if tt.overriding != "" {
			overriding["AzureFunctionsJobHost__extensions__queues__batchSize"] = tt.overriding
		}
		layout, err := ReadLayout(app, settings(overriding))
		if brings := layout.Crowded(tt.max); err != nil || brings != tt.brings {
			t.Errorf("%s: the host brings %d, want %d; %v", name, brings, tt.brings, err)
		}
	}
}

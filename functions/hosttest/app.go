package hosttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// app is what the host reads of a deployed folder. It is read anew here, and not by the
// code that is tested.
type app struct {
	executable string
	arguments  []string
	timeout    time.Duration
	initTime   time.Duration
	proxying   bool
	forwarding bool
	prefix     string
	queues     queueOptions
	functions  []function
}

type queueOptions struct {
	batch, threshold int
	maxDequeue       int64
	delay, pollMax   time.Duration
	base64           bool
}

type function struct {
	name    string
	binding binding
}

type binding struct {
	Type, Direction, Name, QueueName, Connection, DataType, Route, AuthLevel, Schedule string
	Methods                                                                            []string
}

type hostFile struct {
	FunctionTimeout string
	Functions       []string
	CustomHandler   struct {
		Description struct {
			DefaultExecutablePath string
			Arguments             []string
		}
		EnableForwardingHTTPRequest bool `json:"enableForwardingHttpRequest"`
		EnableProxyingHTTPRequest   bool `json:"enableProxyingHttpRequest"`
		InitializationTimeout       string
	}
	Extensions struct {
		HTTP   struct{ RoutePrefix *string }
		Queues struct {
			BatchSize, NewBatchThreshold, MaxDequeueCount *int
			VisibilityTimeout, MaxPollingInterval         string
			MessageEncoding                               string
		}
	}
}

func readApp(root string, getenv func(string) string) (app, error) {
	var f hostFile
	if err := readJSON(filepath.Join(root, "host.json"), &f); err != nil {
		return app{}, err
	}
	d := f.CustomHandler.Description
	a := app{
		executable: filepath.Join(root, d.DefaultExecutablePath), arguments: d.Arguments,
		timeout: timeSpan(f.FunctionTimeout, 5*time.Minute), initTime: timeSpan(f.CustomHandler.InitializationTimeout, 30*time.Second),
		proxying: f.CustomHandler.EnableProxyingHTTPRequest, forwarding: f.CustomHandler.EnableForwardingHTTPRequest, prefix: "api",
	}
	if p := f.Extensions.HTTP.RoutePrefix; p != nil {
		a.prefix = *p
	}
	q := f.Extensions.Queues
	a.queues = queueOptions{
		batch: number(q.BatchSize, 16), maxDequeue: int64(number(q.MaxDequeueCount, 5)),
		delay: timeSpan(q.VisibilityTimeout, 0), pollMax: timeSpan(q.MaxPollingInterval, time.Minute), base64: q.MessageEncoding != "none",
	}
	a.queues.threshold = number(q.NewBatchThreshold, a.queues.batch/2)
	listed := allowed(f.Functions, getenv)
	folders, err := os.ReadDir(root)
	if err != nil {
		return app{}, err
	}
	for _, e := range folders {
		path := filepath.Join(root, e.Name(), "function.json")
		if _, err := os.Stat(path); err != nil {
			continue
		}
		var file struct {
			Bindings []binding
			Disabled any // or the name of a setting
		}
		if err := readJSON(path, &file); err != nil {
			return app{}, err
		}
		if disabled(e.Name(), file.Disabled, getenv) || len(listed) > 0 && !slices.ContainsFunc(listed, func(name string) bool { return strings.EqualFold(name, e.Name()) }) {
			continue
		}
		for _, b := range file.Bindings {
			if strings.HasSuffix(b.Type, "Trigger") {
				b.QueueName = setting(b.QueueName, getenv)
				a.functions = append(a.functions, function{e.Name(), b})
			}
		}
	}
	return a, nil
}

// disabled is what the host asks for: the setting of that name with dots or, as Linux plans write it, with underscores,
// and what function.json has, which may name a setting.
func disabled(function string, inFile any, getenv func(string) string) bool {
	on := func(setting string) bool {
		value := getenv(setting)
		return value == "1" || strings.EqualFold(value, "true")
	}
	named, _ := inFile.(string)
	return inFile == true || named != "" && on(named) || on("AzureWebJobs."+function+".Disabled") || on("AzureWebJobs_"+function+"_Disabled")
}

// allowed is the list functions, of which variables replace elements, or add some.
func allowed(inFile []string, getenv func(string) string) []string {
	all := slices.Clone(inFile)
	for i := range 100 {
		switch value := getenv(fmt.Sprintf("AzureFunctionsJobHost__functions__%d", i)); {
		case value == "":
		case i < len(all):
			all[i] = value
		default:
			all = append(all, value)
		}
	}
	return all
}

func readJSON(path string, into any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}

func number(n *int, otherwise int) int {
	if n == nil {
		return otherwise
	}
	return *n
}

func timeSpan(s string, otherwise time.Duration) time.Duration {
	if s == "-1" {
		return 0 // without end
	}
	var h, m int
	var sec float64
	if n, _ := fmt.Sscanf(s, "%d:%d:%g", &h, &m, &sec); n != 3 {
		return otherwise
	}
	return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute + time.Duration(sec*float64(time.Second))
}

// setting fills in a whole %SETTING%.
func setting(s string, getenv func(string) string) string {
	if len(s) > 2 && s[0] == '%' && s[len(s)-1] == '%' {
		return getenv(s[1 : len(s)-1])
	}
	return s
}

func (a app) named(name string) (function, bool) {
	for _, f := range a.functions {
		if strings.EqualFold(f.name, name) {
			return f, true
		}
	}
	return function{}, false
}

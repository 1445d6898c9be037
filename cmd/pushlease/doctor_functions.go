package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pushlease/pushlease/internal/app"
	"github.com/pushlease/pushlease/internal/config"
)

// localSettings are the app settings where the app is run with func start.
const localSettings = "local.settings.json"

// functionsApp is the packaged app that doctor looks at.
type functionsApp struct {
	root fs.FS // nil without one
	// environ is what the app's settings are read from.
	environ []string
	// note says so.
	note string
}

// hereApp finds the app in the folder that the Functions host names, or in the current one.
func hereApp(environ []string) functionsApp {
	path := os.Getenv(functionsRoot)
	if path == "" {
		path = "."
	}
	if isOurs(filepath.Join(path, "go.mod")) { // pushlease's source, of which an app is yet to be packaged
		return functionsApp{environ: environ}
	}
	return readApp(os.DirFS(path), environ)
}

func readApp(root fs.FS, environ []string) functionsApp {
	if _, err := fs.Stat(root, "host.json"); err != nil {
		return functionsApp{environ: environ}
	}
	a := functionsApp{root: root, environ: slices.Clone(environ)}
	if a.getenv(functionsPort) == "" {
		a.environ = append(a.environ, functionsPort+"=0") // as under the host
	}
	text, err := fs.ReadFile(root, localSettings)
	if err != nil {
		return a
	}
	var file struct{ Values map[string]string }
	if json.Unmarshal(app.FunctionsJSON(text), &file) != nil {
		a.note = "; " + localSettings + " can't be read"
		return a
	}
	for name, value := range file.Values { // the environment wins, as for func start
		if a.getenv(name) == "" {
			a.environ = append(a.environ, name+"="+value)
		}
	}
	a.note = "; with the settings in " + localSettings
	return a
}

func (a functionsApp) lookup(name string) (string, bool) { return config.HostSetting(a.environ, name) }

func (a functionsApp) getenv(name string) string {
	value, _ := a.lookup(name)
	return value
}

// findings compare the app with what pushlease needs.
func (a functionsApp) findings() []finding {
	const check = "Azure Functions app"
	if a.root == nil {
		return nil
	}
	deviations, err := app.CheckFunctions(a.root, a.lookup)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it has gone meanwhile
	case err != nil:
		return []finding{{check, verdictFailed, err.Error(), "make it anew with pushlease functions package"}}
	case len(deviations) == 0:
		return []finding{{check, verdictOK, "host.json and the functions are as pushlease needs them", ""}}
	}
	var found []finding
	for _, d := range deviations {
		f := finding{check, verdictWarning, d.Where + " is " + d.Is + ": " + d.Why, d.Cure}
		if d.Fatal {
			f.Verdict = verdictFailed
		}
		found = append(found, f)
	}
	return found
}

// room finds a limit that the host's triggers reach although all is well.
func (a functionsApp) room(maxInFlight int) []finding {
	if a.root == nil {
		return nil
	}
	brings := app.FunctionsCrowded(a.root, a.lookup, maxInFlight)
	if brings == 0 {
		return nil
	}
	return []finding{{"max_in_flight", verdictWarning, fmt.Sprintf("the host may bring %d messages at a time, batchSize and newBatchThreshold for each queue with a trigger, and max_in_flight is %d: what comes beyond it is given back, and comes again later", brings, maxInFlight),
		fmt.Sprintf("set max_in_flight (PUSHLEASE_MAX_IN_FLIGHT) to %d, or lower batchSize and newBatchThreshold in host.json", brings)}}
}

// longestLoss is how long a message is away at most whose instance is lost, where lease is auto.
const longestLoss = time.Minute

// hosted finds settings that are valid and yet not what a hosted app needs.
func (a functionsApp) hosted(cfg config.Config) (found []finding) {
	if a.root == nil {
		return nil
	}
	if len(cfg.APIKeys) == 0 {
		found = append(found, finding{"API keys", verdictFailed, "none are set, and the Functions host brings every request: the REST API serves nobody",
			"run pushlease api-key new --name me --scopes admin,operate,read,publish and put the line that it prints for api_keys into the app setting PUSHLEASE_API_KEYS"})
	}
	if cfg.Lease > longestLoss {
		found = append(found, finding{"lease", verdictWarning, fmt.Sprintf("it is %s: what an instance has in hand when it is lost waits for so long, and for a minute at most with auto", cfg.Lease),
			"leave lease (PUSHLEASE_LEASE) out"})
	}
	return found
}

// accounts finds triggers that receive from another account than the one that records and receipts are
// used in.
func (a functionsApp) accounts(storage config.Storage) (found []finding) {
	if a.root == nil || storage.Kind() == config.StorageSQLite {
		return nil
	}
	for _, name := range app.FunctionsConnections(a.root, a.lookup) {
		theirs, ok := config.HostConnection(a.getenv, name)
		if !ok || storage.SameAccount(theirs) {
			continue
		}
		found = append(found, finding{"storage of the triggers", verdictFailed,
			name + " names another account (" + theirs.String() + ") than pushlease's storage (" + storage.String() + "): no message that the host brings can be taken over, and none is POSTed",
			"name the same account in both; without PUSHLEASE_STORAGE pushlease uses AzureWebJobsStorage"})
	}
	return found
}

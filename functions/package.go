package functions

import (
	"embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/pushlease/pushlease/queue"
)

// Executable is the name of the program in a packaged app, as host.json has it.
const Executable = "pushlease"

// dispatchPrefix begins the names of the functions that are made for queues.
const dispatchPrefix = "dispatch-"

//go:embed api/function.json dispatch/function.json housekeeping/function.json pump/function.json
var folders embed.FS

// settingsTemplate is what local.settings.json is made from, for running an app with func
// start. That file itself is never packaged: secrets get into it, and a package is deployed.
const settingsTemplate = "local.settings.template.json"

const localSettings = `{
  "IsEncrypted": false,
  "Values": {
    "FUNCTIONS_WORKER_RUNTIME": "custom",
    "AzureWebJobsStorage": "UseDevelopmentStorage=true",
    "PUSHLEASE_API_KEYS": "",
    "PUSHLEASE_DEV": "true"
  }
}
`

// funcIgnore keeps what is only for this machine out of a deployment by func.
const funcIgnore = `local.settings.json
local.settings.template.json
.funcignore
*.zip
*.db
*.log
.git*
.vscode
`

// Package returns the files of an app, but for the program: host.json, and function.json
// in a folder for each function, which is as deep as the host looks. It has a queue
// trigger for each of the queues; the timer pump sees to the others.
func Package(queues []string) (map[string][]byte, error) {
	files := map[string][]byte{
		"host.json": []byte(hostJSON), settingsTemplate: []byte(localSettings), ".funcignore": []byte(funcIgnore),
	}
	for _, name := range []string{"api", timerHousekeeping, timerPump} {
		text, err := folders.ReadFile(path.Join(name, "function.json"))
		if err != nil {
			return nil, fmt.Errorf("embedded function: %w", err)
		}
		files[path.Join(name, "function.json")] = text
	}
	template, err := folders.ReadFile("dispatch/function.json")
	if err != nil {
		return nil, fmt.Errorf("embedded function: %w", err)
	}
	for i, name := range queues {
		if err := queue.ValidateName(name); err != nil {
			return nil, fmt.Errorf("queue %q: %w", name, err)
		}
		if slices.Contains(queues[:i], name) {
			return nil, fmt.Errorf("queue %q is named twice; two triggers would compete for its messages", name)
		}
		text := []byte(strings.Replace(string(template), "%DISPATCH_QUEUE%", name, 1))
		if !json.Valid(text) {
			return nil, fmt.Errorf("queue %q: its function.json is no JSON", name)
		}
		files[path.Join(dispatchPrefix+name, "function.json")] = text
	}
	return files, nil
}

package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pushlease/pushlease/internal/app"
	"github.com/pushlease/pushlease/internal/config"
)

// checkFunctions looks at a packaged app, where there is one: in the folder that the
// Functions host names, or in the current one.
func checkFunctions(context.Context, config.Config) []finding {
	root := os.Getenv(functionsRoot)
	if root == "" {
		root = "."
	}
	if isOurs(filepath.Join(root, "go.mod")) {
		return nil // pushlease's source, of which an app is yet to be packaged
	}
	return functionsFindings(os.DirFS(root), os.Getenv)
}

func functionsFindings(root fs.FS, getenv func(string) string) []finding {
	const check = "Azure Functions app"
	deviations, err := app.CheckFunctions(root, getenv)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // no app here
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

package main

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/pushlease/pushlease/internal/app"
)

// TestThePackageHasItsModes: Azure runs what the zip says is executable, and nothing else
// makes it so.
func TestThePackageHasItsModes(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "app.zip")
	// Inside the source, so it is built from there.
	text, err := exec.Command(path, "functions", "package", "--queue", "orders,invoices", "--out", out).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	t.Logf("%s", text)
	z, err := zip.OpenReader(out)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	modes := map[string]string{}
	for _, f := range z.File {
		modes[f.Name] = f.Mode().String()
	}
	for name, mode := range modes {
		want := "-rw-r--r--"
		if name == "pushlease" {
			want = "-rwxr-xr-x"
		}
		if mode != want {
			t.Errorf("%s has mode %s, want %s", name, mode, want)
		}
	}
	for _, name := range []string{"pushlease", "host.json", "dispatch-orders/function.json", "dispatch-invoices/function.json", "api/function.json"} {
		if modes[name] == "" {
			t.Errorf("there is no %s in it", name)
		}
	}
	root := t.TempDir()
	unzip(t, out, root)
	if err := checkProgram(filepath.Join(root, "pushlease"), "amd64"); err != nil {
		t.Error(err)
	}
}

// The host answers 404 to a method that its HTTP function does not list.
func TestTheHostPassesOnEveryMethodOfTheAPI(t *testing.T) {
	document, err := os.ReadFile(filepath.Join("..", "..", "api", "openapi.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	function, err := os.ReadFile(filepath.Join("..", "..", "functions", "api", "function.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, method := range []string{"get", "post", "put", "patch", "delete"} {
		if strings.Contains(string(document), "\n    "+method+":\n") != strings.Contains(string(function), `"`+method+`"`) {
			t.Errorf("%s is in one of openapi.yaml and function.json only", method)
		}
	}
}

func TestWhatAzureCannotRunIsNotPackaged(t *testing.T) {
	t.Parallel()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"no program":        {"--binary", text},
		"not there":         {"--binary", filepath.Join(dir, "none")},
		"another processor": {"--binary", path, "--arch", "arm64"},
		"needs libraries":   {"--binary", "/bin/sh"},
		"unknown processor": {"--binary", path, "--arch", "mips"},
		"a bad queue":       {"--binary", path, "--queue", "Orders"},
		"a queue twice":     {"--binary", path, "--queue", "orders", "--queue", "orders"},
		"no folder":         {"--binary", path, "--out", filepath.Join(dir, "none", "app.zip")},
	} {
		out := filepath.Join(dir, "app.zip")
		all := append([]string{"functions", "package", "--out", out}, args...)
		text, err := exec.Command(path, all...).CombinedOutput()
		if err == nil || len(text) == 0 {
			t.Errorf("%s: %v, %s", name, err, text)
		}
		if name == "needs libraries" && !strings.Contains(string(text), "in a clone") {
			t.Errorf("%s: no way that needs no other build in %s", name, text)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "*.zip")); len(left) > 0 {
			t.Errorf("%s: left behind %v", name, left)
		}
	}
}

func TestDoctorTellsTheCureForEachDeviation(t *testing.T) {
	files, err := app.FunctionsPackage([]string{"orders"})
	if err != nil {
		t.Fatal(err)
	}
	folder := fstest.MapFS{}
	for name, text := range files {
		folder[name] = &fstest.MapFile{Data: text}
	}
	if found := readApp(folder, nil).findings(); len(found) != 1 || found[0].Verdict != verdictOK {
		t.Errorf("%+v", found)
	}
	if found := readApp(fstest.MapFS{}, nil).findings(); found != nil {
		t.Errorf("without an app: %+v", found)
	}
	folder["host.json"].Data = []byte(strings.ReplaceAll(string(files["host.json"]), "100000", "5"))
	found := readApp(folder, nil).findings()
	if len(found) != 1 || found[0].Verdict != verdictFailed || !strings.Contains(found[0].Detail, "maxDequeueCount") || found[0].Cure != "write 100000" {
		t.Errorf("%+v", found)
	}
	folder["host.json"].Data = files["host.json"]
	if found := readApp(folder, nil).room(24); found != nil {
		t.Errorf("room for all that the host brings: %+v", found)
	}
	found = readApp(folder, nil).room(20)
	if len(found) != 1 || found[0].Verdict != verdictWarning || !strings.Contains(found[0].Cure, "to 24") {
		t.Errorf("too little room: %+v", found)
	}
	folder["host.json"].Data = []byte("{")
	if found := readApp(folder, nil).findings(); len(found) != 1 || found[0].Verdict != verdictFailed {
		t.Errorf("%+v", found)
	}
}

// TestDoctorReadsTheAppsSettings: in an app's folder it speaks of the app's storage, from
// local.settings.json unless the environment says otherwise.
func TestDoctorReadsTheAppsSettings(t *testing.T) {
	root := packaged(t, "orders")
	t.Chdir(root)
	t.Setenv(serverEnv, "")
	t.Setenv("AzureWebJobsStorage", "")
	t.Setenv("PUSHLEASE_STORAGE", "")
	r, v := examine(t, goodStorage)
	if v["configuration"] != verdictFailed || v["Azure Functions app"] != verdictOK || !strings.Contains(r.out, "AzureWebJobsStorage") {
		t.Errorf("without settings: %+v", r)
	}
	settings, err := os.ReadFile("local.settings.template.json")
	if err == nil {
		err = os.WriteFile(localSettings, append([]byte("\ufeff// mine\n"), settings...), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, v = examine(t, goodStorage); r.code == exitOK || v["API keys"] != verdictFailed || v["lease"] != "" {
		t.Errorf("without a key: %+v", r)
	}
	t.Setenv("PUSHLEASE_API_KEYS", "me:admin:"+strings.Repeat("0", 64))
	if r, v = examine(t, goodStorage, "--lease", "61s"); r.code != exitOK || v["lease"] != verdictWarning || v["API keys"] != "" {
		t.Errorf("with a long lease: %+v", r)
	}
	r, v = examine(t, goodStorage)
	if r.code != exitOK || v["configuration"] != verdictOK || v["lease"] != "" || v["server"] != verdictSkipped || v["port"] != "" ||
		!strings.Contains(r.out, "connection string of devstoreaccount1") || !strings.Contains(r.out, localSettings) {
		t.Errorf("with settings: %+v", r)
	}
	t.Setenv("AzureWebJobsStorage", "AccountName=other;AccountKey=a2V5")
	if r, v = examine(t, goodStorage); !strings.Contains(r.out, "connection string of other") || v["storage of the triggers"] != "" {
		t.Errorf("with a variable: %+v", r)
	}
	t.Setenv("PUSHLEASE_STORAGE", "AccountName=another;AccountKey=a2V5")
	r, v = examine(t, goodStorage)
	if v["storage of the triggers"] != verdictFailed || !strings.Contains(r.out, "connection string of other ") || !strings.Contains(r.out, "connection string of another ") || strings.Contains(r.out, "a2V5") {
		t.Errorf("two accounts: %+v", r)
	}
	t.Setenv("PUSHLEASE_STORAGE", "azure:OTHER")
	if r, v = examine(t, goodStorage); v["storage of the triggers"] != "" {
		t.Errorf("one account, named in two ways: %+v", r)
	}
}

func TestTheCommandIsChosenUnderTheHost(t *testing.T) {
	under := func(name string) string { return map[string]string{functionsPort: "7071"}[name] }
	none := func(string) string { return "" }
	for _, tt := range []struct {
		args   []string
		getenv func(string) string
		want   string
	}{
		{nil, under, "functions"}, {nil, none, ""}, {[]string{"doctor"}, under, "doctor"}, {[]string{"serve"}, none, "serve"},
	} {
		if got := strings.Join(hostedArgs(tt.args, tt.getenv), " "); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.args, got, tt.want)
		}
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/config"
)

// examine runs doctor with a storage check of the test's own.
func examine(t *testing.T, storage extraCheck, args ...string) (result, map[string]verdict) {
	t.Helper()
	t.Setenv(apiKeyEnv, "")
	return examineWithKey(t, storage, args...)
}

// examineWithKey is examine with the key that the test has set.
func examineWithKey(t *testing.T, storage extraCheck, args ...string) (result, map[string]verdict) {
	t.Helper()
	var out bytes.Buffer
	cmd := newDoctorCommand(storage)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true // as under the root command
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	code := run(t.Context(), cmd, append(args, "-o", "json"), io.Discard)
	var report struct {
		OK       bool
		Findings []finding
	}
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if report.OK != (code == exitOK) {
		t.Errorf("ok is %t, the exit code %d", report.OK, code)
	}
	verdicts := map[string]verdict{}
	for _, f := range report.Findings {
		verdicts[f.Check] = f.Verdict
		if f.Verdict == verdictFailed && f.Cure == "" {
			t.Errorf("no cure: %+v", f)
		}
	}
	return result{out: out.String(), code: code}, verdicts
}

func goodStorage(context.Context, config.Config) []finding {
	return []finding{{"storage", verdictOK, "reached", ""}}
}

// C46: the switch for development opens every private address and http to the whole world.
func TestDoctorWarnsOfDevelopmentModeWithAnAccount(t *testing.T) {
	t.Parallel()
	const key = "AccountKey=MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz;QueueEndpoint=http://127.0.0.1:9/contoso;TableEndpoint=http://127.0.0.1:9/contoso"
	for name, tt := range map[string]struct {
		storage string
		args    []string
		warned  bool
	}{
		"an account":         {"DefaultEndpointsProtocol=http;AccountName=contoso;" + key, []string{"--dev"}, true},
		"an account, no dev": {"DefaultEndpointsProtocol=http;AccountName=contoso;" + key, nil, false},
		"the emulator":       {"DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;" + strings.ReplaceAll(key, "contoso", "devstoreaccount1"), []string{"--dev"}, false},
		"a file":             {"sqlite:x.db", []string{"--dev"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := runBinary(t, []string{"PUSHLEASE_STORAGE=" + tt.storage}, append([]string{"doctor", "--listen", "127.0.0.1:0", "-o", "json"}, tt.args...)...)
			var report struct{ Findings []finding }
			if err := json.Unmarshal([]byte(r.out), &report); err != nil {
				t.Fatalf("%v: %s%s", err, r.out, r.err)
			}
			warned := false
			for _, f := range report.Findings {
				warned = warned || f.Check == "dev" && f.Verdict == verdictWarning && strings.Contains(f.Cure, "allow_http")
			}
			if warned != tt.warned {
				t.Errorf("warned: %t, want %t: %s", warned, tt.warned, r.out)
			}
		})
	}
}

func TestDoctorWithNoServer(t *testing.T) {
	t.Setenv(serverEnv, "")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	r, v := examine(t, goodStorage, "--listen", address)
	if r.code != exitOK || v["configuration"] != verdictOK || v["storage"] != verdictOK || v["port"] != verdictOK {
		t.Errorf("%+v", r)
	}
}

func TestDoctorFindsThePortTakenByAnotherProgram(t *testing.T) {
	t.Setenv(serverEnv, "")
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	r, v := examine(t, goodStorage, "--listen", strings.TrimPrefix(other.URL, "http://"))
	if r.code != exitFailed || v["port"] != verdictFailed {
		t.Errorf("%+v", r)
	}
}

func TestDoctorListsEverythingWrongWithTheConfiguration(t *testing.T) {
	r, v := examine(t, goodStorage, "--lease=1s", "--storage=AccountKey=c2VzYW1l")
	if r.code != exitFailed || v["storage"] != "" || strings.Count(r.out, `"check":"configuration"`) != 2 || strings.Contains(r.out, "c2VzYW1l") {
		t.Errorf("%+v", r)
	}
	if r, _ = examine(t, goodStorage, "--listen=8080"); !strings.Contains(r.out, `"cure":"write 127.0.0.1:8080, or :8080 for all addresses"`) {
		t.Errorf("the cure does not say what to write: %s", r.out)
	}
}

func TestDoctorReportsFailedStorage(t *testing.T) {
	t.Setenv(serverEnv, "")
	r, _ := examine(t, func(context.Context, config.Config) []finding {
		return []finding{{"storage", verdictFailed, "denied", "grant the role"}}
	}, "--listen", "127.0.0.1:0")
	if r.code != exitFailed || !strings.Contains(r.out, "grant the role") {
		t.Errorf("%+v", r)
	}
}

func TestDoctorAsksTheServer(t *testing.T) {
	const ready = `{"status":"ready","checks":[]}`
	const notReady = `{"title":"Not ready","status":503,"checks":[{"name":"storage","ok":false,"detail":"throttled"}]}`
	const degraded = `{"status":"degraded","checks":[{"name":"queue orders","ok":false,"detail":"denied"}]}`
	tests := []struct {
		name          string
		status        int
		body, date    string
		server, clock verdict
		says          string
	}{
		{"ready", 200, ready, "", verdictOK, verdictOK, "ready"},
		{"one queue is denied", 200, degraded, "", verdictWarning, verdictOK, "queue orders: denied"},
		{"not ready", 503, notReady, "", verdictFailed, verdictOK, "storage: throttled"},
		{"clock off", 200, ready, "Mon, 02 Jan 2006 15:04:05 GMT", verdictOK, verdictFailed, "NTP"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet {
					t.Errorf("doctor sends %s", r.Method)
				}
				if tt.date != "" {
					w.Header().Set("Date", tt.date)
				}
				if r.URL.Path == "/healthz" {
					_, _ = io.WriteString(w, `{"status":"ok","version":"1"}`)
					return
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}))
			defer f.Close()
			r, v := examine(t, goodStorage, "--server", f.URL)
			if v["server"] != tt.server || v["clock"] != tt.clock || !strings.Contains(r.out, tt.says) {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A server on the usual port may be another one than this configuration is about.
func TestDoctorTellsAServerOnAnotherStorage(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv(serverEnv, "")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for storage, want := range map[string]verdict{"sqlite:" + filepath.Join(here, "pushlease.db"): verdictOK, "sqlite:/elsewhere/pushlease.db": verdictWarning, "": verdictOK} {
		f := newFakeAPI(t, map[string]canned{"GET /healthz": {200, `{"status":"ok"}`}, "GET /readyz": {200, `{"status":"ready","storage":"` + storage + `"}`}})
		t.Setenv(serverEnv, "")
		r, v := examine(t, goodStorage, "--listen", strings.TrimPrefix(f.URL, "http://"))
		if r.code != exitOK || v["server"] != want || (want == verdictWarning) != strings.Contains(r.out, "it has sqlite:/elsewhere/pushlease.db") {
			t.Errorf("%q: %+v", storage, r)
		}
		// One that is named is meant, whatever the configuration of this machine says.
		if r, v := examine(t, goodStorage, "--server", f.URL); v["server"] != verdictOK {
			t.Errorf("%q, named: %+v", storage, r)
		}
	}
}

// What keeps a running server from its storage is named with what to do, which the file itself does not show (C59).
func TestDoctorNamesWhatKeepsAServerFromItsFile(t *testing.T) {
	for _, cause := range []string{
		"storage is full: the disk that holds /data/pushlease.db has no room left: free some space",
		"storage is busy: another process keeps it locked: end what holds /data/pushlease.db open (a backup, a shell)",
	} {
		checks := `"checks":[{"name":"draining","ok":true},{"name":"storage","ok":false,"detail":"` + cause + `"}]`
		f := newFakeAPI(t, map[string]canned{"GET /healthz": {200, `{"status":"ok"}`}, "GET /readyz": {503, `{"title":"Not ready","status":503,"detail":"At least one check fails; see checks.",` + checks + `}`}})
		r, v := examine(t, goodStorage, "--server", f.URL)
		if r.code != exitFailed || v["server"] != verdictFailed || !strings.Contains(r.out, cause) || strings.Contains(r.out, "draining") {
			t.Errorf("%s: %+v", cause, r)
		}
	}
}

// A Functions app has no other addresses than those below /api/v1.
func TestDoctorAsksAFunctionsApp(t *testing.T) {
	f := newFakeAPI(t, map[string]canned{
		"GET /healthz": {404, ``}, "GET /api/v1/healthz": {200, `{"status":"ok"}`}, "GET /api/v1/readyz": {200, `{"status":"ready"}`}})
	if r, v := examine(t, goodStorage, "--server", f.URL); v["server"] != verdictOK {
		t.Errorf("%+v", r)
	}
}

// Other commands fail where the server does not know their key.
func TestDoctorTriesTheKey(t *testing.T) {
	for name, tt := range map[string]struct {
		key, answer string
		status      int
		want        verdict
	}{
		"known":              {"token", `{"keys_set":true,"signed_in":true,"key":"me","scopes":["read"]}`, 200, verdictOK},
		"unknown":            {"token", `{"keys_set":true,"scopes":[]}`, 200, verdictFailed},
		"none is sent":       {"", `{"keys_set":true,"scopes":[]}`, 200, verdictWarning},
		"none is asked for":  {"", `{"keys_set":false,"scopes":["read"]}`, 200, ""},
		"nobody is served":   {"token", `{"title":"Forbidden","status":403,"detail":"No API keys are set."}`, 403, verdictFailed},
		"a server of before": {"token", `{"title":"Not found","status":404}`, 404, ""},
	} {
		f := newFakeAPI(t, map[string]canned{
			"GET /healthz": {200, `{"status":"ok"}`}, "GET /readyz": {200, `{"status":"ready"}`}, "GET /api/v1/session": {tt.status, tt.answer}})
		t.Setenv(apiKeyEnv, tt.key)
		r, v := examineWithKey(t, goodStorage, "--server", f.URL)
		if v["API key"] != tt.want || (r.code == exitOK) != (tt.want != verdictFailed) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestDoctorForPeople(t *testing.T) {
	var out bytes.Buffer
	cmd := newDoctorCommand(goodStorage)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	if code := run(t.Context(), cmd, []string{"--server", "http://127.0.0.1:1"}, io.Discard); code != exitFailed {
		t.Errorf("code %d", code)
	}
	if got := out.String(); !strings.Contains(got, "ok       storage: reached\n") || !strings.Contains(got, "failed   server: ") || !strings.Contains(got, "\n         → ") {
		t.Error(got)
	}
}

func TestDoctorNamesTheServerOfTheEnvironment(t *testing.T) {
	f := newFakeAPI(t, map[string]canned{"GET /healthz": {200, `{"status":"ok"}`}, "GET /readyz": {200, `{"status":"ready"}`}})
	if r, _ := examine(t, goodStorage); r.code != exitOK || !strings.Contains(r.out, f.URL+" is running and ready") {
		t.Errorf("%+v", r)
	}
}

func TestReachableAddress(t *testing.T) {
	for listen, want := range map[string]string{
		":8080": "127.0.0.1:8080", "0.0.0.0:8080": "127.0.0.1:8080", "[::]:8080": "127.0.0.1:8080",
		"127.0.0.1:8080": "127.0.0.1:8080", "10.0.0.1:80": "10.0.0.1:80", "[::1]:80": "[::1]:80",
	} {
		if got := reachable(listen); got != want {
			t.Errorf("%s: %s, want %s", listen, got, want)
		}
	}
}

func TestSkewAllowsForWholeSeconds(t *testing.T) {
	now := time.Now()
	for skew, want := range map[time.Duration]verdict{0: verdictOK, 30 * time.Second: verdictOK, -30 * time.Second: verdictOK, 2 * time.Minute: verdictFailed, -2 * time.Minute: verdictFailed} {
		h := http.Header{"Date": {now.Add(skew).UTC().Format(http.TimeFormat)}}
		if got := skewFinding(h, now).Verdict; got != want {
			t.Errorf("%s: %s, want %s", skew, got, want)
		}
	}
	if got := skewFinding(http.Header{}, now).Verdict; got != verdictSkipped {
		t.Error(got)
	}
}

func TestDoctorSaysWhereMoreIsInFlightThanTheMemoryHolds(t *testing.T) { // C79
	for _, tt := range []struct {
		maxInFlight int
		memory      int64
		tells       bool
	}{{1024, 512 << 20, false}, {1025, 512 << 20, true}, {512, 256 << 20, false}, {1024, 256 << 20, true}, {100_000, 0, false}} {
		found := memoryFor(tt.maxInFlight, tt.memory)
		if tells := len(found) == 1 && found[0].Verdict == verdictWarning; tells != tt.tells {
			t.Errorf("%d in %d MB: %+v", tt.maxInFlight, tt.memory>>20, found)
		}
	}
}

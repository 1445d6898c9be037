package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pushlease/pushlease/internal/config"
)

// verdict is how one check of the doctor ended.
type verdict string

const (
	verdictOK      verdict = "ok"
	verdictWarning verdict = "warning"
	verdictFailed  verdict = "failed"
	verdictSkipped verdict = "skipped"
)

// finding is what one check found. Detail and Cure hold no secrets.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	Detail  string  `json:"detail"`
	// Cure is what to do about it; empty when nothing needs to be done.
	Cure string `json:"cure,omitempty"`
}

// extraCheck looks at what belongs to cfg, and only reads.
type extraCheck func(ctx context.Context, cfg config.Config) []finding

const (
	// doctorTimeout bounds all checks together.
	doctorTimeout = 30 * time.Second
	// maxSkew is how far apart clocks may be: receivers refuse signatures that
	// are more than five minutes off, and Azure Storage requests that are fifteen.
	maxSkew = time.Minute
)

func newDoctorCommand(more ...extraCheck) *cobra.Command {
	c := &client{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check configuration, storage, port, server and clock",
		Long: `Checks the configuration that serve would start with, whether its storage can be
reached, whether its port is free or a server answers there, whether that server is
ready, and on the same storage when no server is named, and whether the clocks agree.
In the folder of an Azure Functions app it checks host.json and the functions too, and
takes settings from local.settings.json and storage from AzureWebJobsStorage, as the app
does. It creates, sends and deletes nothing.

Exits with 1 when a check failed; each finding says what to do about it.`,
		Example: `  pushlease doctor
  PUSHLEASE_STORAGE=azure:myaccount pushlease doctor -o json
  pushlease doctor --config /etc/pushlease.yaml --server https://pushlease.example.com`,
		Args: arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), doctorTimeout)
			defer cancel()
			return c.report(cmd, c.examine(ctx, cmd, more))
		},
	}
	c.addFlags(cmd)
	config.AddFlags(cmd.Flags())
	return cmd
}

// memoryFor finds a limit that takes more memory than there is.
func memoryFor(maxInFlight int, memory int64) []finding {
	holds := config.Holds(memory)
	if memory == 0 || maxInFlight <= holds {
		return nil
	}
	return []finding{{"max_in_flight", verdictWarning, fmt.Sprintf("%d messages in flight, with the POSTs of each, may take more memory than the %d MB that the process may have", maxInFlight, memory>>20),
		fmt.Sprintf("set max_in_flight (PUSHLEASE_MAX_IN_FLIGHT) to %d at most, and concurrency not above it, or give the process more memory", max(holds, 1))}}
}

// examine makes all checks, in the order in which they are shown.
func (c *client) examine(ctx context.Context, cmd *cobra.Command, more []extraCheck) []finding {
	app := hereApp(os.Environ())
	cfg, err := config.Load(cmd.Flags(), app.environ)
	if err != nil {
		found := append(configFindings(err), app.findings()...)
		return append(found, finding{"everything else", verdictSkipped, "the other checks need a valid configuration", ""})
	}
	found := []finding{{"configuration", verdictOK, changedSettings(cfg) + app.note, ""}}
	if cfg.Dev && cfg.Storage.IsAccount() {
		found = append(found, finding{"dev", verdictWarning, "--dev is on with an account: webhooks may have http URLs anywhere, and every private and loopback address",
			"leave --dev out; allow_http and allow_cidrs name the receivers in a private network that may be sent to"})
	}
	for _, check := range more {
		found = append(found, check(ctx, cfg)...)
	}
	found = slices.Concat(found, app.findings(), app.accounts(cfg.Storage), app.room(cfg.MaxInFlight), memoryFor(cfg.MaxInFlight, config.Memory(os.DirFS("/"))), app.hosted(cfg))
	here := c.server == "" && os.Getenv(serverEnv) == ""
	if here && app.root != nil {
		return append(found, finding{"server", verdictSkipped, "the Functions host starts it; name a running app with --server", ""})
	}
	if here {
		c.server = "http://" + reachable(cfg.Listen)
	} else if c.server == "" {
		c.server = os.Getenv(serverEnv)
	}
	resp, err := c.ask(ctx, "/healthz")
	health := ""
	// The Functions host passes on what is below /api/v1 only.
	if found := (*apiError)(nil); errors.As(err, &found) && found.Status == http.StatusNotFound {
		health = "/api/v1"
		resp, err = c.ask(ctx, health+"/healthz")
	}
	switch {
	case err != nil && here:
		return append(found, portFinding(ctx, cfg.Listen))
	case err != nil:
		cure := "start it, or correct --server"
		if refused := (*apiError)(nil); errors.As(err, &refused) && refused.Status == http.StatusUnauthorized {
			cure = "the keys that the server's address asks for come from " + functionsKeyEnv + " and " + apiKeyEnv
		}
		return append(found, finding{"server", verdictFailed, err.Error(), cure})
	}
	server := c.readiness(ctx, health+"/readyz")
	if own := storageLocation(cfg); here && server.storage != "" && server.storage != own {
		server.Verdict, server.Cure = verdictWarning, "if that is not meant: start the server with this configuration, or run doctor with the server's (its flags, --config and PUSHLEASE_ variables, in its folder)"
		server.Detail += ", but on another storage: it has " + server.storage + ", and this configuration " + own
	}
	found = append(found, server.finding, skewFinding(resp.header, time.Now()))
	return append(found, c.keyFindings(ctx)...)
}

// keyFindings tell whether the server knows the key that commands send. A server that does not say so
// has none.
func (c *client) keyFindings(ctx context.Context) []finding {
	const check = "API key"
	const cure = "set " + apiKeyEnv + " to the token of one of the server's api_keys; pushlease api-key new makes one, and the line for the setting"
	a, err := c.do(ctx, request{method: http.MethodGet, path: "/api/v1/session", timeout: 10 * time.Second})
	if refused := (*apiError)(nil); errors.As(err, &refused) && !refused.foreign && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusForbidden) {
		return []finding{{check, verdictFailed, refused.Error(), cure}}
	}
	var session struct {
		KeysSet  bool     `json:"keys_set"`
		SignedIn bool     `json:"signed_in"`
		Key      string   `json:"key"`
		Scopes   []string `json:"scopes"`
	}
	if err != nil || a.into(&session) != nil || !session.KeysSet {
		return nil
	}
	switch {
	case session.SignedIn:
		return []finding{{check, verdictOK, "the server knows it as " + session.Key + ", with the scopes " + strings.Join(session.Scopes, ", "), ""}}
	case os.Getenv(apiKeyEnv) == "":
		return []finding{{check, verdictWarning, "the server asks for one, and " + apiKeyEnv + " is not set: other commands are refused", cure}}
	}
	return []finding{{check, verdictFailed, "the server does not know the one in " + apiKeyEnv, cure}}
}

func configFindings(err error) []finding {
	var invalid *config.Error
	if !errors.As(err, &invalid) {
		return []finding{{"configuration", verdictFailed, err.Error(), ""}}
	}
	var found []finding
	for _, p := range invalid.Problems {
		wrong, cure, ok := strings.Cut(p.Text, "; ")
		if !ok || strings.Contains(cure, "; ") { // not one fault and its cure
			wrong, cure = p.Text, "correct "+p.Setting
		}
		found = append(found, finding{"configuration", verdictFailed, p.Setting + " (" + p.Where + "): " + wrong, cure})
	}
	return found
}

// changedSettings names what is not at its default.
func changedSettings(cfg config.Config) string {
	text := "valid; storage is " + cfg.Storage.String()
	for _, e := range cfg.Effective() {
		if e.Source != "default" && e.Name != "storage" {
			text += fmt.Sprintf("; %s=%s (%s)", e.Name, e.Value, e.Source)
		}
	}
	return text
}

// reachable is the address to call a server at that listens on listen.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// ask gets a path and accepts any answer of a pushlease server.
func (c *client) ask(ctx context.Context, path string) (answer, error) {
	a, err := c.do(ctx, request{method: http.MethodGet, path: path, timeout: 10 * time.Second})
	if err != nil {
		return a, err
	}
	var health struct {
		Status string `json:"status"`
	}
	if err := json.Unmarshal(a.body, &health); err != nil || health.Status == "" {
		return a, errors.New("what answers there is not a pushlease server")
	}
	return a, nil
}

// portFinding is about the port of a server that does not run.
func portFinding(ctx context.Context, listen string) finding {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", listen)
	if err != nil {
		return finding{"port", verdictFailed, "no pushlease server answers, and the address can't be listened on: " + err.Error(),
			"stop the other program that uses " + listen + ", or set listen (PUSHLEASE_LISTEN) to another address"}
	}
	_ = l.Close() // only its being possible was of interest
	return finding{"port", verdictOK, listen + " is free; no server is running there", ""}
}

// serverFinding is how a server fares, and the storage that it says it has.
type serverFinding struct {
	finding
	storage string
}

func (c *client) readiness(ctx context.Context, path string) serverFinding {
	a, err := c.ask(ctx, path)
	var api *apiError
	var ready struct {
		Status  string       `json:"status"`
		Storage string       `json:"storage"`
		Checks  []readyCheck `json:"checks"`
	}
	if err == nil {
		err = a.into(&ready)
	}
	switch {
	case errors.As(err, &api):
		return serverFinding{finding{"server", verdictFailed, api.Error(), "the failing checks say what is wrong; with API keys, set " + apiKeyEnv + " to one with the scope read to see their details"}, ""}
	case err != nil:
		return serverFinding{finding{"server", verdictFailed, err.Error(), "see the server's log"}, ""}
	}
	if ready.Status == "degraded" {
		return serverFinding{finding{"server", verdictWarning, c.server + " is running and serves its API, though a check fails:" + failing(ready.Checks), "the failing checks say what is wrong; pushlease queues shows the queues"}, ready.Storage}
	}
	return serverFinding{finding{"server", verdictOK, c.server + " is running and ready", ""}, ready.Storage}
}

// skewFinding compares our clock with the Date of an answer, which has whole
// seconds.
func skewFinding(h http.Header, now time.Time) finding {
	date, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return finding{"clock", verdictSkipped, "the answer has no date to compare with", ""}
	}
	if skew := now.Sub(date).Abs(); skew > maxSkew {
		return finding{"clock", verdictFailed, fmt.Sprintf("this machine's clock and the server's are %s apart", skew.Round(time.Second)),
			"synchronise the clocks (NTP): receivers refuse signatures whose time is minutes off"}
	}
	return finding{"clock", verdictOK, "this machine's clock agrees with the server's", ""}
}

// report prints the findings, and fails if one of them did.
func (c *client) report(cmd *cobra.Command, found []finding) error {
	ok := true
	for _, f := range found {
		ok = ok && f.Verdict != verdictFailed
	}
	if c.json() {
		if err := c.value(cmd, struct {
			OK       bool      `json:"ok"`
			Findings []finding `json:"findings"`
		}{ok, found}); err != nil {
			return err
		}
	} else {
		for _, f := range found {
			text := fmt.Sprintf("%-8s %s: %s", f.Verdict, f.Check, f.Detail)
			if f.Cure != "" {
				text += "\n         → " + f.Cure
			}
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), clean(text)); err != nil {
				return err
			}
		}
	}
	if !ok {
		return silentError{}
	}
	return nil
}

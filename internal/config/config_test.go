package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/pushlease/pushlease/queue"
)

const hashA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
const hashB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"

// load runs Load with command-line arguments, variables and a YAML file, each
// of which may be empty.
func load(t *testing.T, args, env []string, file string) (Config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "pushlease.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		env = append(env, "PUSHLEASE_CONFIG="+path)
	}
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(flags)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	return Load(flags, env)
}

func TestDefaults(t *testing.T) {
	c, err := Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	most := 1024 // what this machine can hold
	if memory := Memory(os.DirFS("/")); memory > 0 {
		most = max(64, min(most, Holds(memory)))
	}
	switch {
	case c.Storage.Path() != "pushlease.db", c.Listen != "127.0.0.1:8080", c.Dev, len(c.APIKeys) != 0,
		c.Lease != 0, c.Concurrency != 64, c.MaxInFlight != most, c.PollMin != 100*time.Millisecond, c.PollMax != 5*time.Second,
		c.Drain != 35*time.Second, c.RegistryRefresh != 5*time.Second, c.Encoding != queue.EncodingAuto,
		!c.PoisonCopy, c.Retention != 8*24*time.Hour, c.WebhookTimeout != 30*time.Second, c.TablePrefix != "pushlease", c.TablePartitions != 1,
		c.LogLevel != slog.LevelInfo, c.LogFormat != "auto", c.OTLPEndpoint != "", c.Instance == "":
		t.Errorf("defaults: %v", c)
	}
	if more, err := Load(nil, []string{"PUSHLEASE_CONCURRENCY=5000"}); err != nil || more.MaxInFlight != 5000 {
		t.Errorf("a concurrency above the usual max_in_flight: %v, %v", more, err)
	}
	other, err := Load(nil, nil)
	if err != nil || other.Instance == c.Instance {
		t.Errorf("two processes are both called %q", c.Instance)
	}
}

func TestEveryDefaultParsesAndIsShownAsItIsWritten(t *testing.T) {
	c, err := Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range Settings() {
		if s.Help == "" || s.Flag == "" || !strings.HasPrefix(s.Env, "PUSHLEASE_") {
			t.Errorf("%s: the row is not complete", s.Name)
		}
		if s.Default == "" {
			continue
		}
		var again Config
		if err := s.set(&again, s.show(c)); err != nil {
			t.Errorf("%s: its shown default %q does not parse: %v", s.Name, s.show(c), err)
		}
	}
}

func TestFlagsWinOverEnvironmentOverFileOverDefaults(t *testing.T) {
	tests := []struct {
		name      string
		args, env []string
		file      string
		want      time.Duration
		source    string
	}{
		{"default", nil, nil, "", 0, "default"},
		{"file", nil, nil, "lease: 61s", 61 * time.Second, "file"},
		{"environment", nil, []string{"PUSHLEASE_LEASE=62s"}, "lease: 61s", 62 * time.Second, "environment"},
		{"flag", []string{"--lease", "63s"}, []string{"PUSHLEASE_LEASE=62s"}, "lease: 61s", 63 * time.Second, "flag"},
		{"an empty variable is unset", nil, []string{"PUSHLEASE_LEASE="}, "lease: 61s", 61 * time.Second, "file"},
		{"an empty key is unset", nil, nil, "lease:\n", 0, "default"},
		{"flag that takes the default back", []string{"--lease", "auto"}, nil, "lease: 61s", 0, "flag"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := load(t, tt.args, tt.env, tt.file)
			if err != nil {
				t.Fatal(err)
			}
			if c.Lease != tt.want || c.sources["lease"] != tt.source {
				t.Errorf("lease = %s from %s, want %s from %s", c.Lease, c.sources["lease"], tt.want, tt.source)
			}
		})
	}
}

func TestOverriddenMistakesDoNotStopTheStart(t *testing.T) {
	c, err := load(t, []string{"--lease=63s"}, []string{"PUSHLEASE_LEASE=soon"}, "")
	if err != nil || c.Lease != 63*time.Second {
		t.Errorf("lease = %s, %v", c.Lease, err)
	}
}

func TestFileTakesListsMapsAndScalars(t *testing.T) {
	c, err := load(t, nil, nil, `
storage: "azure:myaccount"
dev: false
concurrency: 8
poison_copy: false
api_keys:
  - ops:operate+read:`+hashA+`
  - app:publish:`+hashB+`
allow_cidrs: [10.1.0.0/16, 192.0.2.7]
queues:
  orders: {encoding: base64}
  invoices:
    encoding: none
  invoices-poison: {encoding: base64}
`)
	if err != nil {
		t.Fatal(err)
	}
	if c.Storage.Account() != "myaccount" || c.Concurrency != 8 || c.PoisonCopy ||
		len(c.APIKeys) != 2 || c.APIKeys[0].Name != "ops" || len(c.APIKeys[0].Scopes) != 2 ||
		joinList(c.AllowCIDRs) != "10.1.0.0/16,192.0.2.7/32" || c.RegistryRefresh != 15*time.Second {
		t.Errorf("config: %v", c)
	}
	for name, want := range map[string]queue.Encoding{
		"orders": "base64", "invoices": "none", "others": "auto", "others-poison": "auto",
		"orders-poison": "base64", "invoices-poison": "base64", "orders-poison-poison": "base64", "poison": "auto", "-poison": "auto",
	} {
		if got := c.QueueEncoding(name); got != want {
			t.Errorf("encoding of %s = %s, want %s", name, got, want)
		}
	}
}

func TestQueuesFromTheEnvironment(t *testing.T) {
	c, err := load(t, nil, []string{"PUSHLEASE_QUEUES=orders=base64, invoices=none"}, "")
	if err != nil || c.QueueEncoding("orders") != "base64" || c.QueueEncoding("invoices") != "none" {
		t.Errorf("queues = %v, %v", c.Queues, err)
	}
}

// What a misspelt filter refuses must not be gone: only an operator's word deletes it.
func TestWhatEveryFilterRefusesIsKeptUnlessTheOperatorLetsItGo(t *testing.T) {
	c, err := Load(nil, []string{"PUSHLEASE_QUEUES=orders=auto,samples=auto:unmatched=complete,both=auto:unmatched=dead-letter"})
	if err != nil {
		t.Fatal(err)
	}
	for name, kept := range map[string]bool{"orders": true, "samples": false, "both": true, "not-named": true} {
		if c.KeepUnmatched(name) != kept {
			t.Errorf("%s: kept is %t", name, !kept)
		}
	}
}

func TestSettingsOfAQueueInBothForms(t *testing.T) {
	want := Queue{Encoding: "base64", Processing: 45 * time.Second, ProcessingMin: time.Second, ProcessingMax: 2 * time.Minute, LeaseFromMax: true, ByEvent: true, CompleteUnmatched: true}
	file := "queues: {orders: {encoding: base64, processing: 45s, processing_min: 1s, processing_max: 2m, lease_from: max, dedup: event-id, unmatched: complete}, slow: {processing: 10m}}"
	c, err := load(t, nil, nil, file)
	if err != nil {
		t.Fatal(err)
	}
	shown := showQueues(c.Queues)
	again, err := load(t, nil, []string{"PUSHLEASE_QUEUES=" + shown}, "")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []Config{c, again} {
		if c.Queues["orders"] != want || c.Queues["slow"] != (Queue{Processing: 10 * time.Minute}) {
			t.Errorf("queues = %+v, shown as %s", c.Queues, shown)
		}
		if c.QueueEncoding("slow") != "auto" {
			t.Errorf("a queue without an encoding has %s", c.QueueEncoding("slow"))
		}
	}
}

// Each row is one rule: the setting that the error must name, and a piece of the
// cure.
var refusals = []struct {
	name      string
	args, env []string
	file      string
	setting   string
	cure      string
}{
	{name: "duration without a unit", args: []string{"--lease=60"}, setting: "lease", cure: "number and a unit"},
	{name: "YAML number as duration", file: "lease: 60", setting: "lease", cure: "number and a unit"},
	{name: "lease too short", args: []string{"--lease=1s"}, setting: "lease", cure: "use 2s"},
	{name: "lease of no length", args: []string{"--lease=automatic"}, setting: "lease", cure: "or auto"},
	{name: "lease too long", args: []string{"--lease=169h"}, setting: "lease", cure: "168h"},
	{name: "empty flag", args: []string{"--lease="}, setting: "lease", cure: "leave it out"},
	{name: "concurrency 0", args: []string{"--concurrency=0"}, setting: "concurrency", cure: "1 to 10000"},
	{name: "concurrency 10001", args: []string{"--concurrency=10001"}, setting: "concurrency", cure: "1 to 10000"},
	{name: "pauses in which a message could come and go", args: []string{"--poll-max=31s"}, setting: "poll_max", cure: "10ms to 30s"},
	{name: "poll_min above poll_max", args: []string{"--poll-min=2s", "--poll-max=1s"}, setting: "poll_min", cure: "lower poll_min"},
	{name: "max_in_flight below concurrency", args: []string{"--max-in-flight=10", "--concurrency=20"}, setting: "max_in_flight", cure: "lower concurrency"},
	{name: "max_in_flight below the default concurrency", args: []string{"--max-in-flight=63"}, setting: "max_in_flight", cure: "64 for each"},
	{name: "copies older than records", args: []string{"--poison-copy-ttl=200h"}, setting: "poison_copy_ttl", cure: "raise retention or lower poison_copy_ttl"},
	{name: "max_in_flight of nothing", args: []string{"--max-in-flight=0"}, setting: "max_in_flight", cure: "100000"},
	{name: "poll_min of nothing", args: []string{"--poll-min=0s"}, setting: "poll_min", cure: "10ms"},
	{name: "negative drain", args: []string{"--drain=-1s"}, setting: "drain", cure: "use 1s"},
	{name: "refresh too often", args: []string{"--registry-refresh=1ms"}, setting: "registry_refresh", cure: "use 1s"},
	{name: "unknown encoding", args: []string{"--encoding=utf8"}, setting: "encoding", cure: "auto, base64 or none"},
	{name: "queues without encoding", args: []string{"--queues=orders"}, setting: "queues", cure: "orders=base64"},
	{name: "queues with a bad name", args: []string{"--queues=Orders=none"}, setting: "queues", cure: "lower-case"},
	{name: "queues with a queue twice", args: []string{"--queues=abc=none,abc=auto"}, setting: "queues", cure: "keep one"},
	{name: "expected time without a unit", args: []string{"--queues=abc=processing=45"}, setting: "queues", cure: "number and a unit"},
	{name: "expected time over a week", file: "queues: {abc: {processing_max: 169h}}", setting: "queues", cure: "168h"},
	{name: "expected times out of order", file: "queues: {abc: {processing: 2m, processing_max: 1m}}", setting: "queues", cure: "correct one"},
	{name: "lease from a maximum that is not there", file: "queues: {abc: {processing: 2m, lease_from: max}}", setting: "queues", cure: "processing_max"},
	{name: "another way to tell messages apart", file: "queues: {abc: {dedup: body}}", setting: "queues", cure: "message-id or event-id"},
	{name: "something else for what no filter takes", file: "queues: {abc: {unmatched: keep}}", setting: "queues", cure: "dead-letter or complete"},
	{name: "lease from something else", file: "queues: {abc: {processing: 2m, lease_from: min}}", setting: "queues", cure: "average or max"},
	{name: "queue's setting twice", args: []string{"--queues=abc=none:encoding=auto"}, setting: "queues", cure: "keep one"},
	{name: "queue's setting without a name", args: []string{"--queues=abc=none:45s"}, setting: "queues", cure: "processing=45s"},
	{name: "queue's value with a separator", file: "queues: {abc: {encoding: 'none:processing=1s'}}", setting: "queues", cure: "no value"},
	{name: "queue with an empty map", file: "queues: {orders: {}}", setting: "queues", cure: "{encoding: base64}"},
	{name: "unknown key of a queue", file: "queues: {orders: {encodng: none}}", setting: "queues", cure: "did you mean encoding?"},
	{name: "queue without a map", file: "queues: {orders: base64}", setting: "queues", cure: "{encoding: base64}"},
	{name: "retention under an hour", args: []string{"--retention=59m"}, setting: "retention", cure: "use 1h0m0s"},
	{name: "webhook timeout over ten minutes", args: []string{"--webhook-timeout=11m"}, setting: "webhook_timeout", cure: "10m0s"},
	{name: "not a CIDR", args: []string{"--allow-cidrs=ten"}, setting: "allow_cidrs", cure: "10.1.0.0/16"},
	{name: "CIDR with host bits", args: []string{"--deny-cidrs=10.1.2.3/8"}, setting: "deny_cidrs", cure: "did you mean 10.0.0.0/8?"},
	{name: "allowed within denied", args: []string{"--allow-cidrs=10.1.0.0/16", "--deny-cidrs=10.0.0.0/8"}, setting: "allow_cidrs", cure: "remove it"},
	{name: "table prefix with a hyphen", args: []string{"--table-prefix=push-lease"}, setting: "table_prefix", cure: "letters and digits"},
	{name: "table prefix with a leading digit", args: []string{"--table-prefix=1push"}, setting: "table_prefix", cure: "beginning with a letter"},
	{name: "no table partition", args: []string{"--table-partitions=0"}, setting: "table_partitions", cure: "from 1 to 64"},
	{name: "client id", args: []string{"--managed-identity-client-id=me"}, setting: "managed_identity_client_id", cure: "0000"},
	{name: "client id beside a connection string", args: []string{"--managed-identity-client-id=00000000-0000-0000-0000-000000000000", "--storage=UseDevelopmentStorage=true"}, setting: "managed_identity_client_id", cure: "azure:<account>"},
	{name: "log level", args: []string{"--log-level=loud"}, setting: "log_level", cure: "debug, info"},
	{name: "log format", args: []string{"--log-format=xml"}, setting: "log_format", cure: "auto, json or text"},
	{name: "endpoint without scheme", args: []string{"--otlp-endpoint=localhost:4318"}, setting: "otlp_endpoint", cure: "http://127.0.0.1:4318"},
	{name: "endpoint beside a switched-off SDK", args: []string{"--otlp-endpoint=http://127.0.0.1:4318"}, env: []string{"OTEL_SDK_DISABLED=true"}, setting: "otlp_endpoint", cure: "unset one"},
	{name: "instance", args: []string{"--instance=" + strings.Repeat("x", 65)}, setting: "instance", cure: "1 to 64"},
	{name: "bool", args: []string{"--dev=maybe"}, setting: "dev", cure: "true nor false"},
	{name: "listen without port", args: []string{"--listen=localhost"}, setting: "listen", cure: "127.0.0.1:8080"},
	{name: "listen with a bad port", args: []string{"--listen=127.0.0.1:99999"}, setting: "listen", cure: "65535"},
	{name: "listen with a name", args: []string{"--listen=example.com:80"}, setting: "listen", cure: "localhost"},
	{name: "open without keys", args: []string{"--listen=0.0.0.0:8080"}, setting: "listen", cure: "api-key new"},
	{name: "all addresses without keys", args: []string{"--listen=:8080"}, setting: "listen", cure: "api-key new"},
	{name: "dev and open without keys", args: []string{"--listen=[::]:8080", "--dev"}, setting: "dev", cure: "listen on 127.0.0.1"},
	{name: "sqlite without file", args: []string{"--storage=sqlite:"}, setting: "storage", cure: "sqlite:pushlease.db"},
	{name: "sqlite in memory", args: []string{"--storage=sqlite::memory:"}, setting: "storage", cure: "sqlite:pushlease.db"},
	{name: "azure URL", args: []string{"--storage=azure:https://a.queue.core.windows.net"}, setting: "storage", cure: "3 to 24"},
	{name: "bare path", args: []string{"--storage=pushlease.db"}, setting: "storage", cure: "sqlite:<file>"},
	{name: "connection string without key", args: []string{"--storage=AccountName=abc"}, setting: "storage", cure: "azure:<account>"},
	{name: "connection string without account", args: []string{"--storage=AccountKey=abc"}, setting: "storage", cure: "AccountName"},
	{name: "shared access without endpoints", args: []string{"--storage=QueueEndpoint=https://a.example.com;SharedAccessSignature=sv=1&sig=x"}, setting: "storage", cure: "TableEndpoint"},
	{name: "key with two parts", args: []string{"--api-keys=ops:" + hashA}, setting: "api_keys", cure: "api-key new"},
	{name: "key with a token for a hash", args: []string{"--api-keys=ops:read:token"}, setting: "api_keys", cure: "not the token itself"},
	{name: "key without scope", args: []string{"--api-keys=ops::" + hashA}, setting: "api_keys", cure: "publish, read"},
	{name: "key with an unknown scope", args: []string{"--api-keys=ops:write:" + hashA}, setting: "api_keys", cure: "publish, read"},
	{name: "key without name", args: []string{"--api-keys=:read:" + hashA}, setting: "api_keys", cure: "1 to 64"},
	{name: "two keys of one name", args: []string{"--api-keys=a:read:" + hashA + ",a:read:" + hashB}, setting: "api_keys", cure: "name of its own"},
	{name: "two keys with one hash", args: []string{"--api-keys=a:read:" + hashA + ",b:read:" + hashA}, setting: "api_keys", cure: "one token per key"},
	{name: "missing file", args: []string{"--config=/does/not/exist.yaml"}, setting: "config", cure: "readable YAML"},
	{name: "unknown key", file: "leese: 60s", setting: "leese", cure: "did you mean lease?"},
	{name: "key in flag form", file: "poll-min: 1s", setting: "poll-min", cure: "did you mean poll_min?"},
	{name: "key nothing like a setting", file: "colour-of-the-bikeshed: red", setting: "colour-of-the-bikeshed", cure: "docs/configuration.md"},
	{name: "key twice", file: "lease: 60s\nlease: 61s", setting: "config", cure: "already defined"},
	{name: "no map", file: "- lease", setting: "config", cure: "map of settings"},
	{name: "two documents' worth of nonsense", file: "lease: [", setting: "config", cure: "YAML"},
	{name: "list for one value", file: "lease: [60s]", setting: "lease", cure: "one value"},
	{name: "list of numbers", file: "allow_cidrs: [10]", setting: "allow_cidrs", cure: "quotes"},
	{name: "map for one value", file: "lease: {a: b}", setting: "lease", cure: "map"},
	{name: "unknown variable", env: []string{"PUSHLEASE_STORAG=x"}, setting: "PUSHLEASE_STORAG", cure: "did you mean PUSHLEASE_STORAGE?"},
}

func TestAllThatIsWrongWithTheQueuesIsToldAtOnce(t *testing.T) {
	says := []string{"did you mean encoding?", "45", "message-id or event-id", "lower-case", `"bare" has no settings`, "processing_max"}
	for _, tt := range []struct {
		args []string
		file string
	}{
		{args: []string{"--queues=abc=encodng=none:processing=45:dedup=body,ABC=none,def=lease_from=max,bare"}},
		{file: "queues: {abc: {encodng: none, processing: 45, dedup: body}, ABC: {encoding: none}, def: {lease_from: max}, bare: {}}"},
	} {
		_, err := load(t, tt.args, nil, tt.file)
		if err == nil {
			t.Fatalf("%+v was taken", tt)
		}
		for _, text := range says {
			if len(tt.args) > 0 && text == `"bare" has no settings` {
				text = `"bare" is not queue=encoding`
			}
			if !strings.Contains(err.Error(), text) {
				t.Errorf("no %q in\n%s", text, err)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range refusals {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.args, tt.env, tt.file)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("err = %v", err)
			}
			if len(e.Problems) != 1 || e.Problems[0].Setting != tt.setting || !strings.Contains(err.Error(), tt.cure) {
				t.Errorf("want one problem with %s that says %q, got: %v", tt.setting, tt.cure, err)
			}
		})
	}
}

func TestAccepted(t *testing.T) {
	tests := []struct {
		name      string
		args, env []string
	}{
		{"open with keys", []string{"--listen=0.0.0.0:8080", "--api-keys=a:admin:" + hashA}, nil},
		{"loopback in IPv6", []string{"--listen=[::1]:0"}, nil},
		{"loopback by name", []string{"--listen=localhost:8080"}, nil},
		{"another loopback address", []string{"--listen=127.0.0.2:8080"}, nil},
		{"bare bool flag", []string{"--dev"}, nil},
		{"longest lease", []string{"--lease=168h"}, nil},
		{"shared access", []string{"--storage=QueueEndpoint=https://a/;TableEndpoint=https://b/;SharedAccessSignature=sv=1&sig=x"}, nil},
		{"another cloud", []string{"--storage=azure:abc;EndpointSuffix=core.chinacloudapi.cn"}, nil},
		{"the client's variables", nil, []string{"PUSHLEASE_SERVER=x", "PUSHLEASE_API_KEY=y", "PUSHLEASE_WEBHOOK_SECRET=z"}},
		{"other programs' variables", nil, []string{"PUSHLEASEX=1", "NOTHING"}},
		{"what Kubernetes sets for a Service called pushlease", nil, []string{
			"PUSHLEASE_SERVICE_HOST=10.0.0.1", "PUSHLEASE_SERVICE_PORT=80", "PUSHLEASE_SERVICE_PORT_HTTP=80", "PUSHLEASE_PORT=tcp://10.0.0.1:80",
			"PUSHLEASE_PORT_80_TCP=tcp://10.0.0.1:80", "PUSHLEASE_PORT_80_TCP_PROTO=tcp", "PUSHLEASE_PORT_80_TCP_PORT=80", "PUSHLEASE_PORT_80_TCP_ADDR=10.0.0.1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := load(t, tt.args, tt.env, ""); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAllProblemsAreListedTogether(t *testing.T) {
	_, err := load(t, []string{"--lease=1s", "--concurrency=none"}, []string{"PUSHLEASE_LOG_LEVL=info"}, "drain: soon\nnonsense: 1")
	var e *Error
	if !errors.As(err, &e) || len(e.Problems) != 5 {
		t.Fatalf("err = %v", err)
	}
	for _, want := range []string{"--lease", "--concurrency", "PUSHLEASE_LOG_LEVEL?", "drain", "nonsense"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func TestFunctionsHostLendsItsStorage(t *testing.T) {
	const host, account = "FUNCTIONS_CUSTOMHANDLER_PORT=1", "AzureWebJobsStorage=AccountName=abc;AccountKey=a2V5"
	tests := []struct {
		name string
		env  []string
		want string
	}{
		{"connection string", []string{host, account}, "connection string of abc [redacted]"},
		{"identity", []string{host, "AzureWebJobsStorage__accountName=abc"}, "azure:abc"},
		{"own setting wins", []string{host, account, "PUSHLEASE_STORAGE=azure:other"}, "azure:other"},
		{"elsewhere it is another program's", []string{account}, "sqlite:pushlease.db"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := load(t, nil, tt.env, "")
			if err != nil || c.Storage.String() != tt.want {
				t.Errorf("storage = %s, %v; want %s", c.Storage, err, tt.want)
			}
		})
	}
}

func TestNoSecretIsPrinted(t *testing.T) {
	const secret = "c3VwZXItc2VjcmV0LWtleQ=="
	c, err := load(t, nil, []string{"PUSHLEASE_STORAGE=AccountName=abc;AccountKey=" + secret, "PUSHLEASE_API_KEYS=ops:read:" + hashA}, "")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "config", c, "storage", c.Storage, "keys", c.APIKeys)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", c, "storage", c.Storage, "keys", c.APIKeys)
	raw, err := json.Marshal([]any{c, c.Storage, c.APIKeys})
	if err != nil {
		t.Fatal(err)
	}
	printed := log.String() + string(raw)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{c, &c, c.Storage, &c.Storage, c.APIKeys, c.APIKeys[0], []any{c}} {
			printed += fmt.Sprintf(verb, v)
		}
	}
	for _, s := range []string{secret, hashA, fmt.Sprintf("%x", secret), "170 170"} {
		if strings.Contains(printed, s) {
			t.Errorf("%s was printed", s)
		}
	}
	if !strings.Contains(c.String(), "lease=auto") || !strings.Contains(c.String(), "ops:read:[redacted]") {
		t.Errorf("what is no secret is missing: %s", c)
	}
	if c.Storage.ConnectionString() == "" || c.APIKeys[0].Hash() == [32]byte{} {
		t.Error("the values themselves are missing")
	}
}

func TestNoSecretInAnError(t *testing.T) {
	const secret = "c3VwZXItc2VjcmV0LWtleQ"
	tests := []struct {
		name string
		env  []string
		file string
	}{
		{"connection string", []string{"PUSHLEASE_STORAGE=AccountKey=" + secret}, ""},
		{"path", []string{"PUSHLEASE_STORAGE=" + secret}, ""},
		{"account", []string{"PUSHLEASE_STORAGE=azure:" + secret}, ""},
		{"api key", []string{"PUSHLEASE_API_KEYS=ops:read:" + secret}, ""},
		{"api key's scope", []string{"PUSHLEASE_API_KEYS=ops:" + secret + ":" + hashA}, ""},
		{"collector", []string{"PUSHLEASE_OTLP_ENDPOINT=https://user:" + secret + "@host"}, ""},
		{"unknown variable", []string{"PUSHLEASE_STORAGEX=" + secret}, ""},
		{"broken file", nil, "storage: \"AccountKey=" + secret + "\n  x: [\n"},
		{"broken file, later", nil, "storage: AccountKey=" + secret + "\n\tlease: 1s\n"},
		{"key twice", nil, "storage: " + secret + "\nstorage: " + secret},
		{"text instead of a map", nil, secret},
		{"list", nil, "storage: [" + secret + "]"},
		{"map", nil, "storage: {a: " + secret + "}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, nil, tt.env, tt.file)
			if err == nil {
				t.Fatal("accepted")
			}
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the secret is in: %v", err)
			}
		})
	}
}

func FuzzLoad(f *testing.F) {
	for _, s := range []string{"lease: 60s", "queues: {a: b}", "a: *b", "storage: [", "- 1", "? x", "lease: !!binary aGk="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var bad problems
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_ = readFile(path, "test", &bad)
	})
}

func TestNothingOfAFileIsQuotedThatCouldBeASecret(t *testing.T) {
	for text, want := range map[string]string{
		"storage: *AccountKey=TOPSECRET":                         "YAML map",
		"DefaultEndpointsProtocol=https;AccountKey=TOPSECRET: x": "no setting",
		"storage: \"AccountKey=TOPSECRET":                        "YAML map",
		"storage: &TOPSECRET x\nlease: *TOPSECRETS":              "YAML map",
		"lease: 1s\nlease: TOPSECRET":                            `"lease" already`,
	} {
		path := filepath.Join(t.TempDir(), "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(nil, []string{"PUSHLEASE_CONFIG=" + path})
		if err == nil || strings.Contains(err.Error(), "TOPSECRET") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

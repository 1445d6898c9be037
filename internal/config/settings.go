package config

import (
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushlease/pushlease/queue"
)

// Setting is one row of the table that flags, environment, YAML file and
// documentation are made from.
type Setting struct {
	// Name is the YAML key.
	Name string
	// Flag is the name of the flag, without dashes.
	Flag string
	// Env is the environment variable.
	Env string
	// Default is the value in force when nothing is set, in the form that flags
	// take; empty where Help says what happens.
	Default string
	// Help is one or two sentences with units and limits.
	Help string
	// Secret settings are never printed.
	Secret bool

	kind kind
	set  func(*Config, string) error
	show func(Config) string
}

// kind says which YAML values a setting takes; the help names it.
type kind string

const (
	scalar   kind = "value"
	period   kind = "duration"
	boolean  kind = "bool"
	list     kind = "list"
	queueMap kind = "map"
)

// Settings lists every setting in the order in which they are documented.
func Settings() []Setting { return slices.Clone(table) }

// Limits of the settings.
const (
	minLease          = 2 * time.Second
	maxConcurrency    = 10_000
	maxInFlight       = 100_000
	maxWebhookTimeout = 10 * time.Minute
	minRetention      = time.Hour
	maxRetention      = 366 * 24 * time.Hour
	// maxDeadLetterRetention is ten years; without the setting they are kept for ever.
	maxDeadLetterRetention = 10 * 365 * 24 * time.Hour
	maxNameBytes           = 64
	maxTablePrefix         = 20
	maxTablePartitions     = 64
)

// The intervals of RegistryRefresh when it is not set: reading a local file is
// free, reading an Azure table is not.
const (
	registryRefreshLocal = 5 * time.Second
	registryRefreshAzure = 15 * time.Second
)

var table = named([]Setting{
	{
		Name: "storage", Default: "sqlite:pushlease.db", Secret: true,
		Help: "Where messages and records are: sqlite:<file> (one embedded database file), an Azure Storage connection string (UseDevelopmentStorage=true included), or azure:<account> (Entra identity). " +
			"As an Azure Functions custom handler it defaults to AzureWebJobsStorage. Set a connection string in the environment or the file: a flag can be seen by other users of the machine.",
		set:  func(c *Config, v string) (err error) { c.Storage, err = parseStorage(v); return err },
		show: func(c Config) string { return c.Storage.String() },
	},
	{
		Name: "listen", Default: "127.0.0.1:8080",
		Help: "Address of the HTTP server, host:port. Anything but a loopback address needs api_keys. :8080 listens on all addresses, port 0 takes a free one.",
		set:  func(c *Config, v string) (err error) { c.Listen, err = parseListen(v); return err },
		show: func(c Config) string { return c.Listen },
	},
	flag("dev", "false", "Development: allow webhooks with http URLs, and with loopback and private addresses. Not for production.",
		func(c *Config) *bool { return &c.Dev }),
	{
		Name: "api_keys", Secret: true, kind: list,
		Help: "Who may use the API: a list of name:scope+scope:sha256-hex (comma-separated outside YAML). Scopes: publish, read, operate (replay, enable, purge), admin (webhooks, secrets, deleting queues). " +
			"Make one with: pushlease api-key new. Without keys only loopback is served, and as an Azure Functions custom handler nobody.",
		set:  func(c *Config, v string) (err error) { c.APIKeys, err = parseAPIKeys(v); return err },
		show: func(c Config) string { return joinList(c.APIKeys) },
	},
	{
		Name: "lease", Default: autoLease, kind: period,
		Help: "How long a message is received for at a time; renewed at half of it while the message is in work. auto: follows the time that the queue's messages take, from 30s to 168h. " +
			"Or one length for all queues, 2s to 168h, rounded up to whole seconds.",
		set:  func(c *Config, v string) (err error) { c.Lease, err = parseLease(v); return err },
		show: func(c Config) string { return showLease(c.Lease) },
	},
	{
		Name: "concurrency", Default: "64",
		Help: "Most messages of one queue that are being POSTed at a time. A message that one of its webhooks is done with, while others are still at it, does not count. Beside these, three times as many may wait after their POSTs for storage to record and settle them, and under a backlog up to 48 (three quarters of this number at most) are received ahead. 1 to 10000.",
		set:  func(c *Config, v string) (err error) { c.Concurrency, err = parseInt(v, 1, maxConcurrency); return err },
		show: func(c Config) string { return strconv.Itoa(c.Concurrency) },
	},
	{
		Name: "max_in_flight",
		Help: "Most messages of all queues in work at a time, those that only wait to be settled included; half of it is divided in equal parts among the queues that are polled here or have messages in work, and a queue with none in work may always have one. 1 to 100000, not below concurrency. Unset: 1024, or as many as there are 512 KiB of memory in the container or machine where that is less, and in any case as many as concurrency.",
		set:  func(c *Config, v string) (err error) { c.MaxInFlight, err = parseInt(v, 1, maxInFlight); return err },
		show: func(c Config) string { return strconv.Itoa(c.MaxInFlight) },
	},
	duration("poll_min", "100ms", "Shortest pause between two receives of an empty queue. 10ms to 30s, not above poll_max.",
		10*time.Millisecond, longestPause, func(c *Config) *time.Duration { return &c.PollMin }),
	duration("poll_max", "5s", "Longest pause between two receives of an empty queue, on average: pauses vary by a quarter, and are shorter while the process is younger than a lease. Of several instances each waits as many times longer, up to 30s, so that all together look as often as one. Each receive is a paid storage transaction. 10ms to 30s: a message near its end has to be seen in time.",
		10*time.Millisecond, longestPause, func(c *Config) *time.Duration { return &c.PollMax }),
	duration("drain", "35s", "How long a stopping process waits for POSTs in flight. 1s to 1h. Give the process at least 20s more before it is killed.",
		time.Second, time.Hour, func(c *Config) *time.Duration { return &c.Drain }),
	duration("shutdown_delay", "", "How long a stopping process goes on serving its API while /readyz says 503, so that load balancers stop sending before it ends; beside drain, not added to it. 0s to 5m. Unset: 5s where an orchestrator is seen (Kubernetes, Container Apps), otherwise 0s.",
		0, 5*time.Minute, func(c *Config) *time.Duration { return &c.ShutdownDelay }),
	duration("registry_refresh", "", "How often the registered webhooks are read again, to see what other instances changed. 1s to 5m. Unset: 5s on sqlite, 15s on Azure.",
		time.Second, 5*time.Minute, func(c *Config) *time.Duration { return &c.RegistryRefresh }),
	{
		Name: "encoding", Default: string(queue.EncodingAuto),
		Help: "How stored texts stand for bodies, for queues that queues does not name: auto (decode base64 of a JSON object or array only), base64 or none.",
		set:  func(c *Config, v string) (err error) { c.Encoding, err = queue.ParseEncoding(v); return err },
		show: func(c Config) string { return string(c.Encoding) },
	},
	{
		Name: "queues", kind: queueMap,
		Help: "Settings per queue: encoding, and how long a message is expected to take until enough were measured (processing, processing_min, processing_max; lease_from max takes the last one); dedup event-id tells messages apart by their CloudEvents event and not by message-id alone; what every filter refuses becomes a dead letter, or with unmatched complete is deleted and counted. " +
			"YAML: a map of queue to {encoding: base64, processing: 45s}; elsewhere: orders=base64:processing=45s,invoices=none.",
		set:  func(c *Config, v string) (err error) { c.Queues, err = parseQueues(v); return err },
		show: func(c Config) string { return showQueues(c.Queues) },
	},
	flag("poison_copy", "true", "Put a copy of each dead-lettered message on <queue>-poison.",
		func(c *Config) *bool { return &c.PoisonCopy }),
	duration("poison_copy_ttl", "", "How long such a copy lives. 1h to 8784h, and no longer than retention. Unset: for ever. Nothing but the copy ends with it.",
		minRetention, maxRetention, func(c *Config) *time.Duration { return &c.PoisonCopyTTL }),
	{
		Name: "events_queue",
		Help: "Queue on which pushlease tells what happens, as CloudEvents: a webhook was disabled, fails, recovered; messages became dead letters. Register a webhook on it. Unset: nothing is sent.",
		set:  func(c *Config, v string) (err error) { c.EventsQueue = v; return queue.ValidateName(v) },
		show: func(c Config) string { return c.EventsQueue },
	},
	duration("retention", "192h", "How long delivery and attempt records are kept, from when they were written last. 1h to 8784h. Shorter than a message's life (168h by default) means that a message that comes back after it is POSTed again.",
		minRetention, maxRetention, func(c *Config) *time.Duration { return &c.Retention }),
	duration("dead_letter_retention", "", "How long dead letters are kept that were not replayed; then they are deleted and counted. 1h to 87600h. Unset: for ever. Replayed ones are always deleted when retention has passed since their replay.",
		minRetention, maxDeadLetterRetention, func(c *Config) *time.Duration { return &c.DeadLetterRetention }),
	duration("webhook_timeout", "30s", "Deadline of one exchange for webhooks that name none, from when there is a connection; opening one may take as long. 1s to 10m.",
		time.Second, maxWebhookTimeout, func(c *Config) *time.Duration { return &c.WebhookTimeout }),
	cidrs("allow_cidrs", "Address ranges that webhooks may have although the guard refuses them (private, loopback, link-local …): a list such as 10.1.0.0/16 (comma-separated outside YAML). Metadata addresses and deny_cidrs stay refused.",
		func(c *Config) *prefixes { return (*prefixes)(&c.AllowCIDRs) }),
	cidrs("deny_cidrs", "Address ranges that webhooks may not have, beyond those the guard refuses anyway; wins over allow_cidrs. A list of CIDRs.",
		func(c *Config) *prefixes { return (*prefixes)(&c.DenyCIDRs) }),
	{
		Name: "allow_http", kind: list,
		Help: "Receivers to which plain http is allowed: a list of address ranges such as 10.0.0.0/8, and host names such as billing or *.svc.cluster.local (comma-separated outside YAML). A host so named may have private addresses. Metadata addresses and deny_cidrs stay refused.",
		set:  func(c *Config, v string) (err error) { c.AllowHTTP, err = parseHTTPRules(v); return err },
		show: func(c Config) string { return joinList(c.AllowHTTP) },
	},
	flag("functions_poller", "false", "As an Azure Functions custom handler: poll the queues that have no trigger all the time, instead of by the timer pump. Only on plans that keep instances alive (Premium, Dedicated with Always On, Container Apps with a replica at least); refused on others.",
		func(c *Config) *bool { return &c.FunctionsPoller }),
	{
		Name: "table_prefix", Default: "pushlease",
		Help: "Beginning of the names of all Azure tables, so that several installations can share an account. 3 to 20 letters and digits, beginning with a letter.",
		set:  func(c *Config, v string) (err error) { c.TablePrefix, err = parseTablePrefix(v); return err },
		show: func(c Config) string { return c.TablePrefix },
	},
	{
		Name: "table_partitions", Default: "1",
		Help: "Partitions of a day's records in Azure tables. Azure takes 2,000 rows a second for each, and a message is one or a few rows; with fewer partitions, more messages share a storage transaction. 1 to 64. The same for all instances, and changed only while no message waits for a retry: its record would not be found.",
		set: func(c *Config, v string) (err error) {
			c.TablePartitions, err = parseInt(v, 1, maxTablePartitions)
			return err
		},
		show: func(c Config) string { return strconv.Itoa(c.TablePartitions) },
	},
	{
		Name: "managed_identity_client_id",
		Help: "Client id of the user-assigned managed identity to sign in with; only for storage azure:<account>. Unset: the default Azure credential chain.",
		set:  func(c *Config, v string) (err error) { c.ManagedIdentityClientID, err = parseClientID(v); return err },
		show: func(c Config) string { return c.ManagedIdentityClientID },
	},
	{
		Name: "log_level", Default: "info",
		Help: "Least important level that is logged: debug, info, warn or error.",
		set:  func(c *Config, v string) (err error) { c.LogLevel, err = parseLevel(v); return err },
		show: func(c Config) string { return showLevel(c.LogLevel) },
	},
	{
		Name: "log_format", Default: "auto",
		Help: "Form of the log on standard error: json, text, or auto, which is text on a terminal and json elsewhere.",
		set:  func(c *Config, v string) (err error) { c.LogFormat, err = oneOf(v, "auto", "json", "text"); return err },
		show: func(c Config) string { return c.LogFormat },
	},
	{
		Name: "otlp_endpoint",
		Help: "Base URL of an OpenTelemetry collector (OTLP over HTTP) for metrics and traces, such as http://127.0.0.1:4318. Unset: the standard OTEL_* variables decide; without them nothing is sent.",
		set:  func(c *Config, v string) (err error) { c.OTLPEndpoint, err = parseEndpoint(v); return err },
		show: func(c Config) string { return c.OTLPEndpoint },
	},
	{
		Name: "instance",
		Help: "Name of this process in records and metrics, 1 to 64 letters, digits, '-', '_' and '.'; two processes must not share one. Unset: the host's name and a random suffix.",
		set:  func(c *Config, v string) (err error) { c.Instance, err = parseInstance(v); return err },
		show: func(c Config) string { return c.Instance },
	},
})

// named fills in the names that follow from Name.
func named(rows []Setting) []Setting {
	for i := range rows {
		rows[i].Flag = strings.ReplaceAll(rows[i].Name, "_", "-")
		rows[i].Env = envPrefix + strings.ToUpper(rows[i].Name)
		if rows[i].kind == "" {
			rows[i].kind = scalar
		}
	}
	return rows
}

func duration(name, def, help string, least, most time.Duration, field func(*Config) *time.Duration) Setting {
	return Setting{
		Name: name, Default: def, Help: help, kind: period,
		set:  func(c *Config, v string) (err error) { *field(c), err = parseDuration(v, least, most); return err },
		show: func(c Config) string { return field(&c).String() },
	}
}

func flag(name, def, help string, field func(*Config) *bool) Setting {
	return Setting{
		Name: name, Default: def, Help: help, kind: boolean,
		set:  func(c *Config, v string) (err error) { *field(c), err = parseBool(v); return err },
		show: func(c Config) string { return strconv.FormatBool(*field(&c)) },
	}
}

func cidrs(name, help string, field func(*Config) *prefixes) Setting {
	return Setting{
		Name: name, Help: help, kind: list,
		set:  func(c *Config, v string) (err error) { *field(c), err = parseCIDRs(v); return err },
		show: func(c Config) string { return joinList(*field(&c)) },
	}
}

// longestPause is how long a queue with an enabled webhook may be without a look: what is about to expire is shown for a minute (ADR 0134).
const longestPause = 30 * time.Second

// usualMaxInFlight is MaxInFlight when it is not set, where the memory holds so many.
const usualMaxInFlight = 1024

// orchestratedDelay is ShutdownDelay when it is not set and others send requests here:
// the time in which they notice that the process is not ready.
const orchestratedDelay = 5 * time.Second

// orchestrated reports whether something outside decides where requests are sent.
func orchestrated(env map[string]string) bool {
	return env["KUBERNETES_SERVICE_HOST"] != "" || env["CONTAINER_APP_NAME"] != ""
}

// fillUnset gives values to what has no fixed default.
func fillUnset(c *Config, env map[string]string, memory int64) {
	if c.sources["shutdown_delay"] == fromDefault && orchestrated(env) {
		c.ShutdownDelay = orchestratedDelay
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = usualMaxInFlight
		if memory > 0 {
			c.MaxInFlight = min(usualMaxInFlight, Holds(memory))
		}
		c.MaxInFlight = max(c.MaxInFlight, c.Concurrency)
	}
	if c.RegistryRefresh == 0 {
		c.RegistryRefresh = registryRefreshAzure
		if c.Storage.Kind() == StorageSQLite {
			c.RegistryRefresh = registryRefreshLocal
		}
	}
	if c.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "pushlease"
		}
		c.Instance = randomInstance(host)
	}
}

func showLevel(l slog.Level) string { return strings.ToLower(l.String()) }

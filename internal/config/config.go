// Package config reads the settings of pushlease from flags, environment and an
// optional YAML file into one checked Config. One table, Settings, is the source
// of all three and of the documentation.
package config

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/pushlease/pushlease/queue"

	"github.com/pushlease/pushlease/webhook"
)

// Config is a complete, checked configuration. It prints, logs and marshals
// without its secrets.
type Config struct {
	// Storage is where messages and records are.
	Storage Storage
	// Listen is the host:port of the HTTP server.
	Listen string
	// Dev allows webhooks with http URLs and loopback addresses.
	Dev bool
	// APIKeys are who may use the API; none means that only loopback is served.
	APIKeys []APIKey

	// Lease is how long a message is received for at a time; zero means that it
	// follows the time that messages take.
	Lease time.Duration
	// Concurrency is the most messages of one queue in work at a time.
	Concurrency int
	// MaxInFlight is the most messages of all queues in work at a time.
	MaxInFlight int
	// PollMin and PollMax bound the pause between two receives of an empty
	// queue.
	PollMin, PollMax time.Duration
	// Drain is how long a stopping process waits for POSTs in flight.
	Drain time.Duration
	// ShutdownDelay is how long a stopping process serves its API after it has said that it
	// is not ready.
	ShutdownDelay time.Duration
	// RegistryRefresh is how often the registered webhooks are read again.
	RegistryRefresh time.Duration

	// Encoding is the encoding of queues that Queues does not name.
	Encoding queue.Encoding
	// Queues holds what is set per queue, by name.
	Queues map[string]Queue

	// EventsQueue is the queue that what happens to webhooks and messages is told on; empty for
	// none.
	EventsQueue string
	// PoisonCopy puts a copy of each dead-lettered message on <queue>-poison.
	PoisonCopy bool
	// PoisonCopyTTL is how long such a copy lives; zero is for ever.
	PoisonCopyTTL time.Duration
	// Retention is how long delivery and attempt records are kept.
	Retention time.Duration
	// DeadLetterRetention is how long dead letters that were not replayed are kept;
	// zero means for ever.
	DeadLetterRetention time.Duration
	// WebhookTimeout is used by webhooks that name none.
	WebhookTimeout time.Duration
	// AllowCIDRs lifts the address guard for these ranges; DenyCIDRs adds to it,
	// and wins.
	AllowCIDRs, DenyCIDRs []netip.Prefix
	// AllowHTTP names the receivers to which plain http is allowed.
	AllowHTTP []webhook.HTTPRule

	// FunctionsPoller polls queues without a trigger all the time in an Azure Functions
	// custom handler.
	FunctionsPoller bool

	// TablePrefix begins the names of all Azure tables.
	TablePrefix string
	// TablePartitions is how many partitions the records of a day have in Azure tables.
	TablePartitions int
	// ManagedIdentityClientID picks one of several identities; empty means the
	// system's.
	ManagedIdentityClientID string

	// LogLevel and LogFormat ("auto", "json" or "text") shape the log.
	LogLevel  slog.Level
	LogFormat string
	// OTLPEndpoint is the base URL of an OpenTelemetry collector; empty means
	// that the standard OTEL_* variables decide.
	OTLPEndpoint string
	// Instance names this process in records and metrics.
	Instance string

	sources map[string]string // where each setting came from
}

// Queue is what is set for one queue.
type Queue struct {
	// Encoding is empty where the setting encoding decides.
	Encoding queue.Encoding
	// ProcessingMin, Processing and ProcessingMax are how long a message is expected to
	// take: at least, on average and at most. Zero where nothing is expected.
	ProcessingMin, Processing, ProcessingMax time.Duration
	// LeaseFromMax makes leases by the longest expected time, not by the average one.
	LeaseFromMax bool
	// ByEvent tells messages apart by the CloudEvents event that they carry.
	ByEvent bool
	// CompleteUnmatched deletes messages that every filter refuses, which are dead letters
	// otherwise.
	CompleteUnmatched bool
}

// QueueEncoding returns the encoding of the named queue. What lies on a <queue>-poison was
// on its queue before, and is encoded so unless it has an encoding of its own.
func (c Config) QueueEncoding(name string) queue.Encoding {
	if q, ok := c.Queues[name]; ok && q.Encoding != "" {
		return q.Encoding
	}
	if parent, ok := strings.CutSuffix(name, poisonSuffix); ok {
		return c.QueueEncoding(parent)
	}
	return c.Encoding
}

const poisonSuffix = "-poison"

// DedupByEvent reports whether messages of the named queue are told apart by their event.
func (c Config) DedupByEvent(name string) bool { return c.Queues[name].ByEvent }

// KeepUnmatched reports whether messages of the named queue that every filter refuses
// become dead letters. They do unless the operator said that they may go: a misspelt
// filter must not delete anything.
func (c Config) KeepUnmatched(name string) bool { return !c.Queues[name].CompleteUnmatched }

// Effective is one setting as it is in force.
type Effective struct {
	// Name is the YAML key.
	Name string `json:"name"`
	// Value is the value in the form that flags take, without secrets.
	Value string `json:"value"`
	// Source is "default", "file", "environment" or "flag".
	Source string `json:"source"`
}

// Effective lists all settings in the order of Settings. Secrets are redacted.
func (c Config) Effective() []Effective {
	var list []Effective
	for _, s := range table {
		list = append(list, Effective{Name: s.Name, Value: s.show(c), Source: c.sources[s.Name]})
	}
	return list
}

// String lists the settings without their secrets.
func (c Config) String() string {
	var parts []string
	for _, e := range c.Effective() {
		parts = append(parts, e.Name+"="+e.Value)
	}
	return strings.Join(parts, " ")
}

// Format makes every verb print what String says: fmt would otherwise walk into
// the fields for %#v and the like.
func (c Config) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// LogValue logs the settings without their secrets.
func (c Config) LogValue() slog.Value {
	var attrs []slog.Attr
	for _, e := range c.Effective() {
		attrs = append(attrs, slog.String(e.Name, e.Value))
	}
	return slog.GroupValue(attrs...)
}

// MarshalJSON writes the list of Effective.
func (c Config) MarshalJSON() ([]byte, error) { return json.Marshal(c.Effective()) }

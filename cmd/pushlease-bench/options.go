package main

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/queue"
)

const help = `pushlease-bench measures a pushlease server, and what the same machine can do
without one.

  pushlease-bench                       everything but growth, on SQLite: 2 to 3 minutes
  pushlease-bench --quick               the same with small counts: does it work at all?
  pushlease-bench --storage standin --latency 10ms
  pushlease-bench --scenarios drain --rounds 5 --json new.json
  pushlease-bench --compare old.json new.json
  pushlease-bench --baseline ./old-pushlease --scenarios drain --rounds 9
  pushlease-bench --scenarios growth    deep queues, many webhooks, long histories

What is read how. Absolute figures say something about your machine; ratios say
something about pushlease. So each round measures, one after the other:

  raw    bare POSTs to the same receiver, as many at a time, and no queue: the ceiling
  ideal  receive a batch, POST, delete, on the same store with the same adapter, and
         no records: what a consumer without memory could do
  server pushlease, as a process of its own, durable commits, all records
  fan3   the same with three webhooks on the queue
  followed
         the server with one webhook, and somebody who follows its stream

and gives for each figure the least, the median and the most of the rounds, and the
ratio to the reference of the same round. On a machine that others use, believe ratios
only, and those only when their least and most are near each other. --baseline adds a
second server binary to every round, which is the fair way to see whether a change
helped; --peer adds another program that takes messages from a queue and POSTs them, which
finds what it is to do in PEER_URL, PEER_QUEUE and PEER_STORAGE (cmd/pushlease-bench/peers); --compare puts two reports side by side and says when they overlap.

Scenarios (--scenarios, separated by commas):

  drain        messages/s from a full queue; CPU, memory and transactions for them
  latency      publish to POST received: idle, and at 20, 50 and 80 % of the drain rate, with
               publish to its answer
  start        process start to first answer, and the size of the binary
  memory       memory and goroutines with 1,000 messages in flight
  recovery     kill -9 in the middle of a drain: to the next POST, and to the last
  idle         transactions a minute and CPU of a server with nothing to do
  depth        drain rate from the front of a queue of 1,000 to --max-depth messages
  webhooks     drain rate with 1 to 10,000 webhooks on other queues
  history      drain rate with up to --attempts attempts stored
  checkpoints  latency p99.9 under load while SQLite writes checkpoints
  growth       the last four
  neighbours   a webhook that takes 20 ms, alone and beside ones that hang or answer 429, on
               its queue and on another, and 450 of them beside 50 that hang
  limited      a receiver that takes 20, and 500, POSTs a second and answers 503 to the rest:
               what it is sent by the server, and by a naive consumer that repeats each of
               them after 1s; neither this nor neighbours is run when none is named

Storage (--storage): sqlite is a fresh file each time. standin is a fast server for the
protocols of Azure queues and tables in memory, with --latency before each answer; it
counts transactions on the wire, and has the limits that are published for an account:
2,000 messages a second of one queue, 2,000 rows of one partition, 20,000 requests, and
1 to 3 s more for one request in 200 (--limits none: without them, to see what the CPU
takes). What is prepared is written without them. Everything else is a connection string, best given as
PUSHLEASE_BENCH_STORAGE so that others don't see it; queues and tables that begin with
bench are left behind there. Azurite takes about 350 messages/s, whoever asks.

CPU and memory come from /proc and are 0 elsewhere than on Linux.

Flags:
`

// scenario names.
const (
	drainScenario       = "drain"
	latencyScenario     = "latency"
	neighboursScenario  = "neighbours"
	limitedScenario     = "limited"
	startScenario       = "start"
	memoryScenario      = "memory"
	recoveryScenario    = "recovery"
	idleScenario        = "idle"
	depthScenario       = "depth"
	webhooksScenario    = "webhooks"
	historyScenario     = "history"
	checkpointsScenario = "checkpoints"
)

var (
	usualScenarios  = []string{drainScenario, latencyScenario, startScenario, memoryScenario, recoveryScenario, idleScenario}
	growthScenarios = []string{depthScenario, webhooksScenario, historyScenario, checkpointsScenario}
	otherScenarios  = []string{neighboursScenario, limitedScenario}
)

// options is what to measure. It goes into the report, but for secrets.
type options struct {
	Storage     string        `json:"storage"`
	Latency     time.Duration `json:"latency_ns"`
	Limits      string        `json:"limits,omitempty"`
	Scenarios   []string      `json:"scenarios"`
	Rounds      int           `json:"rounds"`
	Count       int           `json:"count"`
	Size        int           `json:"size"`
	Concurrency int           `json:"concurrency"`
	Delay       time.Duration `json:"receiver_delay_ns"`
	Answers     string        `json:"receiver_answers,omitempty"`
	Settings    []string      `json:"settings,omitempty"`
	LoadTime    time.Duration `json:"load_time_ns"`
	Idle        time.Duration `json:"idle_ns"`
	MaxDepth    int           `json:"max_depth"`
	Attempts    int           `json:"attempts"`
	Lease       time.Duration `json:"recovery_lease_ns"`

	connection       string // where Storage is a connection string
	binary, baseline string
	peers            []peer
	dir, json        string
	compare          []string
	quick, help      bool
	flags            string // their descriptions
}

// Limits of the stand-in.
const (
	publishedLimits = "published"
	noLimits        = "none"
)

// Kinds of storage; otherStorage stands for a connection string in reports.
const (
	sqliteStorage  = "sqlite"
	standinStorage = "standin"
	otherStorage   = "connection string"
)

func parseOptions(args []string) (options, error) {
	var o options
	var scenarios string
	var quick, compare bool
	set := flag.NewFlagSet("pushlease-bench", flag.ContinueOnError)
	var described bytes.Buffer
	set.SetOutput(&described)
	set.Usage = func() {}
	set.StringVar(&o.Storage, "storage", sqliteStorage, "sqlite, standin, or a connection string (also as PUSHLEASE_BENCH_STORAGE)")
	set.DurationVar(&o.Latency, "latency", 0, "of each answer of the stand-in: 0, 5ms, 10ms …")
	set.StringVar(&o.Limits, "limits", "", "of the stand-in: published, which is the default, or none")
	set.StringVar(&scenarios, "scenarios", strings.Join(usualScenarios, ","), "what to measure")
	set.IntVar(&o.Rounds, "rounds", 3, "how often; medians are given")
	set.IntVar(&o.Count, "count", 8000, "messages of a drain")
	set.IntVar(&o.Size, "size", 1024, "bytes of a body")
	set.IntVar(&o.Concurrency, "concurrency", 64, "messages in flight: of the server, of each webhook, and of the references")
	set.DurationVar(&o.Delay, "receiver-delay", 0, "how long the receiver takes: 0, 5ms, 50ms …")
	set.StringVar(&o.Answers, "receiver-answers", "", "statuses that the receiver gives in turn, such as 200,200,503 (drain measures POSTs then)")
	set.Func("set", "setting of the server as name=value, such as poll_max=1s; repeatable", func(s string) error {
		if name, _, ok := strings.Cut(s, "="); !ok || name == "" {
			return errors.New("write name=value")
		}
		o.Settings = append(o.Settings, s)
		return nil
	})
	set.DurationVar(&o.LoadTime, "load-time", 4*time.Second, "how long each load of the scenario latency lasts")
	set.DurationVar(&o.Idle, "idle", 12*time.Second, "how long the scenario idle watches; the longest poll interval is reached after about 90s")
	set.DurationVar(&o.Lease, "lease", 5*time.Second, "lease of the scenario recovery, 2s or more")
	set.IntVar(&o.MaxDepth, "max-depth", 100_000, "deepest queue of the scenario depth")
	set.IntVar(&o.Attempts, "attempts", 1_000_000, "most attempts stored in the scenario history")
	set.StringVar(&o.binary, "server-binary", "", "the server to measure; built from this module when empty")
	set.StringVar(&o.baseline, "baseline", "", "another server binary to measure in every round of drain")
	set.Func("peer", "another program that takes messages from a queue, as name=command, to measure in every round of drain; repeatable", func(s string) error {
		p, err := parsePeer(s)
		o.peers = append(o.peers, p)
		return err
	})
	set.StringVar(&o.dir, "dir", "", "folder for databases and logs; a temporary one when empty")
	set.StringVar(&o.json, "json", "", "file to write the report to, as JSON")
	set.BoolVar(&quick, "quick", false, "small counts: less than a minute, and figures that mean little")
	set.BoolVar(&compare, "compare", false, "compare two reports: --compare old.json new.json")
	err := set.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		described.Reset()
		set.PrintDefaults()
		return options{help: true, flags: described.String()}, nil
	}
	switch {
	case err != nil:
		return o, usagef("%v", err)
	case compare && set.NArg() == 2:
		o.compare = set.Args()
		return o, nil
	case compare:
		return o, usagef("--compare takes two files")
	case set.NArg() > 0:
		return o, usagef("%q is not a flag", set.Arg(0))
	}
	if quick {
		given := map[string]bool{}
		set.Visit(func(f *flag.Flag) { given[f.Name] = true })
		o.shrink(given)
		o.quick = true
	}
	if o.Scenarios, err = parseScenarios(scenarios); err != nil {
		return o, err
	}
	return o, o.check()
}

// shrink makes everything small that was not given.
func (o *options) shrink(given map[string]bool) {
	small := func(name string, set func()) {
		if !given[name] {
			set()
		}
	}
	small("rounds", func() { o.Rounds = 1 })
	small("count", func() { o.Count = 400 })
	small("load-time", func() { o.LoadTime = time.Second })
	small("idle", func() { o.Idle = time.Second })
	small("lease", func() { o.Lease = 2 * time.Second })
	small("max-depth", func() { o.MaxDepth = 2000 })
	small("attempts", func() { o.Attempts = 2000 })
}

func parseScenarios(list string) ([]string, error) {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		switch {
		case name == "growth":
			names = append(names, growthScenarios...)
		case slices.Contains(slices.Concat(usualScenarios, growthScenarios, otherScenarios), name):
			names = append(names, name)
		default:
			return nil, usagef("there is no scenario %q", name)
		}
	}
	return names, nil
}

func (o *options) check() error {
	if o.Storage == sqliteStorage {
		if s := os.Getenv("PUSHLEASE_BENCH_STORAGE"); s != "" {
			o.Storage = s
		}
	}
	if o.Storage != sqliteStorage && o.Storage != standinStorage {
		o.connection, o.Storage = o.Storage, otherStorage
	}
	if o.Limits == "" && o.Storage == standinStorage {
		o.Limits = publishedLimits
	}
	if _, err := parseAnswers(o.Answers); err != nil {
		return err
	}
	switch {
	case o.Latency != 0 && o.Storage != standinStorage:
		return usagef("--latency is the stand-in's: add --storage standin")
	case o.Limits != "" && o.Storage != standinStorage:
		return usagef("--limits are the stand-in's: add --storage standin")
	case o.Limits != "" && o.Limits != publishedLimits && o.Limits != noLimits:
		return usagef("--limits are %s or %s", publishedLimits, noLimits)
	case len(o.peers) > 0 && o.Storage == sqliteStorage:
		return usagef("--peer needs queues that others can take from: add --storage standin")
	case o.Latency < 0 || o.Delay < 0:
		return usagef("a latency or a delay can't be negative")
	case o.Rounds < 1 || o.Count < 10 || o.Concurrency < 1 || o.Concurrency > 1000:
		return usagef("--rounds is at least 1, --count 10, --concurrency 1 to 1000")
	case o.Size < minBody || o.Size > queue.MaxTextBytes:
		return usagef("--size is %d to %d", minBody, queue.MaxTextBytes)
	case o.Lease < 2*time.Second || o.LoadTime <= 0 || o.Idle <= 0:
		return usagef("--lease is at least 2s, --load-time and --idle more than nothing")
	case o.MaxDepth < 1000 || o.Attempts < 1000:
		return usagef("--max-depth and --attempts are at least 1000")
	}
	return nil
}

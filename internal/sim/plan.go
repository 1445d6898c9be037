package sim

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// Plan is all that happens in one run, but for what the scheduler decides.
type Plan struct {
	Profile string
	Seed    uint64
	// File keeps everything in a SQLite file, and not on the model of an account.
	File      bool
	Instances int
	// Hosted instances are under the Azure Functions host, which receives from the first webhook's
	// queue; a timer pumps the others.
	Hosted bool
	// Settings are variables of the instances' environment, without their prefix.
	Settings map[string]string
	Webhooks []Webhook
	Steps    []Step
	// Rates are how often calls fail from Warm to Calm.
	Rates      Rates
	Warm, Calm time.Duration
	// Settle is how long after Calm everything must have come to its end.
	Settle time.Duration
	// Strict says that nothing in this plan explains a second 2xx.
	Strict bool
	// Lanes says that a late transaction must hold up what is in it only.
	Lanes bool
	// Behind64 says that names have only addresses that a DNS64 made of the receivers' own.
	Behind64 bool
	// QueueCalls and TableCalls are how many calls a second the account takes of each service
	// until Calm; those beyond are refused. 0 for no bound.
	QueueCalls, TableCalls int
	// Skew is how far the account's clock is ahead.
	Skew time.Duration
	// HidesToTheEnd says that the account hides no message until after its end.
	HidesToTheEnd bool
	// Clocks are how far the clock of each instance is ahead, in whole seconds; nil where all have the same.
	Clocks []time.Duration
	// Force is what becomes of single calls, by their id.
	Force map[string]string
	// Brief runs don't look at what idle instances do.
	Brief bool
	// Only, when it is not nil, are the steps and faults that are left of the plan.
	Only map[string]bool
}

// Webhook is a registration and its receiver.
type Webhook struct {
	Name, Queue string
	// ID is what it is registered under, where it is not for us to choose.
	ID       string
	Mix      Mix
	Timeout  time.Duration
	Attempts int
	// Told gets the events about what happens to others (events_queue), and no message of ours.
	Told bool
	// Late ones are registered by a step.
	Late bool
	// Picky ones have a filter that takes no message.
	Picky bool
	// Prompt is how soon after it was sent each message must be POSTed; 0 for no bound.
	Prompt time.Duration
}

// Step is one thing that somebody does, or that befalls an instance.
type Step struct {
	ID       string
	At       time.Duration
	Do       string
	Instance int
	Webhook  string
	Queue    string
	Count    int
	// For is how long it lasts; Gap is between the messages of one step.
	For, Gap time.Duration
	TTL      time.Duration
	// Service is "queue", "table", or empty for both; Kind is how its calls fail, and Op
	// restricts that to one operation.
	Service, Kind, Op string
	// Hot is the share of the service's partitions that an outage is about; a Queue is one. Each of them takes
	// Count calls a second.
	Hot float64
	// Form is how another program writes its texts, plain base64 or as the constants say, or that messages are published
	// as a batch of events.
	Form string
	// Keyed messages have an Idempotency-Key, and are published until that is answered; Delay is from when on they may be received.
	Keyed bool
	Delay time.Duration
	// Event, when it is there, is the CloudEvents id of the messages.
	Event string
	// Where is the number of gates until an instance dies or freezes.
	Where int
}

// The things that a step does.
const (
	doPublish  = "publish"  // through the API
	doPut      = "put"      // by another program, onto the account's queue
	doTake     = "take"     // another program receives what is visible, and deletes some of it
	doCrash    = "crash"    // an instance dies and is started again
	doFreeze   = "freeze"   // an instance stops for a while
	doStop     = "stop"     // an instance is asked to stop, and started again
	doOutage   = "outage"   // storage fails for a while
	doDisable  = "disable"  // a webhook
	doEnable   = "enable"   // a webhook
	doDelete   = "delete"   // a webhook
	doMove     = "move"     // a webhook: it has another URL from now on
	doFilter   = "filter"   // a webhook: it takes nothing for a while
	doUnfilter = "unfilter" // the end of that, which is no step of its own
	doRegister = "register" // a webhook
	doReplace  = "replace"  // a webhook: it is deleted, and registered again after a while
	doSweep    = "sweep"    // a queue: it is deleted with its webhooks and messages, and they are registered again after a while
	doReplay   = "replay"   // of what waits among the dead letters
	doPurge    = "purge"    // of all dead letters, but of those that are being replayed
	doEnd      = "end"      // deletes the dead letters that are being replayed for webhooks that are gone
	doHeal     = "heal"     // a receiver answers 200 from now on
	doCount    = "count"    // the gates that an instance passes from now on
)

// The forms of texts.
const (
	wrapped = "wrapped" // base64 with line ends and blanks
	batch   = "batch"   // published together, as events
	newer   = "newer"   // an envelope of a version that nobody here can read
)

// String is one line of a trace.
func (s Step) String() string {
	text := fmt.Sprintf("%s %s", s.ID, s.Do)
	for _, part := range []struct {
		name  string
		value any
		there bool
	}{
		{"i", s.Instance, s.Do == doCrash || s.Do == doFreeze || s.Do == doStop || s.Do == doOutage || s.Do == doPublish},
		{"queue", s.Queue, s.Queue != ""}, {"webhook", s.Webhook, s.Webhook != ""}, {"count", s.Count, s.Count > 0},
		{"for", s.For, s.For > 0}, {"gap", s.Gap, s.Gap > 0}, {"ttl", s.TTL, s.TTL > 0}, {"service", s.Service, s.Service != ""},
		{"kind", s.Kind, s.Kind != ""}, {"op", s.Op, s.Op != ""}, {"hot", s.Hot, s.Hot > 0}, {"form", s.Form, s.Form != ""}, {"event", s.Event, s.Event != ""}, {"keyed", s.Keyed, s.Keyed}, {"delay", s.Delay, s.Delay > 0}, {"gate", s.Where, s.Where > 0},
	} {
		if part.there {
			text += fmt.Sprintf(" %s=%v", part.name, part.value)
		}
	}
	return text
}

// kept is whether a step or fault is part of the plan.
func (p *Plan) kept(id string) bool { return p.Only == nil || p.Only[id] }

// draw is a number in [0,1) that depends on the seed and the name of the choice alone, so
// that it is the same in whatever order choices are made.
func (p *Plan) draw(parts ...any) float64 {
	return float64(p.hash(parts...)>>11) / (1 << 53)
}

func (p *Plan) hash(parts ...any) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprint(h, p.Seed, "/", parts) // a hash takes everything
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// between is a duration from low to high.
func (p *Plan) between(low, high time.Duration, parts ...any) time.Duration {
	return low + time.Duration(p.draw(parts...)*float64(high-low))
}

// chooser makes the choices of a profile.
type chooser struct{ *rand.Rand }

func newChooser(seed uint64) chooser {
	return chooser{rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15))}
}

func (c chooser) between(low, high time.Duration) time.Duration {
	return low + time.Duration(c.Float64()*float64(high-low))
}

func (c chooser) chance(share float64) bool { return c.Float64() < share }

// pick chooses one of several.
func pick[T any](c chooser, of ...T) T { return of[c.IntN(len(of))] }

package sim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/pushlease/pushlease/internal/azurestandin"
	"github.com/pushlease/pushlease/queue"
)

// world is all that one run is made of.
type world struct {
	plan    *Plan
	begin   time.Time
	folder  string
	account *azurestandin.Server // nil with a file
	faults  *faults

	receivers map[string]*receiver
	addresses map[string]netip.Addr
	serving   sync.WaitGroup
	// unlucky are the dials and lookups that the plan made fail.
	unlucky []unlucky
	over    chan struct{}

	mu      sync.Mutex
	slots   []*instance
	started []int
	all     []*instance

	messages []*message
	byID     map[string]*message
	// pointers are the dead letters whose replays messages are, by the id of the message, others is what happened to
	// these, and to messages before anybody knew of them.
	pointers    map[string]string
	others      map[string][]messageEvent
	webhooks    map[string]*registered // by name
	registering map[string]bool        // by name, while a step does
	posts       []*post
	calls       []*call
	trace       []entry
	found       []Finding
	publish     []published
	shown       *shown
	purges      []purge
	sweeps      []*sweep
	changes     []*change
	// taken is whether another program has deleted a message.
	taken  bool
	ending bool
}

// unlucky is a dial or a lookup of an instance that the plan made fail.
type unlucky struct {
	webhook string
	inst    *instance
	at      time.Duration
}

// change is something that an operator did to a webhook's registration: from when on it was asked for until it was
// answered. A move has the new host, a filter has ended when it was taken away again, or is about to be.
type change struct {
	span
	webhook, what, host string
	ended               time.Duration
}

// purge is one deletion of dead letters: when, and what was there just before.
type purge struct {
	span
	listed []deadLetter
}

// sweep is one deletion of a queue: from when on the operator asked for it until it was answered.
type sweep struct {
	span
	queue string
	// messages are how many were on it, as the answer says, or more than there can be where an
	// answer was lost.
	messages int
}

// entry is one line of the trace.
type entry struct {
	at        time.Duration
	who, what string
}

// Finding is one thing that must not be.
type Finding struct {
	// Rule names what was broken; Text says how.
	Rule, Text string
}

func (f Finding) String() string { return f.Rule + ": " + f.Text }

// registered is what the operator knows of a webhook.
type registered struct {
	id string
	at time.Duration
	by *instance // that it was registered through; nil where its answer was lost
	// before is the one that it takes the place of.
	before *registered
	// deleting is when its deletion was first asked for, 0 for never.
	deleting time.Duration
	deleted  bool
}

// message is one message, as its sender and the account know it.
type message struct {
	n int
	// event is the id of the CloudEvents event that it carries; same is the message that
	// carried it first, or the message itself.
	event string
	same  *message
	queue string
	ttl   time.Duration
	sent  time.Duration
	delay time.Duration
	// keyed ones have a key, under which they may be published several times; again are the ids of the further messages
	// that this made.
	keyed bool
	again []string
	// newer ones carry a mark that nobody here can read, and must never be POSTed.
	newer bool
	// id is what storage called it; accepted is whether its sender was told so.
	id       string
	accepted bool
	put      bool // the account has it, or had it
	expires  time.Duration
	events   []messageEvent
}

// messageEvent is something that the account did with a message.
type messageEvent struct {
	at      time.Duration
	what    string
	inst    *instance // nil for another program
	by      *call     // of that instance
	visible time.Duration
}

// published is how long an accepted publish took, and its longest call.
type published struct {
	n         int
	inst      *instance
	from, end time.Duration
}

func newWorld(p *Plan, folder string) *world {
	w := &world{
		plan: p, begin: time.Now(), folder: folder, faults: &faults{plan: p}, over: make(chan struct{}),
		receivers: map[string]*receiver{}, addresses: map[string]netip.Addr{}, byID: map[string]*message{}, pointers: map[string]string{}, others: map[string][]messageEvent{},
		webhooks: map[string]*registered{}, registering: map[string]bool{}, slots: make([]*instance, p.Instances), started: make([]int, p.Instances),
	}
	for i, s := range p.Webhooks {
		w.receivers[s.Name] = &receiver{w: w, spec: s, mix: s.Mix, posts: map[int]int{}, told: map[[2]string]int{}, seen: map[string]bool{}}
		w.addresses[s.Name] = netip.AddrFrom4([4]byte{93, 184, byte(i >> 8), byte(i + 1)})
	}
	if !p.File {
		w.account = azurestandin.New(azurestandin.Options{
			Now: w.accountTime, Rand: rand.NewPCG(p.Seed, 1), Disorder: true, Deleting: 40 * time.Second, HidesToTheEnd: p.HidesToTheEnd, OnMessage: w.onMessage,
		})
	}
	return w
}

func (w *world) now() time.Duration { return time.Since(w.begin) }

func (w *world) accountTime() time.Time { return time.Now().Add(w.plan.Skew) }

// sinceBegin is when a time of the account was, here.
func (w *world) sinceBegin(t time.Time) time.Duration { return t.Sub(w.begin) - w.plan.Skew }

// environment is that of an instance.
func (w *world) environment(i *instance) []string {
	storage := azurestandin.InProcess
	if w.plan.File {
		storage = "sqlite:" + w.file()
	}
	env := []string{"PUSHLEASE_STORAGE=" + storage, "PUSHLEASE_DEV=true"}
	if w.plan.Hosted {
		env = append(env, hostedEnvironment()...)
	} else {
		env = append(env, "PUSHLEASE_INSTANCE="+i.name)
	}
	for name, value := range w.plan.Settings {
		env = append(env, "PUSHLEASE_"+name+"="+value)
	}
	return env
}

func (w *world) file() string { return filepath.Join(w.folder, "sim.db") }

func (w *world) note(who, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, entry{w.now(), who, what})
}

func (w *world) violate(rule, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, entry{w.now(), "FOUND", rule + ": " + text})
	w.found = append(w.found, Finding{rule, text})
}

// drew notes that a choice went wrong, so that the shrinker can leave it out.
func (w *world) drew(id string) {
	w.faults.mu.Lock()
	defer w.faults.mu.Unlock()
	w.faults.drawn = append(w.faults.drawn, id)
}

func (w *world) called(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, c)
}

// tookEffect is called when a call has taken effect, ended when its caller goes on, and lost
// when nobody waits for its answer any more.
func (w *world) tookEffect(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.applied = w.now()
}

func (w *world) ended(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.ended = w.now()
}

func (w *world) lost(c *call) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.fault = lost
}

func (w *world) posted(p *post) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.posts = append(w.posts, p)
	w.trace = append(w.trace, entry{w.now(), p.webhook, fmt.Sprintf("gets m%d attempt %d from %s: %s", p.n, p.attempt, p.inst.name, p.answer)})
}

// answered is called just before the answer is written to the wire.
func (w *world) answered(p *post, c *conn) {
	w.mu.Lock()
	p.answered = w.now()
	w.trace = append(w.trace, entry{w.now(), p.webhook, fmt.Sprintf("answers m%d of %s: %d", p.n, p.inst.name, p.status)})
	w.mu.Unlock()
	c.wire.mu.Lock()
	c.wire.answer = p
	c.wire.mu.Unlock()
}

// hungUp is called when the sender of a POST waits for its answer no longer.
func (w *world) hungUp(p *post) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.left = w.now()
}

// took is called when the sender has read an answer.
func (w *world) took(p *post) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p.taken = w.now()
}

// number is the message of an id, or -1.
func (w *world) number(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.byID[id]; m != nil {
		return m.n
	}
	return -1
}

// original is the message that first carried the event of another.
func (w *world) original(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n < 0 {
		return n
	}
	return w.messages[n].same.n
}

// newMessage makes a message that is about to be sent.
func (w *world) newMessage(s Step) *message {
	w.mu.Lock()
	defer w.mu.Unlock()
	event := s.Event
	m := &message{n: len(w.messages), queue: s.Queue, ttl: s.TTL, sent: w.now(), delay: s.Delay, keyed: s.Keyed}
	if s.Form == batch {
		event = fmt.Sprintf("batch-%d", m.n)
	}
	m.event, m.same = event, m
	for _, other := range w.messages {
		if event != "" && other.event == event {
			m.same = other
			break
		}
	}
	m.expires = m.ends()
	w.messages = append(w.messages, m)
	return m
}

// ends is when a message's life ends, as far as its sender knows.
func (m *message) ends() time.Duration { return m.sent + cmp.Or(m.ttl, 7*24*time.Hour) }

func (m *message) body() []byte {
	if m.event != "" {
		return fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"/sim","type":"sim","n":%d}`, m.event, m.same.n)
	}
	return fmt.Appendf(nil, `{"n":%d,"text":"message %d of %s"}`, m.n, m.n, m.queue)
}

// text is what another program puts on the queue.
func (m *message) text(form string) []byte {
	text := base64.StdEncoding.AppendEncode(nil, m.body())
	switch form {
	case wrapped:
		half := len(text) / 2
		return slices.Concat([]byte(" "), text[:half], []byte("\r\n\t"), text[half:], []byte("\n"))
	case newer:
		return fmt.Appendf(nil, `{"pushlease":99,"body":{"n":%d}}`, m.n)
	}
	return text
}

// sentAs is whether a message with this number was sent with these bytes.
func (w *world) sentAs(n int, body []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return n >= 0 && n < len(w.messages) && bytes.Equal(w.messages[n].body(), body)
}

func (w *world) accept(m *message, id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.id != "" && m.id != id { // an earlier try sent it too, and had no answer
		m.again = slices.DeleteFunc(append(m.again, m.id), func(other string) bool { return other == id })
	}
	if other := w.byID[id]; other != nil && other != m { // storage told of it first, and the text is that of another copy of its event
		other.again = slices.DeleteFunc(other.again, func(again string) bool { return again == id })
		if other.id == id {
			m.events, m.put = append(m.events, other.events...), true
			other.events, other.id, other.put = nil, "", false
			if !w.plan.File { // a file tells no ends
				m.expires, other.expires = other.expires, other.ends()
			}
		}
	}
	m.accepted, m.id = true, id
	w.byID[id] = m
}

// onMessage is told by the account what happened to a message.
func (w *world) onMessage(ctx context.Context, e azurestandin.MessageEvent) {
	c, _ := ctx.Value(callKey{}).(*call)
	w.mu.Lock()
	defer w.mu.Unlock()
	if e.What == "put" {
		if m := w.stored(e.ID, e.Queue, []byte(e.Text)); m != nil {
			m.expires = w.sinceBegin(e.Expires)
			if e.Expires.IsZero() {
				m.expires = 1 << 62
			}
		}
	}
	event := messageEvent{at: w.now(), what: e.What, visible: w.sinceBegin(e.Visible)}
	if c != nil {
		c.about = append(c.about, e.ID)
		event.inst, event.by = c.inst, c
	}
	w.happened(e.ID, event, fmt.Sprintf(", received %d times", e.Dequeues))
}

// stored notes that storage has a text under an id, and returns the message that was not known to be there
// until now. Of several copies that are sent at a time their senders tell which one it is. w.mu is held.
func (w *world) stored(id, queueName string, text []byte) *message {
	body, err := queue.Decode(queue.EncodingAuto, text)
	if err != nil {
		return nil
	}
	if body.Replay != nil {
		w.pointers[id] = body.Replay.DeadLetter
		return nil
	}
	var sent struct{ N *int }
	if json.Unmarshal(body.Bytes, &sent) != nil || sent.N == nil || *sent.N >= len(w.messages) {
		return nil
	}
	m := w.messages[*sent.N]
	if m.put && !m.keyed {
		m = w.unstored(m) // a copy of its event, which has its text
	}
	switch { // a copy of a dead letter is on another queue
	case m == nil, queueName != "" && m.queue != queueName:
		return nil
	case m.put:
		m.again = append(m.again, id)
		w.byID[id] = m
		return m
	}
	m.put, m.id = true, id
	w.byID[id] = m
	return m
}

// unstored is the first copy of a message's event of which storage has told nothing yet: its sender may never be answered; nil where
// there is none. w.mu is held.
func (w *world) unstored(first *message) *message {
	for _, m := range w.messages {
		if m.same == first && m.id == "" {
			return m
		}
	}
	return nil
}

// happened notes what happened to the message of an id. w.mu is held.
func (w *world) happened(id string, e messageEvent, more string) {
	who, what := "account", id
	if e.inst != nil {
		who = e.inst.name
	}
	if m := w.byID[id]; m != nil {
		m.events, what = append(m.events, e), fmt.Sprintf("m%d", m.n)
	} else {
		w.others[id] = append(w.others[id], e)
	}
	w.trace = append(w.trace, entry{w.now(), who, fmt.Sprintf("%s %s, hidden until %s%s", e.what, what, e.visible.Round(time.Millisecond), more)})
}

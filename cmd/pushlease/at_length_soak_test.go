//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/azuritetest"
)

const (
	soakLease       = 6 * time.Second
	soakConcurrency = 16
	// soakInFlight is the most messages that a process holds: those that it POSTs, those
	// that it settles, and those that only the slower of their webhooks are still at.
	soakInFlight = 2 * soakConcurrency
	soakAttempts = 4
)

// soak is two processes on one store, their receiver, and what was done to them.
type soak struct {
	t         *testing.T
	s         *store
	in        *soakReceiver
	queue     string
	hooks     map[string]hook // by path
	processes []*process
	random    *rand.Rand
	hurt      []hurt

	ids    []string
	bodies []soakBody
}

// hurt is a time in which one process was not itself: a moment for a kill.
type hurt struct{ from, to time.Time }

// Two processes share a queue while one of them is killed or paused every few seconds
// and, on Azurite, each fiftieth call of storage goes wrong. Nothing is lost, and what
// comes twice comes from a kill or a pause.
//
// SOAK_MESSAGES is how many messages there are on SQLite; Azurite, which takes about 350 in a second, has
// a tenth. SOAK_SEED picks another course.
func TestTwoProcessesKilledAndPausedKeepTheirBooks(t *testing.T) {
	t.Parallel()
	runSoak(t, sqliteStore(t), soakMessages(t))
}

func TestTwoProcessesOnAzureKilledAndPausedKeepTheirBooks(t *testing.T) {
	t.Parallel()
	runSoak(t, faultyStore(t), soakMessages(t)/10)
}

func soakMessages(t *testing.T) int { t.Helper(); return number(t, "SOAK_MESSAGES", 2000) }

func runSoak(t *testing.T, s *store, messages int) {
	seed := uint64(number(t, "SOAK_SEED", 1))
	k := &soak{t: t, s: s, queue: queueName("soak"), hooks: map[string]hook{}, random: rand.New(rand.NewPCG(seed, 2))}
	k.in = newSoakReceiver(t, soakLease+time.Second)
	k.processes = []*process{k.start(), k.start()}
	for _, path := range []string{"/first", "/second"} {
		k.hooks[path] = k.processes[0].register(k.queue, k.in.url+path, map[string]any{"timeout": "30s",
			"flow": map[string]any{"adaptive": false, "breaker": map[string]any{"enabled": false}},
			"policy": map[string]any{
				"max_attempts": soakAttempts, "backoff": map[string]any{"delays": []string{"1s"}, "jitter": 0}}})
	}
	for _, p := range k.processes {
		p.waitKnows(k.queue, len(k.hooks))
	}
	for n := range messages {
		b := soakBody{N: n, Scripts: map[string]script{}, Text: bodyMark}
		for _, path := range []string{"/first", "/second"} {
			b.Scripts[path] = pickScript(k.random)
		}
		k.bodies = append(k.bodies, b)
	}
	k.ids = k.processes[0].publishEach(k.queue, messages, func(n int) string {
		text, _ := json.Marshal(k.bodies[n]) // of strings and a number
		return string(text)
	})
	if s.proxy != nil {
		faultyWire(s.proxy, seed)
	}
	began := time.Now()
	close(k.in.gate)
	k.torment(max(6, messages/250))
	worked := time.Since(began)
	// Who is killed after it told others that its POST is under way keeps its message away until that must be
	// over: two POSTs of 30 s, the record, and a minute by which clocks may differ, 161 s in all (ADR 0058).
	k.waitEmpty(4 * time.Minute)
	if s.proxy != nil {
		s.proxy.Heal()
	}
	t.Logf("%d messages, %d kills and pauses in %s, empty after %s", messages, len(k.hurt), worked.Round(time.Second), time.Since(began).Round(time.Second))
	k.check()
}

// waitKnows waits until the process knows so many webhooks of the queue: one that was
// registered through another process is known when registry_refresh has passed.
func (p *process) waitKnows(queue string, webhooks int) {
	p.t.Helper()
	waitUntil(p.t, 20*time.Second, func() string {
		var q struct{ Poller *struct{ Webhooks int } }
		p.call(http.MethodGet, "/api/v1/queues/"+queue, "", http.StatusOK, &q)
		if q.Poller != nil && q.Poller.Webhooks == webhooks {
			return ""
		}
		return fmt.Sprintf("the poller is %+v, want one that knows %d webhooks", q.Poller, webhooks)
	})
}

// faultyWire lets two in a hundred calls of storage go wrong: half of them before they
// take effect, of the other half only the answer is lost.
func faultyWire(proxy *azuritetest.Proxy, seed uint64) {
	for i, f := range []struct {
		rate  float64
		fault azuritetest.Fault
	}{{0.005, azuritetest.Throttle()}, {0.005, azuritetest.CutBefore()}, {0.01, azuritetest.FailAfter()}} {
		proxy.Fault(azuritetest.Match{Rate: f.rate, Seed: seed + uint64(i)}, f.fault)
	}
}

func (k *soak) start() *process {
	k.t.Helper()
	return k.s.start(k.t, "PUSHLEASE_LEASE="+soakLease.String(), "PUSHLEASE_CONCURRENCY="+strconv.Itoa(soakConcurrency),
		"PUSHLEASE_MAX_IN_FLIGHT="+strconv.Itoa(soakInFlight))
}

// torment kills or pauses one of the processes so many times, spread over the work.
func (k *soak) torment(times int) {
	k.t.Helper()
	deliveries := 2 * len(k.ids)
	for n := 1; n <= times; n++ {
		waitUntil(k.t, 2*time.Minute, func() string {
			if got, want := k.in.count(), n*deliveries*9/10/(times+1); got < want {
				return fmt.Sprintf("%d POSTs, want %d", got, want)
			}
			return ""
		})
		which := k.random.IntN(len(k.processes))
		if n%4 == 0 {
			k.pause(k.processes[which])
			continue
		}
		k.processes[which].kill()
		k.hurt = append(k.hurt, hurt{time.Now(), time.Now()})
		k.processes[which] = k.start()
	}
}

// pause stops a process for longer than its leases last, as a machine does that is out
// of memory. It comes back and does not know.
func (k *soak) pause(p *process) {
	k.t.Helper()
	from := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		k.t.Fatalf("SIGSTOP: %v", err)
	}
	<-time.NewTimer(soakLease + time.Second).C
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		k.t.Fatalf("SIGCONT: %v", err)
	}
	k.hurt = append(k.hurt, hurt{from, time.Now()})
}

// waitEmpty waits until nothing is left on the queue, for as long as it gets less within
// bound: how fast a store is depends on the machine. Otherwise it says what is left.
func (k *soak) waitEmpty(bound time.Duration) {
	k.t.Helper()
	deadline, least := time.Now().Add(bound), len(k.ids)+1
	waitUntil(k.t, 30*time.Minute, func() string {
		var q struct{ Depth *struct{ Total int } }
		a, err := k.processes[0].try(http.MethodGet, "/api/v1/queues/"+k.queue, "", "")
		if err != nil || a.status != http.StatusOK || json.Unmarshal(a.body, &q) != nil || q.Depth == nil {
			return fmt.Sprintf("the queue can't be counted: %v, status %d", err, a.status) // a fault of storage
		}
		left := q.Depth.Total
		if left == 0 {
			return ""
		}
		if left < least {
			deadline, least = time.Now().Add(bound), left
		}
		if time.Now().After(deadline) {
			k.t.Logf("not finished:\n%s", strings.Join(k.unfinished(k.read()), "\n"))
			k.t.Fatalf("%d messages are left, and in %s it got no less", left, bound)
		}
		return fmt.Sprintf("%d messages are left", left)
	})
}

// unfinished are the timelines, at most five, of messages that have not ended.
func (k *soak) unfinished(all map[soakKey]soakDelivery) (found []string) {
	for key, d := range all {
		if d.next.State == "delivered" || d.next.State == "dead_lettered" || len(found) == 5 {
			continue
		}
		if a, err := k.processes[0].try(http.MethodGet, "/api/v1/messages/"+key.id+"?queue="+k.queue, "", ""); err == nil {
			found = append(found, key.path+" "+string(a.body))
		}
	}
	return found
}

// soakDelivery is a delivery as the records tell it.
type soakDelivery struct {
	next    e2eNext
	ends    int // events that it was delivered or dead-lettered
	verdict int // attempts with one
	redials int
	charged int
	took    int // attempts that say that the webhook has taken the message
}

// read reads the timelines of all messages, and returns the deliveries by message and
// path.
func (k *soak) read() map[soakKey]soakDelivery {
	k.t.Helper()
	all := map[soakKey]soakDelivery{}
	var mu sync.Mutex
	var work sync.WaitGroup
	next := make(chan string)
	for i := range 16 {
		work.Go(func() {
			for id := range next {
				tl, err := k.processes[i%2].timeline(k.queue, id)
				mu.Lock()
				if err != nil {
					k.t.Errorf("message %s is lost from the records: %v", id, err)
				}
				for path, h := range k.hooks {
					all[soakKey{path, id}] = deliveryOf(tl, h.ID)
				}
				mu.Unlock()
			}
		})
	}
	for _, id := range k.ids {
		next <- id
	}
	close(next)
	work.Wait()
	return all
}

func deliveryOf(tl e2eTimeline, webhookID string) (d soakDelivery) {
	for _, n := range tl.Next {
		if n.WebhookID == webhookID {
			d.next = n
		}
	}
	for _, e := range tl.Events {
		switch {
		case e.WebhookID != webhookID:
		case e.Event == "delivered" || e.Event == "dead_lettered":
			d.ends++
		case e.Attempt != nil:
			d.redials += e.Attempt.Redials
			if e.Attempt.Action != "no-verdict" {
				d.verdict++
			}
			if e.Attempt.Charged {
				d.charged++
			}
			if e.Attempt.Action == "complete" {
				d.took++
			}
		}
	}
	return d
}

// check holds what the receiver got, the records and the dead letters against each other.
func (k *soak) check() {
	k.t.Helper()
	// Records that wait in memory because of a fault come within seconds.
	var deliveries map[soakKey]soakDelivery
	deadline := time.Now().Add(30 * time.Second)
	waitUntil(k.t, 2*time.Minute, func() string {
		deliveries = k.read()
		left := k.unfinished(deliveries)
		if len(left) > 0 && time.Now().After(deadline) {
			k.t.Fatalf("nothing is left on the queue, but these are not finished:\n%s", strings.Join(left, "\n"))
		}
		return strings.Join(left, "\n")
	})
	var delivered, dead, twice, unrecorded, recordedTwice int
	for n, id := range k.ids {
		for path := range k.hooks {
			s, d := k.bodies[n].Scripts[path], deliveries[soakKey{path, id}]
			posts, taken := k.in.of(path, id)
			state, reason := s.end()
			if d.next.State != state || reason != "" && d.next.Reason != reason || d.ends != 1 {
				k.t.Errorf("message %s, %q at %s, ended as %+v, %d times", id, s, path, d.next, d.ends)
			}
			if d.next.State == "delivered" {
				delivered++
			} else {
				dead++
			}
			if (state == "delivered") != (len(taken) > 0) || d.took > len(taken) || d.verdict > len(posts) {
				k.t.Errorf("message %s, %q at %s: %d POSTs, %d taken, the records say %+v", id, s, path, len(posts), len(taken), d)
			}
			unknowing := k.unknowing(posts)
			if s == alwaysBusy && d.charged < soakAttempts || d.charged > soakAttempts+unknowing {
				k.t.Errorf("message %s, %q at %s: %d attempts are charged of %d, and %d were made by one who could not know of the one before",
					id, s, path, d.charged, soakAttempts, unknowing)
			}
			unrecorded += max(0, len(posts)-d.verdict-d.redials)
			recordedTwice += max(0, d.took-1)
			twice += max(0, len(taken)-1)
			for i := 1; i < len(taken); i++ {
				k.explain(id, path, s, taken[i-1], taken[i])
			}
		}
	}
	if got := len(k.ids) * len(k.hooks); delivered+dead != got {
		k.t.Errorf("%d delivered and %d dead-lettered are not %d", delivered, dead, got)
	}
	bound := len(k.hurt) * soakInFlight * len(k.hooks)
	if twice > bound || unrecorded > bound {
		k.t.Errorf("%d taken twice and %d POSTs without a record: kills and pauses explain at most %d", twice, unrecorded, bound)
	}
	k.t.Logf("%d delivered, %d dead letters; of %d POSTs %d were taken again (%d of them on record twice) and %d have no record; the bound is %d",
		delivered, dead, k.in.count(), twice, recordedTwice, unrecorded, bound)
	k.checkDeadLetters(dead, bound)
}

// answerToRecordSoak is more than a record takes while storage has faults and the machine
// is busy: tries again come after less than a second.
const answerToRecordSoak = 3 * time.Second

// between: it can have come between the answer to the first POST and its record.
func (h hurt) between(first, second soakPost) bool {
	return h.to.After(first.began) && h.from.Before(first.ended.Add(answerToRecordSoak)) && h.from.Before(second.ended)
}

// unknowing are the POSTs whose holder could not know of the one before: a pause of the holder
// before came between its answer and its record. That record is written when the pause is over, so
// both are on record. After a kill there is none.
func (k *soak) unknowing(posts []soakPost) (n int) {
	for i := 1; i < len(posts); i++ {
		if slices.ContainsFunc(k.hurt, func(h hurt) bool { return h.to.After(h.from) && h.between(posts[i-1], posts[i]) }) {
			n++
		}
	}
	return n
}

// explain fails the test for a second success that no kill or pause explains: one that
// fell between the beginning of the first one's POST and its record.
func (k *soak) explain(id, path string, s script, first, second soakPost) {
	k.t.Helper()
	if slices.ContainsFunc(k.hurt, func(h hurt) bool { return h.between(first, second) }) {
		return
	}
	k.t.Errorf("message %s, %q at %s, was taken at %s (POSTed at %s) and again at %s, with no kill and no pause in between",
		id, s, path, clock(first.ended), clock(first.began), clock(second.ended))
}

// checkDeadLetters: there is one for each delivery that was given up, and no other.
func (k *soak) checkDeadLetters(want, bound int) {
	k.t.Helper()
	p := k.processes[0]
	rows := p.deadLetters(k.queue, "")
	if len(rows) != want {
		k.t.Errorf("%d dead letters, want %d", len(rows), want)
	}
	byDelivery := map[soakKey]int{}
	for _, d := range rows {
		for path, h := range k.hooks {
			if h.ID != d.WebhookID {
				continue
			}
			byDelivery[soakKey{path, d.MessageID}]++
			n := slices.Index(k.ids, d.MessageID)
			if n < 0 {
				k.t.Errorf("a dead letter of an unknown message: %+v", d)
				continue
			}
			s := k.bodies[n].Scripts[path]
			if _, reason := s.end(); reason == "" || d.Reason != reason || d.Status != "waiting" {
				k.t.Errorf("message %s, %q at %s: the dead letter is %+v", d.MessageID, s, path, d)
			}
		}
	}
	for key, n := range byDelivery {
		if n > 1 {
			k.t.Errorf("%v has %d dead letters", key, n)
		}
	}
	if len(byDelivery) != want {
		k.t.Errorf("%d deliveries have a dead letter, want %d", len(byDelivery), want)
	}
	// A message is copied once, whoever gave it up, and again when a kill hides that it was.
	messages := map[string]bool{}
	for key := range byDelivery {
		messages[key.id] = true
	}
	if copies := p.depth(k.queue + "-poison"); copies < len(messages) || copies > len(messages)+bound {
		k.t.Errorf("%d copies of %d messages in the poison queue", copies, len(messages))
	}
}

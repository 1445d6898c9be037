package sim

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mix are the shares of POSTs that a receiver answers in each way; the rest is 200 at once.
type Mix struct {
	// Fail answers 500, Busy 503 with a Retry-After, Final 400, Late a 2xx after up to 20 s,
	// Silent nothing until the sender gives up, Reset breaks the connection without doing
	// anything, Undone breaks it when the message has been taken, Early answers 2xx before
	// the body has come, Extra sends bytes after its answer, Cut a 2xx whose body breaks off.
	Fail, Busy, Final, Late, Silent, Reset, Undone, Early, Extra, Cut float64
	// Stall answers a 2xx whose body never ends, Redirect 302 with the address of somebody else, Gone 410.
	Stall, Redirect, Gone float64
	// Down refuses connections, NoName has no address, and Inward has only ones that lead inwards.
	Down, NoName, Inward float64
	// FailFirst and FinalFirst answer 500 or 400 to the first POST of each message.
	FailFirst, FinalFirst bool
	// Hang keeps every POST until the sender gives up.
	Hang bool
	// Limit is how many POSTs a second are taken; those beyond are answered 429.
	Limit float64
	// Patient names a longer wait in a second Retry-After of Busy, which counts.
	Patient bool
	// LateMin and LateMax are how late Late is.
	LateMin, LateMax time.Duration
}

// receiver is the model behind one webhook.
type receiver struct {
	w    *world
	spec Webhook

	mu     sync.Mutex
	healed bool
	posts  map[int]int // by message
	// told are how many dead letters it was told of, by queue and webhook, and seen the events by which it was.
	told  map[[2]string]int
	seen  map[string]bool
	dials int
	mix   Mix
	// tokens are what Limit leaves, as of filled.
	tokens float64
	filled time.Duration
}

// post is one POST that a receiver saw.
type post struct {
	webhook   string
	host      string
	n         int // the message's number
	id        string
	attempt   int
	inst      *instance
	at        time.Duration
	answer    string        // the way in which it was answered
	status    int           // 0 for none
	asked     time.Duration // the wait that the answer named
	answered  time.Duration
	taken     time.Duration // when the sender read the answer's head; 0 for never
	left      time.Duration // when the sender gave it up; 0 for never
	connected int
}

func (r *receiver) way(n int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.posts[n]++
	if r.healed {
		return "ok"
	}
	m := r.mix
	if m.Limit > 0 && !r.takes() {
		return "limit"
	}
	switch first := r.posts[n] == 1; {
	case m.Hang:
		return "silent"
	case m.FailFirst && first:
		return "fail"
	case m.FinalFirst && first:
		return "final"
	}
	id := fmt.Sprintf("%s/post/%d/%d", r.spec.Name, n, r.posts[n])
	x := r.w.plan.draw(id)
	for _, k := range []struct {
		way   string
		share float64
	}{
		{"fail", m.Fail}, {"busy", m.Busy}, {"final", m.Final}, {"late", m.Late}, {"silent", m.Silent}, {"reset", m.Reset},
		{"undone", m.Undone}, {"early", m.Early}, {"extra", m.Extra}, {"cut", m.Cut}, {"stall", m.Stall}, {"redirect", m.Redirect}, {"gone", m.Gone},
	} {
		if x -= k.share; x < 0 {
			if !r.w.plan.kept(id) {
				return "ok"
			}
			r.w.drew(id)
			return k.way
		}
	}
	return "ok"
}

// takes is whether the limit has room for one more. r.mu is held.
func (r *receiver) takes() bool {
	now, most := r.w.now(), max(r.mix.Limit, 1)
	r.tokens = min(most, r.tokens+(now-r.filled).Seconds()*r.mix.Limit)
	r.filled = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}

// serve answers the POSTs of one connection, until it ends.
func (r *receiver) serve(c *conn, inst *instance) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for i := 0; ; i++ {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		p := &post{
			webhook: r.spec.Name, host: req.Host, n: -1, id: req.Header.Get("webhook-id"), inst: inst, connected: i,
		}
		p.attempt, _ = strconv.Atoi(req.Header.Get("pushlease-attempt"))
		p.n = r.w.original(r.w.number(p.id))
		way := r.way(p.n)
		if way == "early" {
			r.saw(p, way)
			if !r.answer(p, c, 200, "early") {
				return
			}
		}
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return // it broke off: the message was not seen
		}
		if r.spec.Told {
			r.hears(body)
			if !r.answer(p, c, 200, "ok") {
				return
			}
			continue
		}
		var text struct{ N *int }
		if json.Unmarshal(body, &text) != nil || text.N == nil || !r.w.sentAs(*text.N, body) {
			r.w.violate("bytes", fmt.Sprintf("%s got a body that nobody sent: %.80q", r.spec.Name, body))
			return
		}
		if way != "early" {
			p.n = *text.N
			r.saw(p, way)
		} else if p.n != *text.N {
			p.n = *text.N
		}
		if !r.respond(p, c, way) {
			return
		}
		if req.Close {
			return
		}
	}
}

// hears counts what an event tells of.
func (r *receiver) hears(body []byte) {
	var e struct {
		ID, Type string
		Data     struct {
			Queue     string
			WebhookID string `json:"webhook_id"`
			Count     int
		}
	}
	if json.Unmarshal(body, &e) != nil || e.ID == "" || e.Data.Queue == r.spec.Queue {
		r.w.violate("told", fmt.Sprintf("%s got what is no event about others: %.200q", r.spec.Name, body))
		return
	}
	r.w.note(r.spec.Name, fmt.Sprintf("is told of %d %s on %s for %s", e.Data.Count, e.Type, e.Data.Queue, e.Data.WebhookID))
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.seen[e.ID] && e.Type == "pushlease.dead_letter" {
		r.told[[2]string{e.Data.Queue, e.Data.WebhookID}] += e.Data.Count
	}
	r.seen[e.ID] = true
}

func (r *receiver) saw(p *post, way string) {
	p.at, p.answer = r.w.now(), way
	r.w.posted(p)
}

// respond is false when the connection is over.
func (r *receiver) respond(p *post, c *conn, way string) bool {
	switch way {
	case "early":
		return true
	case "fail":
		return r.answer(p, c, 500, "no")
	case "busy":
		return r.answer(p, c, 503, "later")
	case "limit":
		return r.answer(p, c, 429, "too many")
	case "final":
		return r.answer(p, c, 400, "never")
	case "redirect":
		return r.answer(p, c, 302, "elsewhere")
	case "gone":
		return r.answer(p, c, 410, "gone")
	case "late":
		if !r.wait(c, r.w.plan.between(r.mix.LateMin, r.mix.LateMax, "late", p.webhook, p.n, p.attempt)) {
			r.w.hungUp(p)
			return false
		}
		return r.answer(p, c, 200, "late")
	case "silent":
		if !r.wait(c, time.Hour) {
			r.w.hungUp(p)
		}
		return false
	case "reset", "undone":
		c.Reset()
		return false
	case "extra":
		if !r.answer(p, c, 200, "ok") {
			return false
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		return true
	case "cut", "stall":
		p.status = 200
		r.w.answered(p, c)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
		if way == "stall" && !r.wait(c, time.Hour) {
			r.w.hungUp(p)
		}
		return false
	}
	return r.answer(p, c, 200, "ok")
}

func (r *receiver) answer(p *post, c *conn, status int, text string) bool {
	header := ""
	if status == 503 {
		header, p.asked = "Retry-After: 2\r\n", 2*time.Second
		if r.mix.Patient {
			header, p.asked = header+"Retry-After: 25\r\n", 25*time.Second
		}
	}
	if status == http.StatusFound {
		header = "Location: http://" + elsewhere + "/\r\n"
	}
	p.status = status
	r.w.answered(p, c)
	_, err := fmt.Fprintf(c, "HTTP/1.1 %d %s\r\n%sContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s",
		status, http.StatusText(status), header, len(text), text)
	return err == nil
}

// wait is false when the sender has gone meanwhile.
func (r *receiver) wait(c *conn, d time.Duration) bool {
	until := time.Now().Add(d)
	for {
		c.wire.mu.Lock()
		over := c.wire.reset || c.wire.ways[c.end].closed
		changed := c.wire.changed
		c.wire.mu.Unlock()
		if over {
			return false
		}
		t := time.NewTimer(time.Until(until))
		select {
		case <-t.C:
			return true
		case <-changed:
		case <-r.w.over:
			t.Stop()
			return false
		}
		t.Stop()
	}
}

// resolver and dialer are how one instance reaches the receivers.
type network struct {
	w    *world
	inst *instance
}

func (r *receiver) unlucky(inst *instance, what string, share float64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.healed || share == 0 {
		return false
	}
	r.dials++
	id := fmt.Sprintf("%s/%s/%d", r.spec.Name, what, r.dials)
	if r.w.plan.draw(id) >= share || !r.w.plan.kept(id) {
		return false
	}
	r.w.drew(id)
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.w.unlucky = append(r.w.unlucky, unlucky{r.spec.Name, inst, r.w.now()})
	return true
}

// LookupNetIP implements webhook.Resolver: each receiver has an address of its own.
func (n network) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	if err := n.inst.gate.pass("resolve"); err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(strings.TrimSuffix(host, ".example"), ".") // a webhook that was moved has a longer one
	r := n.w.receivers[name]
	if host == elsewhere {
		n.w.violate("followed", "a redirect to "+host)
	}
	if r != nil && r.unlucky(n.inst, "inward", r.mix.Inward) {
		return inward, nil
	}
	if r == nil || r.unlucky(n.inst, "name", r.mix.NoName) {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	addr := n.w.addresses[r.spec.Name]
	if n.w.plan.Behind64 {
		four := addr.As4()
		addr = netip.AddrFrom16([16]byte{0, 0x64, 0xff, 0x9b, 12: four[0], four[1], four[2], four[3]})
	}
	return []netip.Addr{addr}, nil
}

// elsewhere is where redirects lead, and inward where a wrong name does: nobody may go there.
const elsewhere = "elsewhere.example"

var inward = []netip.Addr{netip.MustParseAddr("169.254.169.254"), netip.IPv4Unspecified(), netip.MustParseAddr("64:ff9b::a9fe:a9fe")}

var errNobody = errors.New("nobody listens there")

// DialContext implements webhook.DialFunc.
func (n network) DialContext(_ context.Context, _, address string) (net.Conn, error) {
	if err := n.inst.gate.pass("dial"); err != nil {
		return nil, err
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	to := at.Addr()
	if b := to.As16(); n.w.plan.Behind64 && to.Is6() {
		to = netip.AddrFrom4([4]byte(b[12:]))
	}
	for name, a := range n.w.addresses {
		if a != to {
			continue
		}
		r := n.w.receivers[name]
		if r.unlucky(n.inst, "dial", r.mix.Down) {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		near, far := newWire([2]net.Addr{loopback(50000), net.TCPAddrFromAddrPort(at)})
		n.w.serving.Go(func() { r.serve(far, n.inst) })
		return n.inst.gate.guard(near), nil
	}
	n.w.violate("inward", n.inst.name+" dials "+address+", which no receiver has")
	return nil, errNobody
}

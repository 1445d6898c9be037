package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pushlease/pushlease/webhook"
)

// scene is one webhook on a queue of its own, one message for it, and how both
// should end.
type scene struct {
	queue, story, body string
	// script answers the message's POSTs in turn.
	script []reply
	// What it should come to.
	wantState string
	wantPosts int

	secret    string
	receiver  *receiver
	webhookID string
	messageID string
	state     string
	renewals  string
}

func demoScenes() []*scene {
	scenes := []*scene{
		{queue: "orders", story: "answered 200 at once", body: `{"order":1}`,
			script: []reply{{Status: 200}}, wantState: "delivered", wantPosts: 1},
		{queue: "invoices", story: "answered 503 with Retry-After: 2, then 200", body: `{"invoice":17}`,
			script: []reply{{Status: 503, RetryAfter: "2"}, {Status: 200}}, wantState: "delivered", wantPosts: 2},
		{queue: "refunds", story: "refused with 400", body: `{"refund":-5}`,
			script: []reply{{Status: 400, Body: "amount must be positive"}, {Status: 200}}, wantState: "dead_lettered", wantPosts: 1},
		{queue: "reports", story: "takes 7 s, longer than two leases", body: `{"report":"year"}`,
			script: []reply{{Status: 200, Delay: 7 * time.Second}}, wantState: "delivered", wantPosts: 1},
	}
	for _, s := range scenes {
		s.secret = webhook.NewSecret(time.Now()).Key
		s.receiver = newReceiver(receiverOptions{Secrets: []string{s.secret}, Script: s.script})
	}
	return scenes
}

// demo plays all scenes at once.
type demo struct {
	out         io.Writer
	api         *client
	started     time.Time
	receiverURL string
	scenes      []*scene
}

func (d *demo) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(d.out, format, args...) // nobody is left to be told that the terminal is gone
}

func (d *demo) receivers() http.Handler {
	mux := http.NewServeMux()
	for _, s := range d.scenes {
		mux.Handle("/"+s.queue, s.receiver)
	}
	return mux
}

// play registers, publishes and follows; the error says what did not end as it
// should.
func (d *demo) play(ctx context.Context) error {
	for _, s := range d.scenes {
		if err := d.begin(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s.queue, err)
		}
	}
	d.printf("\n")
	if err := d.follow(ctx); err != nil {
		return err
	}
	errs := make([]error, len(d.scenes))
	for i, s := range d.scenes {
		errs[i] = d.check(ctx, s)
	}
	return errors.Join(errs...)
}

// begin registers the scene's webhook and publishes its message, as curl would.
func (d *demo) begin(ctx context.Context, s *scene) error {
	registration, err := json.Marshal(map[string]any{
		"queue": s.queue, "url": d.receiverURL + "/" + s.queue, "name": "demo " + s.queue, "secret": s.secret,
		"policy": map[string]any{"backoff": map[string]any{"initial": "1s"}},
	})
	if err != nil {
		return err
	}
	a, err := d.api.do(ctx, request{method: http.MethodPost, path: "/api/v1/webhooks", body: registration,
		header: map[string]string{"Content-Type": "application/json"}})
	if err != nil {
		return err
	}
	var w struct {
		ID string `json:"id"`
	}
	if err := a.into(&w); err != nil {
		return err
	}
	a, err = d.api.do(ctx, request{method: http.MethodPost, path: "/api/v1/queues/" + s.queue + "/messages", body: []byte(s.body),
		header: map[string]string{"Content-Type": "application/json"}})
	if err != nil {
		return err
	}
	var m struct {
		MessageID string `json:"message_id"`
	}
	if err := a.into(&m); err != nil {
		return err
	}
	s.webhookID, s.messageID = w.ID, m.MessageID
	d.printf("  %-8s  webhook %s, message %s (%s)\n", s.queue, s.webhookID, s.messageID, s.story)
	return nil
}

// news is what is new about a scene.
type news struct {
	scene *scene
	event timelineEvent
}

// follow prints what happens to the messages, in the order and at the time in which it is
// seen, until nothing more happens by itself to any of them.
func (d *demo) follow(ctx context.Context) error {
	var errs []error
	seen, open := map[news]bool{}, slices.Clone(d.scenes)
	for {
		var fresh []news
		open = slices.DeleteFunc(open, func(s *scene) bool {
			show := messagesShow{client: *d.api, queue: s.queue}
			_, t, err := show.read(ctx, s.messageID)
			if err != nil && !temporary(err) {
				errs = append(errs, fmt.Errorf("%s: %w", s.queue, err))
				return true
			}
			for _, e := range t.Events {
				if n := (news{s, e}); !seen[n] {
					seen[n], fresh = true, append(fresh, n)
				}
			}
			return s.ended(t)
		})
		d.tell(fresh)
		if len(open) == 0 {
			return errors.Join(errs...)
		}
		select {
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("%s: not settled in time", open[0].queue))...)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// tell prints what was seen at one moment. An attempt is seen when it has ended, however
// long before it began.
func (d *demo) tell(fresh []news) {
	slices.SortStableFunc(fresh, func(x, y news) int { return x.event.At.Compare(y.event.At) })
	now := time.Since(d.started).Seconds()
	for _, n := range fresh {
		d.printf("  %5.1fs  %-8s  %-13s  %s\n", now, n.scene.queue, oneLine(n.event.Event), oneLine(n.event.Text))
	}
}

// ended reports whether nothing more happens by itself, and notes where the message stands.
func (s *scene) ended(t timeline) bool {
	for _, n := range t.Next {
		if n.WebhookID == s.webhookID {
			s.state = n.State
		}
	}
	return t.settled()
}

// check compares how a scene ended with how it should.
func (d *demo) check(ctx context.Context, s *scene) error {
	s.renewals = d.metric(ctx, "pushlease_lease_renewals_total", `queue="`+s.queue+`"`, `result="renewed"`)
	got := s.receiver.Totals()
	switch {
	case s.state != s.wantState:
		return fmt.Errorf("%s: ended as %q, want %q", s.queue, s.state, s.wantState)
	case got.Requests != s.wantPosts:
		return fmt.Errorf("%s: %d POSTs, want %d", s.queue, got.Requests, s.wantPosts)
	case got.BadSignatures > 0:
		return fmt.Errorf("%s: %d POSTs with a bad signature", s.queue, got.BadSignatures)
	case got.Duplicates > 0:
		return fmt.Errorf("%s: %d POSTs after a success", s.queue, got.Duplicates)
	}
	return d.waitEmpty(ctx, s)
}

// waitEmpty waits for the message to leave its queue: that comes after the record
// which the timeline shows.
func (d *demo) waitEmpty(ctx context.Context, s *scene) error {
	for {
		a, err := d.api.do(ctx, request{method: http.MethodGet, path: "/api/v1/queues/" + url.PathEscape(s.queue)})
		if err != nil {
			return fmt.Errorf("%s: %w", s.queue, err)
		}
		var q struct {
			Depth *struct {
				Total int64 `json:"total"`
			} `json:"depth"`
		}
		if err := a.into(&q); err != nil {
			return err
		}
		if q.Depth != nil && q.Depth.Total == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: the message did not leave its queue", s.queue)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// metric reads one value from /metrics; "0" when the series is not there yet.
func (d *demo) metric(ctx context.Context, name string, labels ...string) string {
	a, err := d.api.do(ctx, request{method: http.MethodGet, path: "/metrics"})
	if err != nil {
		return "?"
	}
	for lines := bufio.NewScanner(bytes.NewReader(a.body)); lines.Scan(); {
		series, value, ok := strings.Cut(lines.Text(), "} ")
		found := ok && strings.HasPrefix(series, name+"{")
		for _, l := range labels {
			found = found && strings.Contains(series, l)
		}
		if found {
			return value
		}
	}
	return "0"
}

func (d *demo) summary(failed error) {
	var rows [][]string
	for _, s := range d.scenes {
		rows = append(rows, []string{s.queue, s.story, s.state, fmt.Sprint(s.receiver.Totals().Requests), s.renewals})
	}
	d.printf("\n")
	_ = table(d.out, []string{"QUEUE", "STORY", "ENDED AS", "POSTS", "LEASE RENEWALS"}, rows) // see printf
	if failed != nil {
		d.printf("\nNot everything ended as it should:\n%s\n", clean(failed.Error()))
		return
	}
	d.printf("\nEverything ended as it should: every signature verified, no message POSTed after its 2xx, all queues with webhooks empty.\n")
}

// invite prints lines that work when they are pasted.
func (d *demo) invite() {
	server, _, err := d.api.target()
	if err != nil {
		return
	}
	refused := d.scenes[2]
	d.printf(`
The server stays up until Ctrl-C. See it all in a browser: %[1]s/ui/

Or paste into another terminal:

  # what is registered, and what is waiting as a dead letter
  curl -s %[1]s/api/v1/webhooks
  curl -s '%[1]s/api/v1/dead-letters?queue=%[2]s'

  # why? the timeline of the refused message
  curl -s %[1]s/api/v1/messages/%[3]s

  # send the refused message again (the receiver now takes what it refused before)
  curl -s -X POST "%[1]s/api/v1/dead-letters/$(curl -s '%[1]s/api/v1/dead-letters?queue=%[2]s' | grep -o '"id": *"[^"]*"' | head -1 | cut -d'"' -f4)/replay"

  # publish another message
  curl -s -X POST %[1]s/api/v1/queues/orders/messages -H 'Content-Type: application/json' -d '{"order":2}'

  # the last attempts, and the metrics
  curl -s '%[1]s/api/v1/attempts?limit=5'
  curl -s %[1]s/metrics | grep ^pushlease_
`, server, refused.queue, refused.messageID)
}

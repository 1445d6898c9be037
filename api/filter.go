package api

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/pushlease/pushlease/api/internal/publish"
	"github.com/pushlease/pushlease/api/internal/web"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook/content"
)

func (e *editor) filter(raw json.RawMessage) {
	f, problems := content.OverlayFilter(e.reg.Filter, raw)
	for _, p := range problems {
		field := "filter"
		if p.Field != "" {
			field += "." + p.Field
		}
		e.fail(field, p.Problem, p.Cure)
	}
	if len(problems) == 0 {
		e.reg.Filter = f
	}
}

func (e *editor) format(raw json.RawMessage) {
	if web.IsNull(raw) {
		e.reg.Format = ""
		return
	}
	var name string
	if !e.read("format", raw, &name) {
		return
	}
	f, err := content.ParseFormat(name)
	if err != nil {
		e.refuse("format", err)
		return
	}
	e.reg.Format = f
}

// httpVersion says whether HTTP/2 is offered to the receiver.
func (e *editor) httpVersion(raw json.RawMessage) {
	version := httpAuto
	if !web.IsNull(raw) && !e.read("http_version", raw, &version) {
		return
	}
	if version != httpAuto && version != http11 {
		e.fail("http_version", "is not one that there is", e.cureOf("http_version"))
		return
	}
	e.reg.HTTP1 = version == http11
}

// The values of http_version.
const (
	httpAuto = "auto"
	http11   = "1.1"
)

func httpVersionOf(reg tables.Registration) string {
	if reg.HTTP1 {
		return http11
	}
	return httpAuto
}

// checkFormat refuses headers that the format would leave out, or the format, where that was sent and
// the header was there before.
func (e *editor) checkFormat(in web.Fields) {
	_, formatSent := in["format"]
	var given web.Fields
	_ = json.Unmarshal(in["headers"], &given) // what is no object is refused already
	for _, name := range slices.Sorted(maps.Keys(e.reg.Headers)) {
		if e.reg.Format.Keeps(name) {
			continue
		}
		sent := slices.ContainsFunc(given.Names(), func(header string) bool { return strings.EqualFold(header, name) })
		if formatSent && !sent {
			e.fail("format", fmt.Sprintf("can't be %s: the webhook has the header %s, which that format sets by itself", e.reg.Format, web.ShownName(name)), "take the header away too (null), or set format to raw")
			continue
		}
		e.fail("headers."+web.ShownName(name), "can't be sent in the format "+string(e.reg.Format)+", which sets it by itself", "take the header away (null), or set format to raw")
	}
}

// matchView says what would become of a message.
type matchView struct {
	Queue string `json:"queue"`
	// Event is null for a message that is no CloudEvents event.
	Event *eventView `json:"event"`
	// Outcome is delivered, held, unmatched or dead-lettered.
	Outcome  string         `json:"outcome"`
	Text     string         `json:"text"`
	Webhooks []webhookMatch `json:"webhooks"`
}

type eventView struct {
	ID      string `json:"id"`
	Source  string `json:"source"`
	Type    string `json:"type"`
	Subject string `json:"subject,omitempty"`
}

type webhookMatch struct {
	WebhookID string `json:"webhook_id"`
	Name      string `json:"name,omitempty"`
	Enabled   bool   `json:"enabled"`
	Takes     bool   `json:"takes"`
	Reason    string `json:"reason"`
}

// match says which webhooks would take a message. Nothing is published.
func (a *API) match(w http.ResponseWriter, r *http.Request) error {
	name, badQueue := web.QueueParam(r)
	badQuery := web.ReadQuery(r).Err()
	read, err := publish.ReadOne(w, r)
	if err = web.Together(badQueue, badQuery, err); err != nil {
		return err
	}
	all, bad, err := a.Webhooks.ListWebhooks(r.Context())
	if err != nil {
		return web.StorageFault("read the webhooks", err)
	}
	all = slices.DeleteFunc(all, func(reg tables.Registration) bool { return reg.Queue != name })
	unreadable := slices.ContainsFunc(bad, func(e tables.RowError) bool { return e.Queue == name || e.Queue == "" })
	view := newMatchView(read, all, unreadable)
	view.Queue = name
	if view.Outcome == "unmatched" && a.KeepUnmatched(name) {
		view.Outcome, view.Text = "dead-lettered", "Every filter refuses it: it becomes a dead letter without a POST, and a replay delivers it when the filter is right. The queue's setting unmatched: complete would delete it."
	}
	return web.WriteJSON(w, http.StatusOK, view)
}

// newMatchView decides as the dispatcher does about a message that it sees for the first
// time; unreadable is whether there are registrations that could not be read.
func newMatchView(c content.Content, regs []tables.Registration, unreadable bool) matchView {
	v := matchView{Webhooks: []webhookMatch{}}
	if e := c.Event; e != nil {
		v.Event = &eventView{e.ID, e.Source, e.Type, e.Subject}
	}
	var delivered, held, refused bool
	for _, reg := range regs {
		takes, reason := reg.Filter.Match(c)
		v.Webhooks = append(v.Webhooks, webhookMatch{reg.ID, reg.Name, reg.Enabled, takes, reason})
		delivered = delivered || takes && reg.Enabled
		held = held || takes && !reg.Enabled
		refused = refused || !takes && reg.Enabled
	}
	switch {
	case delivered:
		v.Outcome, v.Text = "delivered", "It is POSTed to the enabled webhooks that take it."
		if held {
			v.Text += " What disabled ones take is held until they are enabled."
		}
	case held:
		v.Outcome, v.Text = "held", "Only disabled webhooks take it: it is held until one of them is enabled."
	case refused && unreadable:
		v.Outcome, v.Text = "held", "No webhook takes it; but a registration can't be read that might, so it is held."
	case refused:
		v.Outcome, v.Text = "unmatched", "Every filter refuses it: it is deleted without a POST and recorded as unmatched."
	default:
		v.Outcome, v.Text = "held", "No enabled webhook is registered for the queue: it stays there until one is, or until it expires."
	}
	return v
}

// lately is how many of the newest messages that no filter took a new filter is tried with.
const lately = 5

// filterWarnings says what the filter of a webhook makes of the messages that no filter of its queue took, of which
// there are dead letters: a typo in it shows before the next message comes. It is a convenience: what can't be read now
// is left out.
func (a *API) filterWarnings(ctx context.Context, reg tables.Registration) []string {
	if reg.Filter.IsZero() {
		return nil
	}
	filter := tables.DeadLetterFilter{Queue: reg.Queue, Reason: policy.Unmatched, Status: tables.Waiting}
	rows, _, err := a.DeadLetters.ListDeadLetters(ctx, filter, tables.Page{Limit: lately})
	if err != nil {
		return nil
	}
	tried, taken := 0, 0
	for _, row := range rows {
		d, err := a.DeadLetters.GetDeadLetter(ctx, row.ID)
		if err != nil {
			continue
		}
		setting := a.setting(d)
		body, err := queue.Decode(setting, d.Text)
		if err != nil || body.Replay != nil {
			continue
		}
		tried++
		if takes, _ := reg.Filter.Match(content.Read(body.Bytes, queue.ContentTypeOf(setting, body))); takes {
			taken++
		}
	}
	switch {
	case tried == 0:
		return nil
	case taken == 0:
		return []string{fmt.Sprintf("No filter took the last messages of this queue, which are dead letters now (Unmatched), and this one takes none of the newest %d either. POST /api/v1/queues/%s/match says why.", tried, reg.Queue)}
	}
	return []string{fmt.Sprintf("This filter takes %d of the newest %d messages of this queue that no filter took. They are dead letters (Unmatched): pushlease dead-letters replay --queue %s --reason Unmatched sends them.", taken, tried, reg.Queue)}
}

// waitingWarnings says how many of the messages that wait on the queue no filter takes, that of reg neither, which is about to be
// registered: they become dead letters as soon as it is, or are deleted.
func (a *API) waitingWarnings(ctx context.Context, reg tables.Registration) []string {
	q, err := a.Queues.Queue(reg.Queue)
	if err != nil || reg.Filter.IsZero() || !reg.Enabled {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, warningTimeout)
	defer cancel()
	waiting, err := q.Peek(ctx, queue.MaxReceive)
	if err != nil || len(waiting) == 0 {
		return nil
	}
	all, _, err := a.Webhooks.ListWebhooks(ctx)
	if err != nil {
		return nil
	}
	all = append(slices.DeleteFunc(all, func(other tables.Registration) bool {
		return other.ID == reg.ID || other.Queue != reg.Queue || !other.Enabled
	}), reg)
	tried, untaken := 0, 0
	for _, p := range waiting {
		setting := a.Encoding(reg.Queue)
		body, err := queue.Decode(setting, p.Text)
		if err != nil || body.Replay != nil {
			continue
		}
		tried++
		read := content.Read(body.Bytes, queue.ContentTypeOf(setting, body))
		if !slices.ContainsFunc(all, func(other tables.Registration) bool {
			takes, _ := other.Filter.Match(read)
			return takes
		}) {
			untaken++
		}
	}
	if untaken == 0 {
		return nil
	}
	become := "they become dead letters (Unmatched)"
	if !a.KeepUnmatched(reg.Queue) {
		become = "they are deleted"
	}
	return []string{fmt.Sprintf("Of the %d messages at the front of this queue no filter takes %d, this one neither: %s as soon as they are received. POST /api/v1/queues/%s/match says why.", tried, untaken, become, reg.Queue)}
}

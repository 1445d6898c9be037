package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue"
)

// producersMessage is a message as one kind of producer makes it.
type producersMessage struct {
	name string
	// text is what the producer puts on the queue by itself; empty for one that
	// publishes through the API.
	text string
	// body is what the webhooks are to get, of this content type.
	body        []byte
	contentType string
}

func producersMessages() []producersMessage {
	const text = "text/plain; charset=utf-8"
	document := []byte(`{"kind":"base64","text":"` + bodyMark + `"}`)
	marked := []byte("\xef\xbb\xbf" + `{"kind":"byte order mark","text":"` + bodyMark + `"}`)
	plain := "plain " + bodyMark + " <&> äöü 😀\nSEND"
	fullText := bytes.Repeat([]byte("x"), 64<<10)
	// Base64 makes 64 KiB of it.
	fullDocument := []byte(`{"text":"` + strings.Repeat("y", 48<<10-11) + `"}`)
	random := make([]byte, 40_000)
	_, _ = rand.Read(random)
	encoded := base64.StdEncoding.EncodeToString
	return []producersMessage{
		{"base64", encoded(document), document, jsonType},
		{"plain", plain, []byte(plain), text},
		{"byte order mark", string(marked), marked, jsonType},
		{"byte order mark in base64", encoded(marked), marked, jsonType},
		{"64 KiB", string(fullText), fullText, text},
		{"64 KiB of base64", encoded(fullDocument), fullDocument, jsonType},
		{"binary", "", random, "application/octet-stream"},
	}
}

// accept is one installation with three webhooks on one queue: the first takes
// everything, the second has 503 and then 200 for each message, and the third 400
// until it is fixed.
type accept struct {
	t     *testing.T
	s     *store
	p     *process
	queue string
	takes, falters,
	refuses hook
	in map[string]*inbox // by webhook id
}

func newAccept(t *testing.T, s *store, queue string, settings ...string) *accept {
	a := &accept{t: t, s: s, p: s.start(t, settings...), queue: queue, in: map[string]*inbox{}}
	add := func(name string, script ...int) hook {
		secret, opts := newHookSecret(), receiverOptions{}
		for _, status := range script {
			opts.Script = append(opts.Script, reply{Status: status})
		}
		opts.Secrets = []string{secret}
		in := newInbox(t, opts)
		h := a.p.register(queue, in.url, map[string]any{"name": name, "secret": secret,
			"policy": map[string]any{"backoff": map[string]any{"delays": []string{"1s"}, "jitter": 0}}})
		a.in[h.ID] = in
		return h
	}
	a.takes, a.falters, a.refuses = add("takes", 200), add("falters", 503, 200), add("refuses", 400, 200)
	return a
}

// put puts a message on the queue as its producer does. There is no way onto SQLite but
// the API.
func (a *accept) put(m producersMessage) (id string) {
	a.t.Helper()
	if m.text == "" || a.s.account == nil {
		return a.p.publishRaw(a.queue, "", m.contentType, m.body)
	}
	service, err := azqueue.NewServiceClientFromConnectionString(a.s.account.ConnectionString(), nil)
	if err != nil {
		a.t.Fatal(err)
	}
	client := service.NewQueueClient(a.queue)
	if _, err := client.Create(context.Background(), nil); err != nil {
		a.t.Fatal(err) // one that exists is none
	}
	sent, err := client.EnqueueMessage(context.Background(), m.text, nil)
	if err != nil {
		a.t.Fatal(err)
	}
	return *sent.Messages[0].MessageID
}

// of are the POSTs of a message to a webhook, in order.
func (a *accept) of(webhookID, id string) []received {
	var got []received
	for _, r := range a.in[webhookID].all() {
		if r.ID == id {
			got = append(got, r)
		}
	}
	return got
}

// expectPosts compares the POSTs of a message with what was put on the queue.
func (a *accept) expectPosts(id string, m producersMessage, counts map[string]int) {
	a.t.Helper()
	for webhookID, want := range counts {
		got := a.of(webhookID, id)
		if len(got) != want {
			a.t.Errorf("%s: %d POSTs to %s, want %d", m.name, len(got), webhookID, want)
		}
		for i, r := range got {
			if sha256.Sum256(r.Body) != sha256.Sum256(m.body) || r.ContentType != m.contentType || r.Signature != "valid" || r.Queue != a.queue {
				a.t.Errorf("%s: POST %d to %s has %d bytes as %q, signature %s, queue %s; want %d bytes as %q",
					m.name, i+1, webhookID, len(r.Body), r.ContentType, r.Signature, r.Queue, len(m.body), m.contentType)
			}
		}
	}
}

// deadLetters lists the queue's dead letters with a status; "" for all.
func (p *process) deadLetters(queue, status string) []deadLetterRow {
	p.t.Helper()
	var all []deadLetterRow
	query := url.Values{"queue": {queue}, "limit": {"500"}}
	if status != "" {
		query.Set("status", status)
	}
	for {
		var page struct {
			Data       []deadLetterRow `json:"data"`
			NextCursor string          `json:"next_cursor"`
		}
		p.call(http.MethodGet, "/api/v1/dead-letters?"+query.Encode(), "", http.StatusOK, &page)
		all = append(all, page.Data...)
		if page.NextCursor == "" {
			return all
		}
		query.Set("cursor", page.NextCursor)
	}
}

// e2eStatistics are a queue's figures since the start of the process that answers.
type e2eStatistics struct {
	Deletions struct {
		Total, Successful, Failed, Unverified int
		SuccessRate                           float64 `json:"success_rate"`
	} `json:"deletions"`
}

func (p *process) statistics(queue string) (st e2eStatistics) {
	p.t.Helper()
	p.call(http.MethodGet, "/api/v1/queues/"+queue, "", http.StatusOK, &st)
	return st
}

// The three webhooks, with everything that a producer may put on a queue; then the third
// is fixed and gets what it had refused.
func TestThreeWebhooksAndAReplayByFilter(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		a := newAccept(t, s, queueName("accept"))
		messages := map[string]producersMessage{}
		for _, m := range producersMessages() {
			messages[a.put(m)] = m
		}
		counts := map[string]int{a.takes.ID: 1, a.falters.ID: 2, a.refuses.ID: 1}
		for id, m := range messages {
			a.p.waitState(30*time.Second, a.queue, id, a.falters.ID, "delivered")
			a.expectTimeline(id, m)
		}
		a.p.waitEmpty(10*time.Second, a.queue)
		for id, m := range messages {
			a.expectPosts(id, m, counts)
			a.expectDeadLetter(id, m)
		}
		a.expectStatistics(len(messages))

		a.replay(len(messages))
		counts[a.refuses.ID] = 2
		for id, m := range messages {
			a.p.waitState(30*time.Second, a.queue, id, a.refuses.ID, "delivered")
			a.expectPosts(id, m, counts)
		}
		a.p.waitEmpty(10*time.Second, a.queue)
		waitUntil(t, 10*time.Second, func() string {
			if rows := a.p.deadLetters(a.queue, "replayed"); len(rows) != len(messages) {
				return fmt.Sprintf("%d rows are replayed", len(rows))
			}
			return ""
		})
		if all := a.p.deadLetters(a.queue, ""); len(all) != len(messages) {
			t.Errorf("%d rows after the replay, want %d", len(all), len(messages))
		}
		for _, h := range []hook{a.takes, a.falters, a.refuses} {
			if got, want := len(a.in[h.ID].all()), counts[h.ID]*len(messages); got != want {
				t.Errorf("%d POSTs to %s, want %d", got, h.ID, want)
			}
		}
		// A replay's pointer is deleted like any message.
		if st := a.p.statistics(a.queue).Deletions; st.Successful != 2*len(messages) || st.Failed+st.Unverified != 0 {
			t.Errorf("deletions after the replay: %+v", st)
		}
		if n := a.p.metric("pushlease_deadletters_replays_total", `queue="`+a.queue+`"`); int(n) != len(messages) {
			t.Errorf("%v replays are counted", n)
		}
	})
}

// expectTimeline checks what the API and the command tell about a message.
func (a *accept) expectTimeline(id string, m producersMessage) {
	a.t.Helper()
	a.p.waitState(10*time.Second, a.queue, id, a.takes.ID, "delivered")
	a.p.waitState(10*time.Second, a.queue, id, a.refuses.ID, "dead_lettered")
	tl, err := a.p.timeline(a.queue, id)
	if err != nil {
		a.t.Fatal(err)
	}
	sum := sha256.Sum256(m.body)
	if tl.Size != len(m.body) || tl.BodyHash != hex.EncodeToString(sum[:8]) {
		a.t.Errorf("%s: the timeline says %d bytes, digest %s; want %d, %x", m.name, tl.Size, tl.BodyHash, len(m.body), sum[:8])
	}
	if !slices.IsSortedFunc(tl.Events, func(x, y e2eEvent) int { return x.At.Compare(y.At) }) {
		a.t.Errorf("%s: the events are not in order: %+v", m.name, tl.Events)
	}
	shown, _ := runBinary(a.t, nil, "messages", "show", id, "--queue", a.queue, "--server", a.p.url)
	if shown.code != exitOK {
		a.t.Errorf("%s: messages show ended with %d: %s", m.name, shown.code, shown.err)
	}
	lines := strings.Split(shown.out, "\n")
	for _, tt := range []struct {
		webhookID string
		events    []string
		says      []string // of each attempt
		next      string
	}{
		{a.takes.ID, []string{"attempt", "delivered"}, []string{"answered 200"}, "delivered"},
		{a.falters.ID, []string{"attempt", "attempt", "delivered"}, []string{"answered 503", "answered 200"}, "delivered"},
		{a.refuses.ID, []string{"attempt", "dead_lettered"}, []string{"answered 400"}, "dead_lettered"},
	} {
		var events, texts []string
		for _, e := range tl.Events {
			if e.WebhookID != tt.webhookID {
				continue
			}
			events = append(events, e.Event)
			if e.Event == "attempt" {
				texts = append(texts, e.Text)
			}
			if !slices.ContainsFunc(lines, func(l string) bool {
				return strings.Contains(l, e.Event) && strings.Contains(l, e.WebhookID) && strings.Contains(l, oneLine(e.Text))
			}) {
				a.t.Errorf("%s: messages show leaves out %+v:\n%s", m.name, e, shown.out)
			}
		}
		if !slices.Equal(events, tt.events) {
			a.t.Errorf("%s at %s: events %v, want %v", m.name, tt.webhookID, events, tt.events)
			continue
		}
		for i, text := range texts {
			if !strings.Contains(text, tt.says[i]) {
				a.t.Errorf("%s at %s: attempt %d says %q, want %q", m.name, tt.webhookID, i+1, text, tt.says[i])
			}
		}
		if !strings.Contains(shown.out, "→ "+tt.webhookID+": "+tt.next) {
			a.t.Errorf("%s: messages show does not say %s for %s:\n%s", m.name, tt.next, tt.webhookID, shown.out)
		}
	}
}

// expectDeadLetter checks the one dead letter of a message, its history and its bytes.
func (a *accept) expectDeadLetter(id string, m producersMessage) {
	a.t.Helper()
	var rows []deadLetterRow
	for _, d := range a.p.deadLetters(a.queue, "waiting") {
		if d.MessageID == id {
			rows = append(rows, d)
		}
	}
	if len(rows) != 1 {
		a.t.Errorf("%s: %d dead letters", m.name, len(rows))
		return
	}
	d := rows[0]
	if d.WebhookID != a.refuses.ID || d.Reason != "NonRetryableError" || d.Attempts != 1 || d.LastStatus != 400 ||
		d.Size != len(m.body) || d.CopiedToQueue != a.queue+"-poison" || d.Replays != 0 {
		a.t.Errorf("%s: the dead letter is %+v", m.name, d)
	}
	body, err := a.p.try(http.MethodGet, deadLetterPath(d.ID)+"/body", "", "")
	if err != nil || sha256.Sum256(body.body) != sha256.Sum256(m.body) {
		a.t.Errorf("%s: the dead letter has %d bytes, want %d (%v)", m.name, len(body.body), len(m.body), err)
	}
	var history struct{ Data []e2eAttempt }
	waitUntil(a.t, 10*time.Second, func() string { // on Azure the lists are written in the background
		a.p.call(http.MethodGet, "/api/v1/attempts?webhook="+a.refuses.ID+"&message="+id, "", http.StatusOK, &history)
		if len(history.Data) == 0 {
			return "the list of attempts is empty"
		}
		return ""
	})
	if h := history.Data; len(h) != 1 || h[0].Status != 400 || h[0].Action != "dead-letter" || h[0].Reason != "NonRetryableError" || !h[0].Charged {
		a.t.Errorf("%s: the history is %+v", m.name, history.Data)
	}
}

// expectStatistics checks what is counted of n messages before the replay.
func (a *accept) expectStatistics(n int) {
	a.t.Helper()
	if st := a.p.statistics(a.queue).Deletions; st.Total != n || st.Successful != n || st.Failed != 0 || st.Unverified != 0 || st.SuccessRate != 1 {
		a.t.Errorf("deletions: %+v, want %d without a failure", st, n)
	}
	queue := `queue="` + a.queue + `"`
	for _, tt := range []struct {
		name   string
		labels []string
		want   int
	}{
		{"pushlease_messages_deadlettered_total", []string{`reason="NonRetryableError"`}, n},
		{"pushlease_messages_deadlettered_total", nil, n},
		{"pushlease_messages_deleted_total", nil, n},
		{"pushlease_messages_duplicate_total", nil, 0},
		{"pushlease_webhook_attempts_total", []string{`outcome="2xx"`}, 2 * n},
		{"pushlease_webhook_attempts_total", []string{`outcome="5xx"`, `webhook="` + a.falters.ID + `"`}, n},
		{"pushlease_webhook_attempts_total", []string{`outcome="4xx"`, `webhook="` + a.refuses.ID + `"`}, n},
		{"pushlease_webhook_attempts_total", nil, 4 * n},
	} {
		if got := a.p.metric(tt.name, append(tt.labels, queue)...); int(got) != tt.want {
			a.t.Errorf("%s %v is %v, want %d", tt.name, tt.labels, got, tt.want)
		}
	}
	// Each message came once, and again for its second attempt.
	if got := int(a.p.metric("pushlease_messages_received_total", queue)); got < 2*n {
		a.t.Errorf("%d messages are counted as received, want at least %d", got, 2*n)
	}
	if got := a.p.count(a.queue, "waiting"); got != n {
		a.t.Errorf("%d dead letters wait, want %d", got, n)
	}
	if got := a.p.depth(a.queue + "-poison"); got != n {
		a.t.Errorf("%d copies in the poison queue, want %d", got, n)
	}
}

// replay counts, then replays by filter with the command, and follows the job.
func (a *accept) replay(n int) {
	a.t.Helper()
	command := []string{"dead-letters", "replay", "--queue", a.queue, "--webhook", a.refuses.ID, "--reason", "NonRetryableError", "--server", a.p.url}
	dry, _ := runBinary(a.t, nil, append(command, "--dry-run")...)
	if want := fmt.Sprintf("%d matched; of these, %d would be replayed and 0 skipped. Nothing was done.\n", n, n); dry.code != exitOK || dry.out != want {
		a.t.Errorf("the dry run ended with %d and says %q, want %q: %s", dry.code, dry.out, want, dry.err)
	}
	if got := a.p.count(a.queue, "waiting"); got != n {
		a.t.Errorf("%d dead letters wait after the dry run, want %d", got, n)
	}
	done, _ := runBinary(a.t, nil, append(command, "--rate", "20", "--watch", "-o", "json")...)
	var job replayJob
	if err := json.Unmarshal([]byte(done.out), &job); err != nil || done.code != exitOK {
		a.t.Fatalf("the replay ended with %d, %v: %s%s", done.code, err, done.out, done.err)
	}
	if job.State != "done" || job.Matched != n || job.Replayed != n || job.Skipped != 0 || job.Failed != 0 || job.FinishedAt.Before(job.StartedAt) {
		a.t.Errorf("the job ended as %+v", job)
	}
	if again := a.p.job(job.ID); again.State != "done" || again.Replayed != n {
		a.t.Errorf("the job is shown as %+v", again)
	}
	other, _ := runBinary(a.t, nil, append(command, "--dry-run")...)
	if !strings.HasPrefix(other.out, "0 matched;") {
		a.t.Errorf("after the replay the dry run says %q", other.out)
	}
}

// One event in two messages: the three webhooks get it as if it were one.
func TestAnEventPublishedTwiceIsDeliveredOnce(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		queue := queueName("twice")
		a := newAccept(t, s, queue, "PUSHLEASE_QUEUES="+queue+"=auto:dedup=event-id")
		event := []byte(`{"specversion":"1.0","id":"order 7","source":"/shop","type":"order.paid","data":{"text":"` + bodyMark + `"}}`)
		m := producersMessage{"event", string(event), event, jsonType}
		first := a.put(m)
		a.p.waitState(20*time.Second, queue, first, a.falters.ID, "delivered")
		a.p.waitState(20*time.Second, queue, first, a.refuses.ID, "dead_lettered")
		a.p.waitEmpty(10*time.Second, queue)
		second := a.put(m)
		a.p.waitState(20*time.Second, queue, second, "", "duplicate")
		a.p.waitEmpty(10*time.Second, queue)
		a.expectPosts(first, m, map[string]int{a.takes.ID: 1, a.falters.ID: 2, a.refuses.ID: 1})
		a.expectPosts(second, m, map[string]int{a.takes.ID: 0, a.falters.ID: 0, a.refuses.ID: 0})
		if rows := a.p.deadLetters(queue, ""); len(rows) != 1 || rows[0].MessageID != first {
			t.Errorf("the dead letters are %+v", rows)
		}
		shown, _ := runBinary(t, nil, "messages", "show", second, "--queue", queue, "--server", a.p.url)
		if shown.code != exitOK || !strings.Contains(shown.out, "duplicate") {
			t.Errorf("messages show of the second ended with %d: %s%s", shown.code, shown.out, shown.err)
		}
		if n := a.p.metric("pushlease_messages_duplicate_total", `queue="`+queue+`"`, `kind="event"`); n != 1 {
			t.Errorf("%v duplicates are counted", n)
		}
		if st := a.p.statistics(queue).Deletions; st.Successful != 2 || st.Failed+st.Unverified != 0 {
			t.Errorf("deletions: %+v", st)
		}
	})
}

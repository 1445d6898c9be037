package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/tables"
)

// C86: what another program has made of a dead letter is neither shown nor sent, unless
// that is asked for; and whose message it is, not even then.
func TestADeadLetterThatAnotherProgramHasRewrittenIsNeitherShownNorSent(t *testing.T) {
	const payload, text = `{"n":1}`, "eyJuIjoxfQ=="
	for name, one := range map[string]struct {
		rewrite func(d *tables.DeadLetter)
		field   string
		names   string // what the answer names
		forced  string // the body with force; empty where that is refused
	}{
		"text removed":          {func(d *tables.DeadLetter) { d.Text = nil }, "text", "columns Text", ""},
		"text rewritten":        {func(d *tables.DeadLetter) { d.Text = []byte(`{"n":2}`) }, "text", "Text", `{"n":2}`},
		"hash rewritten":        {func(d *tables.DeadLetter) { d.BodyHash = "00" }, "text", "BodyHash", payload},
		"hash and text removed": {func(d *tables.DeadLetter) { d.Text, d.BodyHash = nil, "" }, "text", "Text, Size", ""},
		"hash gone, text other": {func(d *tables.DeadLetter) { d.Text, d.BodyHash = []byte(`{"n":12}`), "" }, "text", "Size", `{"n":12}`},
		"size rewritten":        {func(d *tables.DeadLetter) { d.Size = 1 << 40 }, "text", "Size", payload},
		"damaged": {func(d *tables.DeadLetter) {
			d.Damaged = fmt.Errorf("%w: of another type is Attempts", tables.ErrDamaged)
		}, "row", "Attempts", payload},
		"another message": {func(d *tables.DeadLetter) { d.MessageID = "m2" }, "id", "MessageID", "no"},
		"no webhook":      {func(d *tables.DeadLetter) { d.WebhookID = "" }, "id", "WebhookID", "no"},
	} {
		t.Run(name, func(t *testing.T) {
			letters := &damaging{}
			h := newHarness(t, func(o *Options) { letters.DeadLetters, o.DeadLetters = o.DeadLetters, letters })
			id := h.register(hook).text("id")
			d := dead("m1", id, text)
			d.Size, d.BodyHash = len(payload), tables.BodyHash([]byte(payload))
			d = h.putDeadLetter(d)
			target := "/api/v1/dead-letters/" + d.ID
			if got := string(h.do(http.StatusOK, "GET", target+"/body", "").body); got != payload {
				t.Errorf("as it was: %q", got)
			}
			letters.rewrite = one.rewrite
			for _, ask := range [][2]string{{"GET", target + "/body"}, {"GET", target + "?body=true"}, {"POST", target + "/replay"}} {
				a := h.do(http.StatusConflict, ask[0], ask[1], "")
				a.wantProblem(one.field)
				if !strings.Contains(string(a.body), one.names) {
					t.Errorf("%s: %s, want %s named", ask, a.body, one.names)
				}
			}
			seen := h.do(http.StatusOK, "GET", target, "") // without its body it can be looked at
			if warned := strings.Contains(string(seen.body), "Its row can't be gone by"); warned != (one.field != "text") {
				t.Errorf("what is seen without its text: %s", seen.body)
			}
			job := &replayJob{api: h.api, bulk: bulk{filter: tables.DeadLetterFilter{Status: tables.Waiting}}, because: map[string]int{}}
			job.replay(t.Context(), d.ID)
			if job.because[skipText] != 1 || job.failed != 0 {
				t.Errorf("a replay by filter: %v, %d failed", job.because, job.failed)
			}
			if one.field == "id" {
				h.do(http.StatusConflict, "GET", target+"/body?force=true", "")
				h.do(http.StatusConflict, "POST", target+"/replay?force=true", "")
				return
			}
			if got := string(h.do(http.StatusOK, "GET", target+"/body?force=true", "").body); got != one.forced {
				t.Errorf("with force: %q, want %q", got, one.forced)
			}
			h.do(http.StatusAccepted, "POST", target+"/replay?force=true", "")
			if now := h.loadDead(d.ID); string(now.Text) != text && h.api.changed(now) != "" {
				t.Errorf("the row that is replayed with force is refused: %s", h.api.changed(now))
			}
		})
	}
}

// Earlier versions kept the hash of the first reading beside the queue's setting of the last one.
func TestADeadLetterIsReadByTheSettingThatGivesWhatWasReceived(t *testing.T) { // C86
	const payload, text = `{"n":1}`, "eyJuIjoxfQ=="
	for name, one := range map[string]struct{ received, encoding string }{
		"read as base64 first": {payload, "none"},
		"read as plain first":  {text, "base64"},
		"with no setting":      {payload, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t)
			d := dead("m1", h.register(hook).text("id"), text)
			d.Encoding, d.Size, d.BodyHash = one.encoding, len(one.received), tables.BodyHash([]byte(one.received))
			d = h.putDeadLetter(d)
			target := "/api/v1/dead-letters/" + d.ID
			if got := string(h.do(http.StatusOK, "GET", target+"/body", "").body); got != one.received {
				t.Errorf("its body: %q, want %q", got, one.received)
			}
			if err := h.api.intact(t.Context(), d); err != nil {
				t.Errorf("a replay by filter leaves it out: %v", err)
			}
			h.do(http.StatusAccepted, "POST", target+"/replay", "")
		})
	}
}

// damaging changes dead letters as they are read.
type damaging struct {
	tables.DeadLetters
	rewrite func(d *tables.DeadLetter)
}

func (l *damaging) GetDeadLetter(ctx context.Context, id string) (tables.DeadLetter, error) {
	d, err := l.DeadLetters.GetDeadLetter(ctx, id)
	if err == nil && l.rewrite != nil {
		l.rewrite(&d)
	}
	return d, err
}

// C57: where the store can, a replay is marked and sent in one step.
func TestAReplayIsMarkedAndSentTogetherWhereTheStoreCan(t *testing.T) {
	replays := &failingReplays{}
	h := newHarness(t, func(o *Options) {
		replays.RecordedReplays = o.Queues.(*sqlite.Queues)
		o.RecordedReplays = replays
	})
	id := h.register(hook).text("id")
	d := h.putDeadLetter(dead("m1", id, "payload"))
	replays.err = errors.New("injected")
	h.do(http.StatusServiceUnavailable, "POST", "/api/v1/dead-letters/"+d.ID+"/replay", "")
	if now := h.loadDead(d.ID); now.Status != tables.Waiting {
		t.Errorf("a replay that was not sent left %s", now.Status)
	}
	replays.err = nil
	h.do(http.StatusAccepted, "POST", "/api/v1/dead-letters/"+d.ID+"/replay", "")
	h.receive("orders")
	if now := h.loadDead(d.ID); now.Status != tables.Replaying || len(h.view.woken) != 1 {
		t.Errorf("the dead letter is %s, woken %v", now.Status, h.view.woken)
	}
}

type failingReplays struct {
	RecordedReplays
	err error
}

func (f *failingReplays) SendReplay(ctx context.Context, d tables.DeadLetter, text []byte) (tables.DeadLetter, error) {
	if f.err != nil {
		return d, f.err
	}
	return f.RecordedReplays.SendReplay(ctx, d, text)
}

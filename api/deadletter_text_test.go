package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/tables"
)

// C86: what another program has made of a dead letter is neither shown nor sent, unless
// that is asked for.
func TestATextThatAnotherProgramHasRewrittenIsNeitherShownNorSent(t *testing.T) {
	for name, rewrite := range map[string]func(d *tables.DeadLetter){
		"removed":   func(d *tables.DeadLetter) { d.Text = nil },
		"rewritten": func(d *tables.DeadLetter) { d.Text = []byte(`{"n":2}`) },
		"damaged":   func(d *tables.DeadLetter) { d.Damaged = tables.ErrDamaged },
	} {
		t.Run(name, func(t *testing.T) {
			letters := &damaging{}
			h := newHarness(t, func(o *Options) { letters.DeadLetters, o.DeadLetters = o.DeadLetters, letters })
			id := h.register(hook).text("id")
			d := dead("m1", id, `{"n":1}`)
			d.BodyHash = hashOf(d.Text)
			d = h.putDeadLetter(d)
			target := "/api/v1/dead-letters/" + d.ID
			if got := string(h.do(http.StatusOK, "GET", target+"/body", "").body); got != `{"n":1}` {
				t.Errorf("as it was: %q", got)
			}
			letters.rewrite = rewrite
			for _, ask := range [][2]string{{"GET", target + "/body"}, {"GET", target + "?body=true"}, {"POST", target + "/replay"}} {
				a := h.do(http.StatusConflict, ask[0], ask[1], "")
				a.wantProblem("text")
				if name != "damaged" && !strings.Contains(string(a.body), "column Text") {
					t.Errorf("%s: %s, want the column named", ask, a.body)
				}
			}
			h.do(http.StatusOK, "GET", target, "") // without its body it can be looked at
			job := &replayJob{api: h.api, bulk: bulk{filter: tables.DeadLetterFilter{Status: tables.Waiting}}, because: map[string]int{}}
			job.replay(t.Context(), d.ID)
			if job.because[skipText] != 1 || job.failed != 0 {
				t.Errorf("a replay by filter: %v, %d failed", job.because, job.failed)
			}
			h.do(http.StatusOK, "GET", target+"/body?force=true", "")
			h.do(http.StatusAccepted, "POST", target+"/replay?force=true", "")
		})
	}
}

// The hash is that of the body where the text could be read, and of the text where not.
func TestATextIsKnownByTheHashOfItsBodyOrOfItself(t *testing.T) {
	for text, of := range map[string]string{`{"n":1}`: `{"n":1}`, "eyJuIjoxfQ==": `{"n":1}`, "!!": "!!", "": ""} {
		d := tables.DeadLetter{Text: []byte(text), BodyHash: hashOf([]byte(of))}
		if why := changed(d); why != "" {
			t.Errorf("%q: %s", text, why)
		}
	}
	if changed(tables.DeadLetter{Text: []byte("a")}) != "" {
		t.Error("a row without a hash is one of before there was any")
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

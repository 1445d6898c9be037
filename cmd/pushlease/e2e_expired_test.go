package main

import (
	"database/sql"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// C54: messages with short lives, whatever becomes of their queue, and a process that is
// down when they end: each is a dead letter, and each timeline ends.
func TestNoMessageOfAFileExpiresUnseen(t *testing.T) {
	t.Parallel()
	s := sqliteStore(t)
	p := s.start(t)
	away := newInbox(t, receiverOptions{Answer: reply{Status: 503}})
	queues := map[string]func(p *process, queue string){
		"failing":  func(p *process, queue string) { p.register(queue, away.url, nil) },
		"disabled": func(p *process, queue string) { p.register(queue, away.url, map[string]any{"enabled": false}) },
		"deleted": func(p *process, queue string) {
			h := p.register(queue, away.url, nil)
			p.call(http.MethodDelete, "/api/v1/webhooks/"+h.ID, "", http.StatusNoContent, nil)
		},
		"never": func(*process, string) {},
	}
	endings := []string{"Expired", "MessageExpiring", "WebhookDisabled", "WebhookDeleted"}
	const each = 5
	published, never := map[string]string{}, ""                                                   // id to queue, and the label of one of these
	lives := map[string]string{"failing": "3s", "disabled": "3s", "deleted": "3s", "never": "6s"} // which has to outlive what is left of this process
	for _, name := range []string{"failing", "disabled", "deleted", "never"} {
		queue := queueName(name)
		queues[name](p, queue)
		for range each {
			var m struct {
				ID string `json:"message_id"`
			}
			p.call(http.MethodPost, "/api/v1/queues/"+queue+"/messages?ttl="+lives[name], `{"n":1}`, http.StatusAccepted, &m)
			published[m.ID] = queue
			if name == "never" {
				never = fmt.Sprintf("queue=%q", queue)
			}
		}
	}
	p.kill()
	over := time.NewTimer(7 * time.Second) // their lives
	<-over.C
	p = s.start(t)
	for id, queue := range published {
		waitUntil(t, 20*time.Second, func() string {
			var list struct {
				Data []struct {
					Reason string `json:"reason"`
				} `json:"data"`
			}
			p.call(http.MethodGet, "/api/v1/dead-letters?message="+id, "", http.StatusOK, &list)
			if len(list.Data) != 1 {
				return "no dead letter of " + id + " on " + queue
			}
			if r := list.Data[0].Reason; !slices.Contains(endings, r) {
				t.Errorf("%s on %s ended with %s", id, queue, r)
			}
			return ""
		})
		// A message that the killed process had in hand is the next one's when its lease is over.
		waitUntil(t, 20*time.Second, func() string {
			line, err := p.timeline(queue, id)
			if err != nil {
				t.Fatal(err)
			}
			ended := false
			for _, n := range line.Next {
				ended = ended || n.State == "dead_lettered"
				if n.State == "pending" || n.State == "held" || n.State == "published" {
					t.Fatalf("%s on %s is said to be %s still", id, queue, n.State)
				}
			}
			if !ended {
				return fmt.Sprintf("the timeline of %s on %s does not end: %+v", id, queue, line.Next)
			}
			return ""
		})
	}
	// Who watches is told of what no webhook was there for: the file ended it as soon as it was opened.
	waitUntil(t, 20*time.Second, func() string {
		for metric, label := range map[string]string{
			"pushlease_messages_expired_total": "", "pushlease_messages_deadlettered_total": `reason="Expired"`, "pushlease_messages_finished_total": `result="dead_lettered"`,
		} {
			if n := p.metric(metric, never, label); n != each {
				return fmt.Sprintf("%s is %v, want %d", metric, n, each)
			}
		}
		return ""
	})
}

// C65: a copy of a dead letter lives as long as the setting says, whoever makes it: the dispatcher, or the file when the message
// expires.
func TestCopiesOfDeadLettersLiveAsLongAsIsSet(t *testing.T) {
	t.Parallel()
	s := sqliteStore(t)
	p := s.start(t, "PUSHLEASE_POISON_COPY_TTL=3h")
	in := newInbox(t, receiverOptions{Answer: reply{Status: 400}})
	refused, expired := queueName("refused"), queueName("expired")
	p.register(refused, in.url, nil)
	p.publish(refused, `{"n":1}`)
	p.call(http.MethodPost, "/api/v1/queues/"+expired+"/messages?ttl=1s", `{"n":1}`, http.StatusAccepted, nil)
	for _, queue := range []string{refused, expired} {
		waitUntil(t, 90*time.Second, func() string {
			if len(p.deadLetters(queue, "waiting")) == 0 {
				return "no dead letter of " + queue
			}
			return ""
		})
		p.waitEmpty(20*time.Second, queue)
	}
	p.terminate()
	p.ended(30 * time.Second)
	file, err := sql.Open("sqlite", strings.TrimPrefix(s.env[0], "PUSHLEASE_STORAGE=sqlite:"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, queue := range []string{refused, expired} {
		var life int64
		if err := file.QueryRow("SELECT m.expires_at - m.inserted_at FROM messages m JOIN queues q ON q.id = m.queue WHERE q.name = ?", queue+"-poison").Scan(&life); err != nil {
			t.Errorf("the copy of %s: %v", queue, err)
		} else if got := time.Duration(life) * time.Millisecond; got != 3*time.Hour {
			t.Errorf("the copy of %s lives %s, want 3h", queue, got)
		}
	}
}

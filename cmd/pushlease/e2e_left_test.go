package main

import (
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
)

// C13: what waits for a webhook that is deleted is held, message by message, with the
// reason; nothing is sent or deleted; and a new webhook gets it.
func TestMessagesOfADeletedWebhookAreHeldUntilAnotherOneTakesThem(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p, other := s.start(t), s.start(t)
		in := newInbox(t, receiverOptions{})
		queue := queueName("left")
		h := p.register(queue, in.url, map[string]any{"enabled": false})
		var ids []string
		for i := range 10 {
			ids = append(ids, p.publish(queue, fmt.Sprintf(`{"n":%d}`, i)))
		}
		waitUntil(t, 60*time.Second, func() string { // otherwise it may hear of the deletion only 10 minutes later
			var q struct{ Poller *struct{} }
			other.call(http.MethodGet, "/api/v1/queues/"+queue, "", http.StatusOK, &q)
			if q.Poller == nil {
				return "the other process does not know the webhook"
			}
			return ""
		})
		p.call(http.MethodDelete, "/api/v1/webhooks/"+h.ID, "", http.StatusNoContent, nil)
		for _, id := range ids {
			if state := other.waitState(60*time.Second, queue, id, "", "held"); state.Reason != "WebhookDeleted" {
				t.Errorf("held because of %s", state.Reason)
			}
		}
		for _, each := range []*process{p, other} {
			waitUntil(t, 60*time.Second, func() string {
				var q struct {
					Held  *struct{ Reason string }
					Depth struct{ Total int }
				}
				each.call(http.MethodGet, "/api/v1/queues/"+queue, "", http.StatusOK, &q)
				if q.Held == nil || q.Held.Reason != "WebhookDeleted" || q.Depth.Total != len(ids) {
					return fmt.Sprintf("the queue is shown as %+v", q)
				}
				return ""
			})
		}
		if n := len(in.all()); n != 0 {
			t.Errorf("%d POSTs, want none", n)
		}
		next := p.register(queue, in.url, nil)
		in.wait(t, len(ids))
		for _, id := range ids {
			p.waitState(20*time.Second, queue, id, next.ID, "delivered")
		}
		p.waitEmpty(10*time.Second, queue)
	})
}

// C85: another program deletes a registration while no process runs, and others stay. The next start tells it, what
// waits on its queue is guarded, and later starts have it for a deletion.
func TestARegistrationThatWentWhileNothingRanIsToldOnce(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p, in, stays, goes := s.start(t), newInbox(t, receiverOptions{}), queueName("stays"), queueName("goes")
		p.register(stays, in.url, nil)
		gone := p.register(goes, in.url, map[string]any{"enabled": false})
		waiting := p.publish(goes, `{"n":1}`)
		waitUntil(t, 60*time.Second, func() string { // of one that it has not met yet no later start can know
			var met struct{ Status *struct{} }
			p.call(http.MethodGet, "/api/v1/webhooks/"+gone.ID, "", http.StatusOK, &met)
			if met.Status == nil {
				return "the process has not met the webhook"
			}
			return ""
		})
		p.terminate()
		p.ended(30 * time.Second)
		s.removeRegistration(t, gone.ID)

		const line, check = "the registration of a webhook is gone from storage, and nobody deleted it through pushlease: it is taken for deleted, and nothing more is sent there",
			"registrations removed"
		for _, told := range []bool{true, false, false} {
			p = s.start(t)
			var failing map[string]string
			waitUntil(t, 60*time.Second, func() string { // then the first list was judged
				var status int
				if status, failing = p.ready(); status != http.StatusOK {
					return fmt.Sprintf("readyz: %d, %v", status, failing)
				}
				if _, ok := p.log.find(line); told && !ok {
					return "the log does not tell it: " + p.log.String()
				}
				return ""
			})
			if state := p.waitState(60*time.Second, goes, waiting, "", "held"); state.Reason != "WebhookDeleted" {
				t.Errorf("held because of %s", state.Reason)
			}
			if _, ok := p.log.find(line); ok && !told {
				t.Error("told in the log once more")
			}
			if detail, ok := failing[check]; ok != told || told && !strings.Contains(detail, gone.ID+" of "+goes) {
				t.Errorf("readyz: %v", failing)
			}
			p.terminate()
			p.ended(30 * time.Second)
		}
		p = s.start(t)
		p.register(goes, in.url, nil)
		in.wait(t, 1)
		p.waitEmpty(30*time.Second, goes)
	})
}

// removeRegistration deletes the row of a webhook as another program does.
func (s *store) removeRegistration(t *testing.T, id string) {
	t.Helper()
	if s.account == nil {
		tool, err := sql.Open("sqlite", strings.TrimPrefix(s.env[0], "PUSHLEASE_STORAGE=sqlite:"))
		if err == nil {
			_, err = tool.ExecContext(t.Context(), "DELETE FROM webhooks WHERE id = ?", id)
		}
		if err = errors.Join(err, tool.Close()); err != nil {
			t.Fatal(err)
		}
		return
	}
	s.removeRow(t, "Webhooks", "webhooks", id)
}

// removeRow deletes a row of an account's table as another program does.
func (s *store) removeRow(t *testing.T, name, partition, row string) {
	t.Helper()
	var prefix string
	for _, line := range s.env {
		if value, ok := strings.CutPrefix(line, "PUSHLEASE_TABLE_PREFIX="); ok {
			prefix = value
		}
	}
	key, err := aztables.NewSharedKeyCredential(s.account.Account, s.account.Key)
	if err != nil {
		t.Fatal(err)
	}
	table, err := aztables.NewClientWithSharedKey(s.account.TableURL+"/"+prefix+name, key, nil)
	if err == nil {
		_, err = table.DeleteEntity(t.Context(), partition, row, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// C85: a queue that another program takes off the list of those with dead letters is told at the next start, and back.
func TestAQueueThatIsTakenOffTheListOfDeadLettersIsTold(t *testing.T) {
	t.Parallel()
	s := azuriteStore(t)
	p, in, name := s.start(t), newInbox(t, receiverOptions{Answer: reply{Status: http.StatusBadRequest}}), queueName("unlisted")
	h := p.register(name, in.url, nil)
	p.waitState(30*time.Second, name, p.publish(name, `{"n":1}`), h.ID, "dead_lettered")
	s.removeRow(t, "DeadLetters", "~queues", name)
	inList := func() int {
		var list struct{ Data []struct{} }
		p.call(http.MethodGet, "/api/v1/dead-letters", "", http.StatusOK, &list)
		return len(list.Data)
	}
	if n := inList(); n != 0 {
		t.Fatalf("%d in the list of all: nothing is tested", n)
	}
	p.terminate()
	p.ended(30 * time.Second)
	p = s.start(t)
	waitUntil(t, 30*time.Second, func() string {
		if n := inList(); n != 1 {
			return fmt.Sprintf("%d dead letters in the list of all", n)
		}
		if !strings.Contains(p.log.String(), `"level":"ERROR","msg":"a queue was not on the list of those with dead letters`) {
			return "the log does not tell it: " + p.log.String()
		}
		return ""
	})
}

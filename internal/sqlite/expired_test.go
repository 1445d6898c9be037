package sqlite

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// wantLetters checks which dead letters there are, by webhook, in the order of their ids.
func letters(t *testing.T, db *DB) map[string]tables.DeadLetter {
	t.Helper()
	list, _, err := db.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: 100})
	must(t, err)
	byWebhook := make(map[string]tables.DeadLetter)
	for _, d := range list {
		full, err := db.GetDeadLetter(t.Context(), d.ID)
		must(t, err)
		byWebhook[d.WebhookID] = full
	}
	if len(byWebhook) != len(list) {
		t.Errorf("%d dead letters of %d webhooks", len(list), len(byWebhook))
	}
	return byWebhook
}

// register registers webhooks; the filter of picky takes nothing, and later is registered in a minute.
func register(t *testing.T, db *DB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		r := tables.Registration{Webhook: webhook.Webhook{ID: id, Queue: "orders"}}
		switch id {
		case "picky":
			r.Filter.Types = []string{"something.else"}
		case "later":
			r.CreatedAt = time.Now().Add(time.Minute)
		}
		_, err := db.PutWebhook(t.Context(), r)
		must(t, err)
	}
}

// C54: whatever state a message is in when its life ends, what it was still due is a dead
// letter, and every record is terminal.
func TestAMessageWhoseLifeEndsIsADeadLetterForWhomItWasDue(t *testing.T) {
	pending := tables.Delivery{State: tables.Pending, Reason: policy.RetryableError, Attempts: 2, Charged: 2, LastStatus: 503}
	held := tables.Delivery{State: tables.Held, Reason: policy.WebhookDisabled}
	delivered := tables.Delivery{State: tables.Delivered}
	withdrawn := tables.Delivery{State: tables.Withdrawn, Reason: policy.WebhookDeleted, Attempts: 1}
	with := func(d tables.Delivery, webhook string) tables.Delivery { d.WebhookID = webhook; return d }
	for name, tt := range map[string]struct {
		webhooks []string
		records  []tables.Delivery
		want     []string // webhooks of the dead letters
	}{
		"nobody knows of it":                              {nil, nil, []string{""}},
		"never received":                                  {[]string{"w1"}, []tables.Delivery{{State: tables.Published}}, []string{""}},
		"waits for its next attempt":                      {[]string{"w1"}, []tables.Delivery{with(pending, "w1")}, []string{"w1"}},
		"held":                                            {[]string{"w1"}, []tables.Delivery{with(held, "w1")}, []string{"w1"}},
		"held for a webhook that was deleted":             {nil, []tables.Delivery{with(held, "w1")}, []string{"w1"}},
		"one of two was not begun":                        {[]string{"w1", "w2"}, []tables.Delivery{with(pending, "w1")}, []string{""}},
		"one has it, the other was not recorded":          {[]string{"w1", "w2"}, []tables.Delivery{with(delivered, "w1")}, []string{"w2"}},
		"one has it, of the others one waits":             {[]string{"w1", "w2", "w3"}, []tables.Delivery{with(delivered, "w1"), with(pending, "w2")}, []string{"w2", "w3"}},
		"one has it, the other's filter does not take it": {[]string{"w1", "picky"}, []tables.Delivery{with(delivered, "w1")}, nil},
		"one has it, the other came later":                {[]string{"w1", "later"}, []tables.Delivery{with(delivered, "w1")}, nil},
		"one of two has it":                               {[]string{"w1", "w2"}, []tables.Delivery{with(delivered, "w1"), with(pending, "w2")}, []string{"w2"}},
		"delivered, and its delete is missing":            {[]string{"w1"}, []tables.Delivery{with(delivered, "w1")}, nil},
		"its one webhook was deleted":                     {nil, []tables.Delivery{with(withdrawn, "w1")}, []string{""}},
		"deleted, and there again":                        {[]string{"w1"}, []tables.Delivery{with(withdrawn, "w1")}, []string{""}},
		"deleted, and another one has begun":              {[]string{"w2"}, []tables.Delivery{with(withdrawn, "w1"), with(pending, "w2")}, []string{"w2"}},
		"deleted, and another one has it":                 {[]string{"w2"}, []tables.Delivery{with(withdrawn, "w1"), with(delivered, "w2")}, nil},
		"deleted, and there again, another one has it":    {[]string{"later", "w2"}, []tables.Delivery{with(withdrawn, "later"), with(delivered, "w2")}, []string{"later"}},
		"given up as a whole, and both are known": {
			[]string{"w1", "w2"},
			[]tables.Delivery{{State: tables.DeadLettering, Reason: policy.PoisonMessage, DeadLetterID: "later"}, with(pending, "w1"), with(pending, "w2")}, []string{""},
		},
		"nobody's filter takes it":                     {[]string{"w1"}, []tables.Delivery{{State: tables.Unmatched}}, nil},
		"nobody's filter took it, and one has begun":   {[]string{"w1", "w2"}, []tables.Delivery{{State: tables.Unmatched}, with(pending, "w1"), with(held, "w2")}, []string{"w1", "w2"}},
		"held as a whole":                              {nil, []tables.Delivery{{State: tables.Held, Reason: policy.NoWebhook}}, []string{""}},
		"given up, and its letter is not there":        {[]string{"w1"}, []tables.Delivery{with(tables.Delivery{State: tables.DeadLettering, Reason: policy.NonRetryableError, Attempts: 1, DeadLetterID: "later"}, "w1")}, []string{"w1"}},
		"given up, and another program emptied its id": {[]string{"w1"}, []tables.Delivery{with(tables.Delivery{State: tables.DeadLettering, Reason: policy.NonRetryableError, Attempts: 1, UpdatedAt: time.Now()}, "w1")}, []string{"w1"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var gone atomic.Int64
				var made []Expired
				db := openFile(t, filepath.Join(t.TempDir(), "p.db"), Options{
					OnExpired: func(e Expired) {
						if e.Queue != "orders" {
							t.Errorf("messages of %q are counted, want orders", e.Queue)
						}
						gone.Add(int64(e.Messages))
						made = append(made, e)
					}, Instance: "here",
				})
				q := mustQueue(t, db)
				register(t, db, tt.webhooks...)
				sent, err := q.Send(t.Context(), []byte(`{"n":1}`), queue.SendOptions{TTL: 20 * time.Second})
				must(t, err)
				key := tables.MessageKey{Queue: "orders", MessageID: sent.ID, Day: sent.InsertedAt}
				for _, d := range tt.records {
					d.MessageKey = key
					if d.DeadLetterID != "" {
						d.DeadLetterID = tables.DeadLetterID(key, d.WebhookID, 0, time.Now())
					}
					must(t, db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{d}}))
				}
				time.Sleep(20*time.Second + houseInterval)
				found := letters(t, db)
				if len(found) != len(tt.want) {
					t.Errorf("dead letters are %+v, want those of %q", found, tt.want)
				}
				for _, id := range tt.want {
					d, ok := found[id]
					reason := policy.Expired
					if len(tt.records) > 0 && tt.records[0].State == tables.DeadLettering {
						reason = tt.records[0].Reason
					}
					if !ok || d.Reason != reason || string(d.Text) != `{"n":1}` || d.Size != 7 || d.BodyHash != tables.BodyHash(d.Text) || d.Status != tables.Waiting || d.Instance != "here" || d.Description == "" {
						t.Errorf("the dead letter of %q is %+v", id, d)
					}
				}
				ds, err := db.Load(t.Context(), key)
				must(t, err)
				ends := make(map[string]tables.State)
				for _, d := range ds {
					ends[d.WebhookID] = d.State
				}
				for _, id := range tt.want {
					if ends[id] != tables.DeadLettered {
						t.Errorf("the record of %q ends as %q, want dead_lettered", id, ends[id])
					}
				}
				wantTotal(t, q, 0)
				if n := gone.Load(); n != 1 {
					t.Errorf("%d messages were counted, want 1", n)
				}
				if e := made[0]; len(e.Letters) != len(tt.want) || e.DeadLettered != min(len(tt.want), 1) {
					t.Errorf("told of %d dead letters of %d messages, want %q", len(e.Letters), e.DeadLettered, tt.want)
				}
				for _, d := range made[0].Letters {
					if !slices.Contains(tt.want, d.WebhookID) || d.ID == "" || d.Reason == "" || d.Text != nil {
						t.Errorf("told of the dead letter %+v", d)
					}
				}
			})
		})
	}
}

// C86: of a webhook, or of how far it is with a message, another program may have left nothing that can be read. The
// message's life ends all the same, and what that webhook was due is a dead letter.
func TestWhatCanNotBeReadWhenALifeEndsIsDue(t *testing.T) {
	const (
		badPolicy = `UPDATE webhooks SET registration = json_set(registration, '$.policy', 'x')`
		badAll    = `UPDATE webhooks SET registration = '{'`
		badDay    = `UPDATE deliveries SET inserted_at = -9e17`
		ofW1      = ` WHERE webhook_id = 'w1'`
	)
	for name, tt := range map[string]struct {
		change  string
		records map[string]tables.State // by webhook
		want    []string                // webhooks of the dead letters
	}{
		"a webhook, and the other one waits":  {badPolicy + ` WHERE id = 'w2'`, map[string]tables.State{"w1": tables.Pending}, []string{""}},
		"a webhook, and the other one has it": {badPolicy + ` WHERE id = 'w2'`, map[string]tables.State{"w1": tables.Delivered}, []string{"w2"}},
		"a webhook whose queue is not there":  {badAll + ` WHERE id = 'w2'`, map[string]tables.State{"w1": tables.Delivered}, []string{"w2"}},
		"a webhook that has it":               {badPolicy + ` WHERE id = 'w2'`, map[string]tables.State{"w1": tables.Pending, "w2": tables.Delivered}, []string{"w1"}},
		"a webhook of another queue":          {`UPDATE webhooks SET registration = '{"queue":"others"' WHERE id = 'w2'`, map[string]tables.State{"w1": tables.Delivered}, nil},
		"a webhook, cut in its queue":         {`UPDATE webhooks SET registration = substr(registration, 1, instr(registration, '"queue":"') + 11) WHERE id = 'w2'`, map[string]tables.State{"w1": tables.Delivered}, []string{"w2"}},
		"a webhook, in the name of its queue": {`UPDATE webhooks SET registration = replace(registration, '"queue":"orders', '"queue":"ord' || char(1) || 'rs') WHERE id = 'w2'`, map[string]tables.State{"w1": tables.Delivered}, []string{"w2"}},
		"a webhook in other white space":      {`UPDATE webhooks SET registration = replace(registration, '"queue":"', '"queue" : "') WHERE id = 'w2'`, map[string]tables.State{"w1": tables.Delivered}, []string{"w2"}},
		"the day of what waits":               {badDay, map[string]tables.State{"w1": tables.Pending, "w2": tables.Pending}, []string{"w1", "w2"}},
		"the day of one that waits":           {badDay + ofW1, map[string]tables.State{"w1": tables.Pending, "w2": tables.Delivered}, []string{"w1"}},
		"the state of one":                    {`UPDATE deliveries SET state = 'Delivered'` + ofW1, map[string]tables.State{"w1": tables.Pending, "w2": tables.Delivered}, []string{"w1"}},
		"the day of one that has it":          {badDay + ofW1, map[string]tables.State{"w1": tables.Delivered, "w2": tables.Pending}, []string{"w1", "w2"}},
		"the day of what was held as a whole": {badDay, map[string]tables.State{"": tables.Held}, []string{""}},
		"when it was that no filter took it":  {`UPDATE deliveries SET updated_at = 9e17`, map[string]tables.State{"": tables.Unmatched}, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				db := openNew(t)
				q := mustQueue(t, db)
				register(t, db, "w1", "w2")
				sent, err := q.Send(t.Context(), []byte(`{"n":1}`), queue.SendOptions{TTL: 20 * time.Second})
				must(t, err)
				key := tables.MessageKey{Queue: "orders", MessageID: sent.ID, Day: sent.InsertedAt}
				for id, state := range tt.records {
					must(t, db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: id, State: state}}}))
				}
				other(t, db.path, tt.change)
				time.Sleep(20*time.Second + houseInterval)
				found := letters(t, db)
				for _, id := range tt.want {
					if d, ok := found[id]; !ok || d.Reason != policy.Expired || string(d.Text) != `{"n":1}` || !d.InsertedAt.Equal(sent.InsertedAt) {
						t.Errorf("the dead letter of %q is %+v", id, d)
					}
				}
				if len(found) != len(tt.want) {
					t.Errorf("dead letters are %+v, want those of %q", found, tt.want)
				}
				wantTotal(t, q, 0)
			})
		})
	}
}

// A message that expires is decided about with the webhooks of its queue: those of others, of which there may be ten thousand, are not decoded.
func TestOnlyTheWebhooksOfItsQueueAreReadWhenALifeEnds(t *testing.T) {
	db := openNew(t)
	register(t, db, "w1")
	for _, text := range []string{`{"id":"w2","queue":"others"}`, `{"id":"w3", "queue": "others"}`, `{"id":"w4"`} {
		other(t, db.path, `INSERT INTO webhooks VALUES ('`+text[7:9]+`', 'e', '`+text+`')`)
	}
	var read []string
	err := db.readRows(t.Context(), query{text: webhooksSQL, args: []any{`"queue":"orders"`}}, func(scan func(...any) error) (bool, error) {
		var id, stored string
		err := scan(&id, &stored)
		read = append(read, id)
		return true, err
	})
	must(t, err)
	var due []string
	must(t, db.write(t.Context(), serviceQueue, "test", func(tx *tx) error {
		list, err := tx.webhooksOf("orders")
		for _, r := range list {
			due = append(due, r.ID)
		}
		return err
	}))
	if !slices.Equal(read, []string{"w1", "w3", "w4"}) || !slices.Equal(due, []string{"w1", "w4"}) {
		t.Errorf("read are %q, and due to %q", read, due)
	}
}

// While somebody holds the lease the message is that one's, whatever the time is.
func TestAMessageThatExpiresInWorkIsItsHoldersUntilTheLeaseEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		for range 2 {
			_, err := q.Send(t.Context(), []byte("a"), queue.SendOptions{TTL: 20 * time.Second})
			must(t, err)
		}
		ms, err := q.Receive(t.Context(), 2, 10*time.Minute)
		must(t, err)
		time.Sleep(5 * time.Minute)
		if found := letters(t, db); len(found) != 0 {
			t.Fatalf("dead letters in the middle of the lease: %+v", found)
		}
		// One is delivered late, the other never.
		must(t, q.Renew(t.Context(), ms[1], 5*time.Minute), db.Queues().CompleteRecorded(t.Context(), "orders", ms[0], tables.Record{Deliveries: []tables.Delivery{{
			MessageKey: messageKeyOf(q, ms[0]), WebhookID: "w", State: tables.Delivered,
		}}}))
		time.Sleep(5*time.Minute + houseInterval)
		list, _, err := db.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: 10})
		must(t, err)
		if len(list) != 1 || list[0].MessageID != ms[1].ID || list[0].DequeueCount != 1 {
			t.Errorf("dead letters are %+v, want the one that nobody delivered", list)
		}
		wantTotal(t, q, 0)
	})
}

func TestExpiredMessagesHaveACopyWhereDeadLettersHaveOne(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openFile(t, filepath.Join(t.TempDir(), "p.db"), Options{PoisonCopy: true})
		for _, name := range []string{"orders", "orders-poison"} {
			q, err := db.Queues().Queue(name)
			must(t, err)
			_, err = q.Send(t.Context(), []byte(name), queue.SendOptions{TTL: time.Second})
			must(t, err)
		}
		time.Sleep(2 * houseInterval)
		poison, err := db.Queues().Queue("orders-poison")
		must(t, err)
		ms := receiveAll(t, poison)
		if len(ms) != 1 || string(ms[0].Text) != "orders" || !ms[0].ExpiresAt.IsZero() {
			t.Errorf("%d messages are on the poison queue, want the one copy, without an expiry", len(ms))
		}
		list, _, err := db.ListDeadLetters(t.Context(), tables.DeadLetterFilter{Queue: "orders"}, tables.Page{Limit: 10})
		must(t, err)
		if len(list) != 1 || list[0].CopiedToQueue != "orders-poison" {
			t.Errorf("dead letters are %+v", list)
		}
	})
}

// The process died when one webhook's dead letter, and the copy, were there, and before that was on record.
func TestAMessageWhoseCopyIsNotedGetsNoneForAnotherWebhook(t *testing.T) {
	for _, state := range []tables.State{tables.Held, tables.DeadLettering} {
		bubble.Test(t, func(t *testing.T) {
			db := openFile(t, filepath.Join(t.TempDir(), "p.db"), Options{PoisonCopy: true})
			sent, err := mustQueue(t, db).Send(t.Context(), []byte("a"), queue.SendOptions{TTL: time.Second})
			must(t, err)
			key := tables.MessageKey{Queue: "orders", MessageID: sent.ID, Day: sent.InsertedAt}
			id := tables.DeadLetterID(key, "w2", 0, time.Now())
			must(t, db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{
				{MessageKey: key, WebhookID: "w1", State: state, Reason: policy.WebhookDisabled, UpdatedAt: time.Now().Add(time.Millisecond)},
				{MessageKey: key, WebhookID: "w2", State: tables.DeadLettering, Reason: policy.NonRetryableError, DeadLetterID: id, UpdatedAt: time.Now()},
			}}))
			_, err = db.PutDeadLetter(t.Context(), tables.DeadLetter{
				ID: id, MessageKey: key, WebhookID: "w2", Status: tables.Waiting, Reason: policy.NonRetryableError, Text: []byte("a"), CopiedToQueue: "orders-poison",
			})
			must(t, err)
			time.Sleep(2 * houseInterval)
			if found := letters(t, db); len(found) != 2 {
				t.Errorf("the dead letters are %+v", found)
			}
			poison, err := db.Queues().Queue("orders-poison")
			must(t, err)
			if _, err := poison.Depth(t.Context()); !errors.Is(err, queue.ErrQueueNotFound) {
				t.Errorf("the poison queue: %v, want that there is none", err)
			}
		})
	}
}

// One webhook has its dead letter, and the message its copy, when its life ends for another one.
func TestAMessageThatHasItsCopyGetsNoneWhenItsLifeEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openFile(t, filepath.Join(t.TempDir(), "p.db"), Options{PoisonCopy: true})
		sent, err := mustQueue(t, db).Send(t.Context(), []byte("a"), queue.SendOptions{TTL: time.Second})
		must(t, err)
		key := tables.MessageKey{Queue: "orders", MessageID: sent.ID, Day: sent.InsertedAt}
		must(t, db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{
			{MessageKey: key, WebhookID: "w1", State: tables.DeadLettered, Reason: policy.NonRetryableError},
			{MessageKey: key, WebhookID: "w2", State: tables.Held, Reason: policy.WebhookDisabled},
		}}))
		time.Sleep(2 * houseInterval)
		if found := letters(t, db); len(found) != 1 || found["w2"].Reason != policy.Expired {
			t.Errorf("the dead letters are %+v", found)
		}
		poison, err := db.Queues().Queue("orders-poison")
		must(t, err)
		if _, err := poison.Depth(t.Context()); !errors.Is(err, queue.ErrQueueNotFound) {
			t.Errorf("the poison queue: %v, want that there is none", err)
		}
	})
}

// Another program has made a text one that no queue takes: its dead letter is without a copy, and nothing else waits for somebody who mends the row.
func TestATextThatNoCopyTakesHoldsUpNothing(t *testing.T) {
	for name, text := range map[string][]byte{"no text": {0xff}, "too long": []byte(strings.Repeat("a", queue.MaxTextBytes+1))} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "p.db")
				db := openFile(t, path, Options{PoisonCopy: true})
				q := mustQueue(t, db)
				_, err := q.Send(t.Context(), []byte("a"), queue.SendOptions{TTL: time.Second})
				must(t, err)
				other, err := db.Queues().Queue("others")
				must(t, err)
				_, err = other.Send(t.Context(), []byte("b"), queue.SendOptions{})
				must(t, err)
				must(t, db.write(t.Context(), "queue", "test", func(tx *tx) error {
					_, err := tx.exec("UPDATE messages SET short_text = ? WHERE short_text = ?", text, []byte("a"))
					return err
				}))
				time.Sleep(2 * time.Second)
				if ms, err := other.Receive(t.Context(), 1, time.Minute); err != nil || len(ms) != 1 {
					t.Errorf("another queue: %d messages, %v", len(ms), err)
				}
				time.Sleep(2 * houseInterval)
				if d := letters(t, db); len(d) != 1 || d[""].CopiedToQueue != "" {
					t.Errorf("dead letters %+v", d)
				}
			})
		})
	}
}

// The process died between the dead letter, or its copy, and the last record.
func TestADeadLetterThatWasStoredBeforeTheLifeEndedIsKeptAsItWas(t *testing.T) {
	for name, copyOf := range map[string]string{"no copy yet": "", "copied": "orders-poison"} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				db := openFile(t, filepath.Join(t.TempDir(), "p.db"), Options{PoisonCopy: true})
				sent, err := mustQueue(t, db).Send(t.Context(), []byte("a"), queue.SendOptions{TTL: time.Second})
				must(t, err)
				key := tables.MessageKey{Queue: "orders", MessageID: sent.ID, Day: sent.InsertedAt}
				d := tables.Delivery{MessageKey: key, WebhookID: "w", State: tables.DeadLettering, Reason: policy.NonRetryableError, DeadLetterID: tables.DeadLetterID(key, "w", 0, time.Now())}
				must(t, db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{d}}))
				_, err = db.PutDeadLetter(t.Context(), tables.DeadLetter{
					ID: d.DeadLetterID, MessageKey: key, WebhookID: "w", Status: tables.Waiting, Reason: policy.NonRetryableError,
					Description: "The webhook answered 400.", Text: []byte("a"), CopiedToQueue: copyOf,
				})
				must(t, err)
				time.Sleep(2 * houseInterval)
				poison, err := db.Queues().Queue("orders-poison")
				must(t, err)
				ms, err := poison.Receive(t.Context(), 10, time.Minute)
				if copied := errors.Is(err, queue.ErrQueueNotFound); copied != (copyOf != "") || !copied && len(ms) != 1 {
					t.Errorf("%d copies were put on the poison queue (%v)", len(ms), err)
				}
				found := letters(t, db)
				if l := found["w"]; len(found) != 1 || l.Description != "The webhook answered 400." || l.CopiedToQueue != "orders-poison" {
					t.Errorf("the dead letters are %+v", found)
				}
			})
		})
	}
}

func TestTextsThatCannotBeReadExpireAsTheyAre(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openFile(t, filepath.Join(t.TempDir(), "p.db"), Options{Encoding: func(string) queue.Encoding { return queue.EncodingBase64 }})
		_, err := mustQueue(t, db).Send(t.Context(), []byte("!!!"), queue.SendOptions{TTL: time.Second})
		must(t, err)
		time.Sleep(2 * houseInterval)
		if d := letters(t, db)[""]; string(d.Text) != "!!!" || d.Encoding != "base64" || d.BodyHash != tables.BodyHash(d.Text) {
			t.Errorf("the dead letter is %+v", d)
		}
	})
}

func TestAReplayThatNobodyReceivedCanBeAskedForAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		key := tables.MessageKey{Queue: "orders", MessageID: "m", Day: time.Now()}
		d, err := db.PutDeadLetter(t.Context(), tables.DeadLetter{
			ID: tables.DeadLetterID(key, "w", 0, time.Now()), MessageKey: key, WebhookID: "w", Status: tables.Replaying, ReplayToken: "secret", Replays: 1,
		})
		must(t, err)
		pointer := func(token string) queue.Sent {
			text, err := queue.EncodeReplay(queue.EncodingAuto, queue.Replay{DeadLetter: d.ID, Token: token})
			must(t, err)
			sent, err := q.Send(t.Context(), text, queue.SendOptions{TTL: time.Hour})
			must(t, err)
			return sent
		}
		pointer("another")
		time.Sleep(time.Hour + houseInterval)
		if now, err := db.GetDeadLetter(t.Context(), d.ID); err != nil || now.Status != tables.Replaying {
			t.Errorf("a forged pointer made it %+v, %v", now, err)
		}
		sent := pointer("secret")
		begun := tables.Delivery{MessageKey: tables.MessageKey{Queue: "orders", MessageID: "m", Day: sent.InsertedAt}, WebhookID: "w", Generation: 1, State: tables.Held}
		must(t, db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{begun}}))
		time.Sleep(time.Hour + houseInterval)
		now, err := db.GetDeadLetter(t.Context(), d.ID)
		if err != nil || now.Status != tables.Waiting || now.ReplayToken != "" || now.ETag == d.ETag {
			t.Errorf("the dead letter is %+v, %v, want it to wait again", now, err)
		}
		ds, err := db.Load(t.Context(), begun.MessageKey)
		if err != nil || len(ds) != 1 || ds[0].State != tables.DeadLettered || ds[0].DeadLetterID != d.ID {
			t.Errorf("the replay's record is %+v, %v", ds, err)
		}
		if n := len(letters(t, db)); n != 1 {
			t.Errorf("%d dead letters, want the one that was replayed", n)
		}
	})
}

// A replay of a message as a whole that some webhooks have, and whose message expires, goes on as a dead letter for each other one.
func TestAReplayThatReachedSomeLeavesADeadLetterForEachOther(t *testing.T) {
	for name, tt := range map[string]struct {
		has  tables.State
		own  bool // a webhook has a dead letter of its own, which was replayed since
		want []string
	}{
		"one has it":                  {tables.Delivered, false, []string{"", "w2", "w3"}},
		"one has it, and one its own": {tables.Delivered, true, []string{"", "w2", "w3"}},
		"one has its own":             {tables.Pending, true, []string{"", "w1", "w2", "w3"}},
		"nobody has it":               {tables.Pending, false, []string{""}},
	} {
		bubble.Test(t, func(t *testing.T) {
			var told int
			db := openFile(t, filepath.Join(t.TempDir(), "test.db"), Options{OnExpired: func(e Expired) { told += len(e.Letters) }})
			register(t, db, "w1", "w2", "w3", "picky")
			whole := tables.MessageKey{Queue: "orders", MessageID: "m", Day: time.Now()}
			d, err := db.PutDeadLetter(t.Context(), tables.DeadLetter{
				ID: tables.DeadLetterID(whole, "", 0, time.Now()), MessageKey: whole, Status: tables.Replaying, ReplayToken: "secret", Replays: 1,
				Text: []byte(`{"n":1}`), Encoding: "auto", Size: 7, BodyHash: tables.BodyHash([]byte(`{"n":1}`)),
			})
			must(t, err)
			text, err := queue.EncodeReplay(queue.EncodingAuto, queue.Replay{DeadLetter: d.ID, Token: "secret"})
			must(t, err)
			sent, err := mustQueue(t, db).Send(t.Context(), text, queue.SendOptions{TTL: time.Hour})
			must(t, err)
			key := tables.MessageKey{Queue: "orders", MessageID: "m", Day: sent.InsertedAt}
			for id, state := range map[string]tables.State{"w1": tt.has, "w2": tables.Held} {
				must(t, db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: id, Generation: 1, State: state}}}))
			}
			if tt.own {
				register(t, db, "own")
				key.Day = key.Day.Add(time.Minute)
				must(t, db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{{MessageKey: key, WebhookID: "own", Generation: 2, State: tables.Delivered}}}))
			}
			time.Sleep(time.Hour + houseInterval)
			var left []string
			for id, l := range letters(t, db) {
				left = append(left, id)
				replayed := id == "" && len(tt.want) > 1
				if replayed != (l.Status == tables.Replayed) || !replayed && l.Status != tables.Waiting || l.ReplayToken != "" || string(l.Text) != `{"n":1}` || id != "" && l.Generation != 1 {
					t.Errorf("the dead letter of %q is %+v", id, l)
				}
			}
			if slices.Sort(left); !slices.Equal(left, tt.want) || told != len(tt.want)-1 {
				t.Errorf("%s: dead letters of %q, told of %d, want %q", name, left, told, tt.want)
			}
		})
	}
}

// A message whose life ends is nothing to the replay of what one of its webhooks had refused, though
// the records of both are those of one message and one day.
func TestAMessageThatExpiresLeavesItsReplayAlone(t *testing.T) { // C54
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		register(t, db, "w1", "w2")
		sent, err := q.Send(t.Context(), []byte("a"), queue.SendOptions{TTL: time.Hour})
		must(t, err)
		time.Sleep(time.Minute)
		key := tables.MessageKey{Queue: "orders", MessageID: sent.ID, Day: sent.InsertedAt}
		ofReplay := key
		ofReplay.Day = time.Now().UTC()
		replayed := tables.Delivery{MessageKey: ofReplay, WebhookID: "w1", Generation: 1, State: tables.Pending, Reason: policy.RetryableError, Attempts: 1, NextAt: time.Now().Add(2 * time.Hour)}
		must(t, db.Record(t.Context(), tables.Record{Deliveries: []tables.Delivery{
			replayed, {MessageKey: key, WebhookID: "w2", State: tables.Pending, Attempts: 2},
			{MessageKey: ofReplay, Generation: 1, State: tables.Held, Reason: policy.WebhookDeleted},
		}}))
		time.Sleep(time.Hour + houseInterval)
		found := letters(t, db)
		if len(found) != 1 || found["w2"].Reason != policy.Expired || found["w2"].Attempts != 2 {
			t.Errorf("dead letters are %+v, want that of w2", found)
		}
		ds, err := db.Load(t.Context(), key)
		must(t, err)
		for _, d := range ds {
			if ended := d.WebhookID == "w2"; d.State.Terminal() != ended {
				t.Errorf("the record of %q is %s", d.WebhookID, d.State)
			}
		}
		if len(ds) != 3 {
			t.Errorf("%d records, want 3", len(ds))
		}
		wantTotal(t, q, 0)
	})
}

// What expired while nobody ran does not hold up the start: whoever opens the file gets some of it, and the rest is ended
// when the file is in use.
func TestAFileThatWasDownForLongIsOpenedAtOnce(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "test.db")
		db := openFile(t, path, Options{})
		q := mustQueue(t, db)
		const n = 3*endAtOnce + 7
		for i := range n {
			_, err := q.Send(t.Context(), []byte(fmt.Sprint(i)), queue.SendOptions{TTL: time.Minute})
			must(t, err)
		}
		must(t, db.Close())
		time.Sleep(time.Hour)
		var ended atomic.Int64
		openFile(t, path, Options{OnExpired: func(e Expired) { ended.Add(int64(e.Messages)) }})
		if got := ended.Load(); got != endAtOnce {
			t.Errorf("%d messages were ended by opening the file, want %d", got, endAtOnce)
		}
		time.Sleep(houseInterval + time.Second)
		if got := ended.Load(); got != n {
			t.Errorf("%d messages were ended, want %d", got, n)
		}
	})
}

// Many that expire together are ended in steps, and none is left out.
func TestManyThatExpireTogetherAreAllEnded(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openNew(t)
		q := mustQueue(t, db)
		const n = 3*endAtOnce + 7
		for i := range n {
			_, err := q.Send(t.Context(), []byte(fmt.Sprint(i)), queue.SendOptions{TTL: time.Minute})
			must(t, err)
		}
		time.Sleep(time.Minute + houseInterval)
		count, exact, err := tables.CountDeadLetters(t.Context(), db, tables.DeadLetterFilter{Reason: policy.Expired}, 10*n, 100, nil)
		if count != n || !exact || err != nil {
			t.Errorf("%d dead letters (%t, %v), want %d", count, exact, err, n)
		}
	})
}

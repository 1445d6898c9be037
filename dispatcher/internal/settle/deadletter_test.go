package settle

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/pushlease/pushlease/dispatcher/internal/journal"
	"github.com/pushlease/pushlease/dispatcher/internal/meter"
	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/internal/sqlite"
	"github.com/pushlease/pushlease/internal/sqlite/sqlitetest"
	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
)

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

// letters is a real store whose updates of dead letters and sends can fail.
type letters struct {
	*sqlite.DB
	queue.Service
	refuses, breaks error // of a send, and of an update
	meanwhile       func()
	updates, shown  int
}

type refusing struct {
	queue.Queue
	s *letters
}

func (s *letters) Queue(name string) (queue.Queue, error) {
	q, err := s.Service.Queue(name)
	return refusing{q, s}, err
}

func (q refusing) Send(ctx context.Context, text []byte, o queue.SendOptions) (queue.Sent, error) {
	if q.s.refuses != nil {
		return queue.Sent{}, q.s.refuses
	}
	return q.Queue.Send(ctx, text, o)
}

func (s *letters) UpdateDeadLetter(ctx context.Context, d tables.DeadLetter) (tables.DeadLetter, error) {
	s.updates++
	if s.breaks != nil {
		return d, s.breaks
	}
	if do := s.meanwhile; do != nil {
		s.meanwhile = nil
		do()
	}
	return s.DB.UpdateDeadLetter(ctx, d)
}

// inLetters runs f with a completer over a real store, alone.
func inLetters(t *testing.T, f func(t *testing.T, s *letters, c *Completer)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), sqlitetest.File(t), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}()
		m, err := meter.New(metricnoop.NewMeterProvider().Meter(""))
		if err != nil {
			t.Fatal(err)
		}
		s, log := &letters{DB: db, Service: db.Queues()}, slog.New(slog.DiscardHandler)
		f(t, s, New(Options{
			Queues: s, DeadLetters: s, Journal: journal.New(db, m, log), Meter: m, PoisonCopy: true,
			Spans: meter.Spans{Tracer: tracenoop.NewTracerProvider().Tracer("")}, Log: log,
			GivenBack: func(string, *queue.Message, time.Duration, bool) { s.shown++ },
		}))
	})
}

// givenUp is a dead letter as delivering makes it.
func givenUp(queueName string) *DeadLetter {
	now := time.Now().UTC().Truncate(time.Millisecond)
	key := tables.MessageKey{Queue: queueName, MessageID: "m", Day: now}
	id := tables.DeadLetterID(key, "wh", 0, now)
	return &DeadLetter{
		Copy: true,
		Row: tables.DeadLetter{
			ID: id, MessageKey: key, WebhookID: "wh", Status: tables.Waiting, Reason: policy.NonRetryableError,
			DeadLetteredAt: now, InsertedAt: now, Text: []byte("text"), Encoding: "auto", Size: 4, BodyHash: tables.BodyHash([]byte("text")),
		},
		Delivery: tables.Delivery{
			MessageKey: key, WebhookID: "wh", State: tables.DeadLettering, Reason: policy.NonRetryableError, DeadLetterID: id, UpdatedAt: now,
		},
	}
}

func (s *letters) copies(t *testing.T, queueName string) int {
	t.Helper()
	q, err := s.Service.Queue(queueName)
	if err != nil {
		t.Fatal(err)
	}
	depth, err := q.Depth(t.Context())
	if errors.Is(err, queue.ErrQueueNotFound) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return int(depth.Total)
}

func (s *letters) stateOf(t *testing.T, key tables.MessageKey) tables.State {
	t.Helper()
	list, err := s.Load(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		return ""
	}
	return list[0].State
}

func TestADeadLetterHasOneCopyHoweverOftenItsStepsAreRepeated(t *testing.T) {
	inLetters(t, func(t *testing.T, s *letters, c *Completer) {
		dl := givenUp("orders")
		for range 2 {
			if err := c.DeadLetter(t.Context(), dl); err != nil {
				t.Fatal(err)
			}
		}
		want(t, "copies", s.copies(t, "orders-poison"), 1)
		want(t, "copies whose end of hiding was told", s.shown, 1)
		row, err := s.GetDeadLetter(t.Context(), dl.Row.ID)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "the copy's queue on the row", row.CopiedToQueue, "orders-poison")
		want(t, "the text on the row", string(row.Text), "text")
		want(t, "the delivery", s.stateOf(t, dl.Row.MessageKey), tables.DeadLettered)
	})
}

func TestWhatBecomesOfADeadLetterWhoseCopyCanNotBeMade(t *testing.T) {
	for name, tt := range map[string]struct {
		queue           string
		refuses, breaks error
		fails           bool
		copies          int
		state           tables.State
	}{
		"the poison queue refuses it":                 {"orders", queue.ErrTooLarge, nil, false, 0, tables.DeadLettered},
		"storage does not answer: the message stays":  {"orders", errors.New("away"), nil, true, 0, ""},
		"it is there, and that can't be noted":        {"orders", nil, errors.New("away"), false, 1, tables.DeadLettered},
		"the queue is a poison queue itself":          {"orders-poison", nil, nil, false, 0, tables.DeadLettered},
		"its name leaves no room for that of another": {"orders-56789-123456789-123456789-123456789-123456789-123456789", nil, nil, false, 0, tables.DeadLettered},
	} {
		t.Run(name, func(t *testing.T) {
			inLetters(t, func(t *testing.T, s *letters, c *Completer) {
				dl := givenUp(tt.queue)
				s.refuses, s.breaks = tt.refuses, tt.breaks
				if err := c.DeadLetter(t.Context(), dl); (err != nil) != tt.fails {
					t.Errorf("it ended with %v, want an error %t", err, tt.fails)
				}
				want(t, "copies", s.copies(t, "orders-poison"), tt.copies)
				want(t, "the delivery", s.stateOf(t, dl.Row.MessageKey), tt.state)
				if _, err := s.GetDeadLetter(t.Context(), dl.Row.ID); err != nil {
					t.Errorf("the dead letter itself: %v", err)
				}
			})
		})
	}
}

func TestAReplayEndsOnlyWhatItWasAskedFor(t *testing.T) {
	for name, tt := range map[string]struct {
		token, onRow string
		before       tables.DeadLetterStatus
		meanwhile    string // another replay, asked for while this one's end is written
		after        tables.DeadLetterStatus
		afterToken   string
		replays      int
	}{
		"its own":                          {"t", "t", tables.Replaying, "", tables.Replayed, "", 1},
		"another one was asked for since":  {"t", "new", tables.Replaying, "", tables.Replaying, "new", 1},
		"another one is asked for just so": {"t", "t", tables.Replaying, "new", tables.Replaying, "new", 1},
		"it has ended before":              {"t", "", tables.Replayed, "", tables.Replayed, "", 1},
		"nobody asked: its copy was taken": {"", "", tables.Waiting, "", tables.Replayed, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			inLetters(t, func(t *testing.T, s *letters, c *Completer) {
				row := givenUp("orders").Row
				row.Status, row.ReplayToken, row.Replays = tt.before, tt.onRow, 1
				stored, err := s.PutDeadLetter(t.Context(), row)
				if err != nil {
					t.Fatal(err)
				}
				if tt.meanwhile != "" {
					s.meanwhile = func() {
						stored.ReplayToken = tt.meanwhile
						if _, err := s.DB.UpdateDeadLetter(t.Context(), stored); err != nil {
							t.Error(err)
						}
					}
				}
				ends := row
				ends.ReplayToken = tt.token
				if err := c.finishReplay(t.Context(), ends); err != nil {
					t.Error(err)
				}
				now, err := s.GetDeadLetter(t.Context(), row.ID)
				if err != nil {
					t.Fatal(err)
				}
				want(t, "status", now.Status, tt.after)
				want(t, "token", now.ReplayToken, tt.afterToken)
				want(t, "replays", now.Replays, tt.replays)
			})
		})
	}
}

func TestAReplayWhoseDeadLetterIsGoneEnds(t *testing.T) {
	inLetters(t, func(t *testing.T, s *letters, c *Completer) {
		if err := c.finishReplay(t.Context(), givenUp("orders").Row); err != nil {
			t.Errorf("a dead letter that an operator deleted: %v", err)
		}
		want(t, "updates", s.updates, 0)
	})
}

package tables

import (
	"context"
	"testing"
	"time"
)

// replayRecords are the records of a message, by day, and its dead letters.
type replayRecords struct {
	Deliveries
	DeadLetters
	rows    []Delivery
	letters []DeadLetter
	ended   []Delivery
}

func (s *replayRecords) Load(_ context.Context, key MessageKey) (of []Delivery, err error) {
	for _, r := range s.rows {
		if dayOf(r.Day).Equal(dayOf(key.Day)) {
			of = append(of, r)
		}
	}
	return of, nil
}

func (s *replayRecords) Record(_ context.Context, r Record) error {
	s.ended = append(s.ended, r.Deliveries...)
	return nil
}

func (s *replayRecords) ListDeadLetters(context.Context, DeadLetterFilter, Page) ([]DeadLetter, Cursor, error) {
	return s.letters, "", nil
}

// A replay was asked for by the clock of an instance, and its message was inserted by storage's. The two may be half a minute apart, and each
// from the true time.
func TestTheEndOfAReplayFindsItsRecordWhateverTheClocksSay(t *testing.T) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	midnight := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		asked    time.Time
		inserted time.Duration   // after it was asked for
		others   []time.Duration // when other dead letters of the message were replayed, after that
		ended    int
	}{
		"inserted at once":                        {noon, 0, nil, 1},
		"inserted later":                          {noon, 10 * time.Second, nil, 1},
		"by a clock that is ahead":                {noon, -50 * time.Second, nil, 1},
		"by a clock that is ahead, on a new day":  {midnight.Add(20 * time.Second), -50 * time.Second, nil, 1},
		"by a clock that is behind, before a day": {midnight.Add(-20 * time.Second), 50 * time.Second, nil, 1},
		"the same, and sent a while later":        {midnight.Add(-70 * time.Second), 75 * time.Second, nil, 1},
		"the record is of the replay before":      {noon, -50 * time.Second, []time.Duration{-55 * time.Second}, 0},
		"after the replay before":                 {noon, 0, []time.Duration{-55 * time.Second}, 1},
		"the record is of the next replay":        {noon, 20 * time.Second, []time.Duration{15 * time.Second}, 0},
		"before the next replay":                  {noon, 0, []time.Duration{15 * time.Second}, 1},
	} {
		key := MessageKey{Queue: "orders", MessageID: "m", Day: tt.asked.Add(tt.inserted)}
		d := DeadLetter{ID: "d", MessageKey: key, WebhookID: "wh", Replays: 1, ReplayedAt: tt.asked}
		s := &replayRecords{rows: []Delivery{{MessageKey: key, WebhookID: "wh", Generation: 1, State: Held}}, letters: []DeadLetter{d, {ID: "never", WebhookID: "wh"}}}
		for _, at := range tt.others {
			s.letters = append(s.letters, DeadLetter{ID: at.String(), WebhookID: "wh", ReplayedAt: tt.asked.Add(at)})
		}
		if err := EndReplay(t.Context(), s, s, &d); err != nil {
			t.Fatal(err)
		}
		if len(s.ended) != tt.ended {
			t.Errorf("%s: %d records were ended, want %d", name, len(s.ended), tt.ended)
		}
	}
}

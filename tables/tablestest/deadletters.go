package tablestest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

var deadLetterTests = []test{
	{"EveryFieldIsKept", deadLetterFields},
	{"PutAgainNeverOverwrites", deadLetterPutAgain},
	{"UpdateNeedsTheETag", deadLetterUpdate},
	{"DeleteNeedsTheETag", deadLetterDelete},
	{"TextIsKeptByteForByteAndNotListed", deadLetterText},
	{"UnknownIDsAreNotFound", deadLetterUnknown},
	{"NewestFirstAcrossQueues", deadLettersNewestFirst},
	{"CursorsStayGoodWhileRowsComeAndGo", deadLetterCursors},
	{"Filters", deadLetterFilters},
	{"HostileKeysAreKept", deadLetterHostile},
	{"BadCursorsAndLimits", deadLetterBadPages},
	{"ConcurrentPutsAgree", deadLetterPutRace},
	{"OneOfConcurrentUpdatesWins", deadLetterUpdateRace},
}

// deadLetterOf is deadLetter with another queue.
func deadLetterOf(queue, id, webhookID string, at time.Time) tables.DeadLetter {
	d := deadLetter(id, webhookID, at)
	d.Queue = queue
	d.ID = tables.DeadLetterID(d.MessageKey, webhookID, d.Generation, at)
	return d
}

func wantDeadLetter(t *testing.T, s tables.Store, want tables.DeadLetter) {
	t.Helper()
	got, err := s.GetDeadLetter(t.Context(), want.ID)
	if err != nil {
		t.Fatalf("GetDeadLetter(%s): %v", want.ID, err)
	}
	if d := diff(want, got); d != "" {
		t.Errorf("GetDeadLetter(%s) (-want +got):\n%s", want.ID, d)
	}
}

func listDeadLetters(t *testing.T, s tables.Store, f tables.DeadLetterFilter, limit int, between func(int)) []tables.DeadLetter {
	t.Helper()
	return walk(t, limit, func(p tables.Page) ([]tables.DeadLetter, tables.Cursor, error) {
		return s.ListDeadLetters(t.Context(), f, p)
	}, between)
}

// listed is what a list shows of rows.
func listed(ds []tables.DeadLetter) []tables.DeadLetter {
	ds = slices.Clone(ds)
	for i := range ds {
		ds[i].Text = nil
	}
	return ds
}

func deadLetterFields(t *testing.T, s tables.Store) {
	full := deadLetter("m", "wh", day)
	put := mustPutDeadLetter(t, s, full)
	full.ETag = put.ETag
	if d := diff(full, put); d != "" {
		t.Errorf("PutDeadLetter returned (-want +got):\n%s", d)
	}
	wantDeadLetter(t, s, full)

	k := key("small")
	small := tables.DeadLetter{ID: tables.DeadLetterID(k, "", 0, day), MessageKey: k, DeadLetteredAt: day, Status: tables.Waiting}
	small.ETag = mustPutDeadLetter(t, s, small).ETag
	wantDeadLetter(t, s, small)

	precise := deadLetter("precise", "wh", day)
	precise.FirstAt = day.Add(456789).In(time.FixedZone("west", -5*60*60))
	put = mustPutDeadLetter(t, s, precise)
	precise.FirstAt, precise.ETag = day, put.ETag
	wantDeadLetter(t, s, precise)

	long := deadLetter("long", "wh", day)
	long.Description, long.Instance = strings.Repeat("é", 8000), strings.Repeat("x", 1000)
	long.ETag = mustPutDeadLetter(t, s, long).ETag
	wantDeadLetter(t, s, long)
}

func deadLetterPutAgain(t *testing.T, s tables.Store) {
	first := mustPutDeadLetter(t, s, deadLetter("m", "wh", day))
	other := deadLetter("m", "wh", day)
	other.Text, other.Description, other.Status = []byte("other"), "other", tables.Replayed
	for _, again := range []tables.DeadLetter{deadLetter("m", "wh", day), other} {
		got, err := s.PutDeadLetter(t.Context(), again)
		if err != nil {
			t.Fatalf("PutDeadLetter again: %v", err)
		}
		if d := diff(first, got); d != "" {
			t.Errorf("PutDeadLetter again returned (-want +got):\n%s", d)
		}
	}
	wantDeadLetter(t, s, first)
	replayed := first
	replayed.Status = tables.Replayed
	replayed, err := s.UpdateDeadLetter(t.Context(), replayed)
	if err != nil {
		t.Fatal(err)
	}
	if got := mustPutDeadLetter(t, s, deadLetter("m", "wh", day)); got.Status != tables.Replayed {
		t.Errorf("PutDeadLetter after a replay gave status %s, want replayed", got.Status)
	}
	wantDeadLetter(t, s, replayed)
}

func deadLetterUpdate(t *testing.T, s tables.Store) {
	first := mustPutDeadLetter(t, s, deadLetter("m", "wh", day))
	change := first
	change.Status, change.CopiedToQueue, change.ReplayToken, change.Replays, change.ReplayedAt = tables.Replaying, "", "new", 3, day.Add(time.Hour)
	second, err := s.UpdateDeadLetter(t.Context(), change)
	if err != nil {
		t.Fatal(err)
	}
	if second.ETag == first.ETag || second.ETag == "" {
		t.Errorf("ETag went from %q to %q, want a new one", first.ETag, second.ETag)
	}
	change.ETag = second.ETag
	if d := diff(change, second); d != "" {
		t.Errorf("UpdateDeadLetter returned (-want +got):\n%s", d)
	}
	wantDeadLetter(t, s, second)
	if _, err := s.UpdateDeadLetter(t.Context(), first); !errors.Is(err, tables.ErrConflict) {
		t.Errorf("update with an old ETag = %v, want ErrConflict", err)
	}
	wantDeadLetter(t, s, second)
	gone := deadLetter("gone", "wh", day)
	gone.ETag = first.ETag
	if _, err := s.UpdateDeadLetter(t.Context(), gone); !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("update of a row that is not there = %v, want ErrNotFound", err)
	}
}

func deadLetterDelete(t *testing.T, s tables.Store) {
	first := mustPutDeadLetter(t, s, deadLetter("m", "wh", day))
	second, err := s.UpdateDeadLetter(t.Context(), first)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteDeadLetter(t.Context(), first.ID, first.ETag); !errors.Is(err, tables.ErrConflict) {
		t.Errorf("delete with an old ETag = %v, want ErrConflict", err)
	}
	wantDeadLetter(t, s, second)
	if err := s.DeleteDeadLetter(t.Context(), first.ID, second.ETag); err != nil {
		t.Errorf("delete with the ETag: %v", err)
	}
	for _, etag := range []string{"", second.ETag} {
		if err := s.DeleteDeadLetter(t.Context(), first.ID, etag); !errors.Is(err, tables.ErrNotFound) {
			t.Errorf("second delete with etag %q = %v, want ErrNotFound", etag, err)
		}
	}
	if rows := listDeadLetters(t, s, tables.DeadLetterFilter{}, 10, nil); len(rows) != 0 {
		t.Errorf("%d rows are listed after the delete", len(rows))
	}
	again := mustPutDeadLetter(t, s, deadLetter("m", "wh", day))
	if err := s.DeleteDeadLetter(t.Context(), again.ID, ""); err != nil {
		t.Errorf("delete without an ETag: %v", err)
	}
}

func deadLetterText(t *testing.T, s tables.Store) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	texts := [][]byte{{}, every, bytes.Repeat(every, 256), []byte("\r\n\t 🙂 ]]>"), bytes.Repeat([]byte("€"), 21845), []byte("\xff\xfe")}
	for i, text := range texts {
		d := deadLetter(fmt.Sprint("m", i), "wh", day.Add(time.Duration(i)*time.Second))
		d.Text = text
		mustPutDeadLetter(t, s, d)
		got, err := s.GetDeadLetter(t.Context(), d.ID)
		if err != nil || !bytes.Equal(got.Text, text) {
			t.Errorf("text %d: %d bytes came back as %d other bytes, %v", i, len(text), len(got.Text), err)
		}
		// Replacing the row keeps its text as well.
		if _, err := s.UpdateDeadLetter(t.Context(), got); err != nil {
			t.Fatal(err)
		}
		got, err = s.GetDeadLetter(t.Context(), d.ID)
		if err != nil || !bytes.Equal(got.Text, text) {
			t.Errorf("text %d: %d bytes are %d other bytes after an update, %v", i, len(text), len(got.Text), err)
		}
	}
	rows := listDeadLetters(t, s, tables.DeadLetterFilter{}, 10, nil)
	if len(rows) != len(texts) {
		t.Errorf("%d rows are listed, want %d", len(rows), len(texts))
	}
	for _, d := range rows {
		if d.Text != nil {
			t.Errorf("the list shows %d bytes of text of %s", len(d.Text), d.MessageID)
		}
		if _, err := s.UpdateDeadLetter(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		got, err := s.GetDeadLetter(t.Context(), d.ID)
		if n := slices.IndexFunc(texts, func(text []byte) bool { return bytes.Equal(text, got.Text) }); err != nil || d.MessageID != fmt.Sprint("m", n) {
			t.Errorf("%s has %d other bytes of text after an update without any, %v", d.MessageID, len(got.Text), err)
		}
	}
}

func deadLetterUnknown(t *testing.T, s tables.Store) {
	mustPutDeadLetter(t, s, deadLetter("m", "wh", day))
	for _, id := range append(hostile(), "", longID("x"), "orders.", deadLetter("other", "wh", day).ID, deadLetterOf("other", "m", "wh", day).ID) {
		if _, err := s.GetDeadLetter(t.Context(), id); !errors.Is(err, tables.ErrNotFound) {
			t.Errorf("GetDeadLetter(%.40q) = %v, want ErrNotFound", id, err)
		}
		if err := s.DeleteDeadLetter(t.Context(), id, ""); !errors.Is(err, tables.ErrNotFound) {
			t.Errorf("DeleteDeadLetter(%.40q) = %v, want ErrNotFound", id, err)
		}
	}
}

// putSpread puts n dead letters over three queues and several weeks, and returns
// them newest first.
func putSpread(t *testing.T, s tables.Store, n int) []tables.DeadLetter {
	t.Helper()
	queues := []string{"orders", "invoices", "a-queue"}
	reasons := []policy.Reason{policy.NonRetryableError, policy.PoisonMessage, policy.MaxAgeExceeded, policy.Undecodable}
	ds := make([]tables.DeadLetter, n)
	for i := range n {
		d := deadLetterOf(queues[i%len(queues)], fmt.Sprint("m", i), fmt.Sprint("wh", i%4), day.Add(-time.Duration(i)*31*time.Hour))
		d.Reason = reasons[i%len(reasons)]
		d.Status = []tables.DeadLetterStatus{tables.Waiting, tables.Replaying, tables.Waiting, tables.Replayed, tables.Waiting}[i%5]
		if d.LastStatus = []int{503, 0, 400}[i%3]; d.LastStatus == 400 {
			d.Description = "The webhook answered 400: attempt 1 of 8, so the message is a dead letter."
		}
		ds[i] = d
	}
	for _, i := range rand.Perm(n) {
		ds[i].ETag = mustPutDeadLetter(t, s, ds[i]).ETag
	}
	return ds
}

func deadLettersNewestFirst(t *testing.T, s tables.Store) {
	want := listed(putSpread(t, s, 40))
	for _, limit := range []int{1, 7, 40, tables.MaxPage} {
		if d := diff(want, listDeadLetters(t, s, tables.DeadLetterFilter{}, limit, nil)); d != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, d)
		}
	}
}

func deadLetterCursors(t *testing.T, s tables.Store) {
	all := putSpread(t, s, 24)
	want := listed(all)
	got := listDeadLetters(t, s, tables.DeadLetterFilter{}, 5, func(page int) {
		mustPutDeadLetter(t, s, deadLetterOf("invoices", fmt.Sprint("new", page), "wh", day.Add(time.Duration(page+1)*time.Hour)))
		// The row that the cursor points at goes away.
		if last := page*5 + 4; last < len(all) {
			if err := s.DeleteDeadLetter(t.Context(), all[last].ID, ""); err != nil {
				t.Fatal(err)
			}
		}
	})
	if d := diff(want, got); d != "" {
		t.Errorf("ListDeadLetters (-want +got):\n%s", d)
	}
}

func deadLetterFilters(t *testing.T, s tables.Store) {
	all := putSpread(t, s, 36)
	for name, f := range map[string]tables.DeadLetterFilter{
		"queue":            {Queue: "invoices"},
		"webhook":          {WebhookID: "wh2"},
		"message":          {MessageID: "m7"},
		"reason":           {Reason: policy.PoisonMessage},
		"answer":           {Answer: all[7].Answer()},
		"cause":            {Cause: all[7].Cause()},
		"status":           {Status: tables.Replaying},
		"from":             {From: all[9].DeadLetteredAt},
		"until":            {Until: all[9].DeadLetteredAt},
		"from until":       {From: all[20].DeadLetteredAt, Until: all[4].DeadLetteredAt},
		"queue and times":  {Queue: "orders", From: all[30].DeadLetteredAt, Until: all[3].DeadLetteredAt},
		"all of them":      {Queue: "orders", WebhookID: "wh0", Reason: policy.NonRetryableError, Status: tables.Waiting, From: all[35].DeadLetteredAt},
		"unknown queue":    {Queue: "nobody"},
		"hostile":          {Queue: "a/b", WebhookID: "' or '1'='1"},
		"message of other": {Queue: "orders", MessageID: "m7"},
		"empty time span":  {From: all[4].DeadLetteredAt, Until: all[4].DeadLetteredAt},
	} {
		want := listed(slices.DeleteFunc(slices.Clone(all), func(d tables.DeadLetter) bool { return !f.Matches(d) }))
		for _, limit := range []int{2, 100} {
			if d := diff(want, listDeadLetters(t, s, f, limit, nil)); d != "" {
				t.Errorf("filter %s, limit %d (-want +got):\n%s", name, limit, d)
			}
		}
	}
}

func deadLetterHostile(t *testing.T, s tables.Store) {
	for i, id := range append(hostile(), "", longID("m")) {
		d := deadLetter(id, id, day.Add(time.Duration(i)*time.Second))
		d.ETag = mustPutDeadLetter(t, s, d).ETag
		wantDeadLetter(t, s, d)
		if id == "" {
			continue // an empty filter does not narrow
		}
		got := listDeadLetters(t, s, tables.DeadLetterFilter{MessageID: id, WebhookID: id}, 10, nil)
		if d := diff(listed([]tables.DeadLetter{d}), got); d != "" {
			t.Errorf("ListDeadLetters of %.40q (-want +got):\n%s", id, d)
		}
	}
}

func deadLetterBadPages(t *testing.T, s tables.Store) {
	mustPutDeadLetter(t, s, deadLetter("m", "wh", day))
	for _, c := range badCursors() {
		if _, _, err := s.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: 1, After: c}); !errors.Is(err, tables.ErrBadCursor) {
			t.Errorf("cursor %.40q = %v, want ErrBadCursor", c, err)
		}
	}
	for _, limit := range []int{-1, 0, tables.MaxPage + 1} {
		if _, _, err := s.ListDeadLetters(t.Context(), tables.DeadLetterFilter{}, tables.Page{Limit: limit}); err == nil {
			t.Errorf("limit %d succeeded, want an error", limit)
		}
	}
}

func deadLetterPutRace(t *testing.T, s tables.Store) {
	rows := make([]tables.DeadLetter, 8)
	var wg sync.WaitGroup
	for i := range rows {
		wg.Go(func() {
			d := deadLetter("m", "wh", day)
			d.Instance = fmt.Sprint("host-", i)
			put, err := s.PutDeadLetter(t.Context(), d)
			if err != nil {
				t.Errorf("PutDeadLetter: %v", err)
			}
			rows[i] = put
		})
	}
	wg.Wait()
	for _, got := range rows[1:] {
		if d := diff(rows[0], got); d != "" {
			t.Errorf("two callers got different rows (-first +other):\n%s", d)
		}
	}
	wantDeadLetter(t, s, rows[0])
}

func deadLetterUpdateRace(t *testing.T, s tables.Store) {
	first := mustPutDeadLetter(t, s, deadLetter("m", "wh", day))
	wantOneWinner(t, tables.ErrConflict, func(i int) error {
		d := first
		d.Instance = fmt.Sprint("host-", i)
		_, err := s.UpdateDeadLetter(t.Context(), d)
		return err
	})
}

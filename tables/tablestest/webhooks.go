package tablestest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

var webhookTests = []test{
	{"EveryFieldIsKept", webhookFields},
	{"InsertTwiceExistsButRepeatDoesNot", webhookInsert},
	{"UpdateNeedsTheETag", webhookUpdate},
	{"DeleteNeedsTheETag", webhookDelete},
	{"ListIsAscending", webhookList},
	{"HostileIDsAreKept", webhookHostileIDs},
	{"OneOfConcurrentInsertsWins", webhookInsertRace},
	{"OneOfConcurrentUpdatesWins", webhookUpdateRace},
}

func wantWebhook(t *testing.T, s tables.Store, want tables.Registration) {
	t.Helper()
	got, err := s.GetWebhook(t.Context(), want.ID)
	if err != nil {
		t.Fatalf("GetWebhook(%.40q): %v", want.ID, err)
	}
	if d := diff(want, got); d != "" {
		t.Errorf("GetWebhook(%.40q) (-want +got):\n%s", want.ID, d)
	}
}

func webhookFields(t *testing.T, s tables.Store) {
	full := mustPutWebhook(t, s, registration("wh1"))
	wantWebhook(t, s, full)
	small := mustPutWebhook(t, s, tables.Registration{Webhook: webhook.Webhook{ID: "wh2", Queue: "orders"}, Enabled: true})
	small.Policy.PauseCap = policy.DefaultPauseCap // which rows of before there was one have
	wantWebhook(t, s, small)
	never := registration("wh4")
	never.Flow.AutoDisableAfter = 0
	wantWebhook(t, s, mustPutWebhook(t, s, never))
	large := registration("wh3")
	large.Name = strings.Repeat("é", 10_000)
	large.Headers["X-Long"] = strings.Repeat("🙂", 10_000)
	wantWebhook(t, s, mustPutWebhook(t, s, large))
	if _, err := s.GetWebhook(t.Context(), "nobody"); !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("GetWebhook of an unknown id = %v, want ErrNotFound", err)
	}
}

func webhookInsert(t *testing.T, s tables.Store) {
	r := registration("wh1")
	first := mustPutWebhook(t, s, r)
	repeated, err := s.PutWebhook(t.Context(), r)
	if err != nil {
		t.Fatalf("repeated insert of the same row = %v, want no error", err)
	}
	wantWebhook(t, s, repeated)

	other := r
	other.URL = "https://elsewhere.example/"
	if _, err := s.PutWebhook(t.Context(), other); !errors.Is(err, tables.ErrExists) {
		t.Errorf("insert of another row with the id = %v, want ErrExists", err)
	}
	first.ETag = repeated.ETag
	wantWebhook(t, s, first)
}

func webhookUpdate(t *testing.T, s tables.Store) {
	first := mustPutWebhook(t, s, registration("wh1"))
	second := first
	second.URL, second.Enabled, second.DisabledReason, second.DisabledAt = "https://new.example/", true, "", time.Time{}
	second.Headers, second.Policy.Rules = nil, nil
	second = mustPutWebhook(t, s, second)
	wantWebhook(t, s, second)

	if _, err := s.PutWebhook(t.Context(), first); !errors.Is(err, tables.ErrConflict) {
		t.Errorf("update with an old ETag = %v, want ErrConflict", err)
	}
	wantWebhook(t, s, second)
	// Writing the same content again is a change too.
	third := mustPutWebhook(t, s, second)
	if _, err := s.PutWebhook(t.Context(), second); !errors.Is(err, tables.ErrConflict) {
		t.Errorf("update with the ETag before last = %v, want ErrConflict", err)
	}
	wantWebhook(t, s, third)

	gone := registration("nobody")
	gone.ETag = first.ETag
	if _, err := s.PutWebhook(t.Context(), gone); !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("update of a row that is gone = %v, want ErrNotFound", err)
	}
}

func webhookDelete(t *testing.T, s tables.Store) {
	first := mustPutWebhook(t, s, registration("wh1"))
	second := mustPutWebhook(t, s, first)
	if err := s.DeleteWebhook(t.Context(), "wh1", first.ETag); !errors.Is(err, tables.ErrConflict) {
		t.Errorf("delete with an old ETag = %v, want ErrConflict", err)
	}
	wantWebhook(t, s, second)
	if err := s.DeleteWebhook(t.Context(), "wh1", second.ETag); err != nil {
		t.Errorf("delete with the ETag: %v", err)
	}
	if _, err := s.GetWebhook(t.Context(), "wh1"); !errors.Is(err, tables.ErrNotFound) {
		t.Errorf("GetWebhook after the delete = %v, want ErrNotFound", err)
	}
	for _, etag := range []string{"", second.ETag} {
		if err := s.DeleteWebhook(t.Context(), "wh1", etag); !errors.Is(err, tables.ErrNotFound) {
			t.Errorf("second delete with etag %q = %v, want ErrNotFound", etag, err)
		}
	}
	again := mustPutWebhook(t, s, registration("wh1"))
	if _, err := s.PutWebhook(t.Context(), second); !errors.Is(err, tables.ErrConflict) {
		t.Errorf("update with the ETag of the row that was there before = %v, want ErrConflict", err)
	}
	wantWebhook(t, s, again)
	if err := s.DeleteWebhook(t.Context(), "wh1", ""); err != nil {
		t.Errorf("delete without an ETag: %v", err)
	}
}

func wantWebhooks(t *testing.T, s tables.Store, want []tables.Registration) {
	t.Helper()
	got, bad, err := s.ListWebhooks(t.Context())
	if err != nil || len(bad) != 0 {
		t.Fatalf("ListWebhooks: %v, bad rows %v", err, bad)
	}
	slices.SortFunc(want, func(a, b tables.Registration) int { return strings.Compare(a.ID, b.ID) })
	if d := diff(want, got); d != "" {
		t.Errorf("ListWebhooks (-want +got):\n%s", d)
	}
}

func webhookList(t *testing.T, s tables.Store) {
	wantWebhooks(t, s, nil)
	var want []tables.Registration
	for _, id := range []string{"wh_b", "wh_a", "WH", "wh_10", "wh_9"} {
		want = append(want, mustPutWebhook(t, s, registration(id)))
	}
	wantWebhooks(t, s, want)
}

func webhookHostileIDs(t *testing.T, s tables.Store) {
	var want []tables.Registration
	for _, id := range append(hostile(), longID("w")) {
		want = append(want, mustPutWebhook(t, s, registration(id)))
	}
	wantWebhooks(t, s, want)
	for _, r := range want {
		wantWebhook(t, s, r)
		if err := s.DeleteWebhook(t.Context(), r.ID, r.ETag); err != nil {
			t.Errorf("DeleteWebhook(%.40q): %v", r.ID, err)
		}
	}
	wantWebhooks(t, s, nil)
}

func webhookInsertRace(t *testing.T, s tables.Store) {
	wantOneWinner(t, tables.ErrExists, func(i int) error {
		r := registration("wh1")
		r.Name = fmt.Sprint("from ", i)
		_, err := s.PutWebhook(t.Context(), r)
		return err
	})
}

func webhookUpdateRace(t *testing.T, s tables.Store) {
	first := mustPutWebhook(t, s, registration("wh1"))
	wantOneWinner(t, tables.ErrConflict, func(i int) error {
		r := first
		r.Name = fmt.Sprint("from ", i)
		_, err := s.PutWebhook(t.Context(), r)
		return err
	})
}

package tablestest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
)

var attemptTests = []test{
	{"EveryFieldIsKept", attemptFields},
	{"RecordAgainReplaces", attemptReplaced},
	{"MessageTellsEverything", messageTellsAll},
	{"AttemptsOfTwoInstancesShareNoRow", attemptsOfTwo},
	{"MessageUnknownIsNotFound", messageUnknown},
	{"MessageOverSeveralDaysAndGenerations", messageSeveralDays},
	{"MessageWithHostileIDs", messageHostile},
	{"NewestFirst", attemptsNewestFirst},
	{"CursorsStayGoodWhileRowsCome", attemptCursors},
	{"Filters", attemptFilters},
	{"FiltersWithSmallPages", attemptFiltersPaged},
	{"BadCursorsAndLimits", attemptBadPages},
}

func attemptFull(id, webhookID string) tables.Attempt {
	a := attempt(id, webhookID, 3)
	a.Generation = 1
	a.Status, a.ErrorClass, a.Error = 0, policy.ClassTLS, "handshake: unknown authority 🙂"
	a.Snippet = tables.CutText(strings.Repeat("🙂<>&'\"\x00\r\n", 500), tables.MaxSnippetUnits)
	a.RetryAfter, a.RedirectHost, a.Redials = "Wed, 21 Oct 2026 07:28:00 GMT", "[2001:db8::1]:8443", 2
	a.Explanation = strings.Repeat("because ", 500)
	a.DequeueCount = 7
	return a
}

// attemptsOfTwo: the lease of one ended while its POST was under way, and the other did not know
// of that attempt (C64, C113).
func attemptsOfTwo(t *testing.T, s tables.Store) {
	one := attempt("m", "wh", 1)
	one.DequeueCount = 1
	other := one
	other.Instance, other.DequeueCount = "host-2", 2
	recordAttempts(t, s, 2, one, other)
	mustRecord(t, s, tables.Record{Attempts: []tables.Attempt{other}}) // once more is harmless
	_, all, err := s.Message(t.Context(), one.Queue, one.MessageID)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].DequeueCount+all[1].DequeueCount != 3 || all[0].Instance == all[1].Instance {
		t.Errorf("the timeline has %+v", all)
	}
}

// recordAttempts writes them, one Record per message, and waits until the list has
// as many as there are now.
func recordAttempts(t *testing.T, s tables.Store, total int, as ...tables.Attempt) {
	t.Helper()
	byMessage := make(map[tables.MessageKey][]tables.Attempt)
	for _, a := range as {
		byMessage[a.MessageKey] = append(byMessage[a.MessageKey], a)
	}
	for _, group := range byMessage {
		for chunk := range slices.Chunk(group, 100) {
			mustRecord(t, s, tables.Record{Attempts: chunk})
		}
	}
	eventually(t, fmt.Sprintf("%d attempts are listed", total), func() bool {
		return len(listAttempts(t, s, tables.AttemptFilter{}, tables.MaxPage, nil)) == total
	})
}

func attemptFields(t *testing.T, s tables.Store) {
	full := attemptFull("m", "wh")
	zero := tables.Attempt{MessageKey: key("m"), WebhookID: "wh", Number: 1, StartedAt: day}
	recordAttempts(t, s, 2, full, zero)
	want := []tables.Attempt{full, zero}
	if d := diff(want, listAttempts(t, s, tables.AttemptFilter{}, 10, nil)); d != "" {
		t.Errorf("Attempts (-want +got):\n%s", d)
	}
	_, as, err := s.Message(t.Context(), "orders", "m")
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(want)
	if d := diff(want, as); d != "" {
		t.Errorf("Message (-want +got):\n%s", d)
	}
}

func attemptReplaced(t *testing.T, s tables.Store) {
	first := attempt("m", "wh", 1)
	recordAttempts(t, s, 1, first)
	second := first
	second.Status, second.Action, second.Reason = 200, policy.Complete, policy.Delivered
	mustRecord(t, s, tables.Record{Attempts: []tables.Attempt{second}})
	mustRecord(t, s, tables.Record{Attempts: []tables.Attempt{second}})
	eventually(t, "the attempt is replaced", func() bool {
		return diff([]tables.Attempt{second}, listAttempts(t, s, tables.AttemptFilter{}, 10, nil)) == ""
	})
}

func messageTellsAll(t *testing.T, s tables.Store) {
	ds := []tables.Delivery{delivery("m", "wh1"), delivery("m", "wh2")}
	as := []tables.Attempt{attempt("m", "wh2", 1), attempt("m", "wh1", 2), attempt("m", "wh2", 3), attempt("m", "wh1", 12)}
	mustRecord(t, s, tables.Record{Deliveries: ds, Attempts: as[2:]})
	mustRecord(t, s, tables.Record{Attempts: as[:2]})
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{delivery("other", "wh1")}, Attempts: []tables.Attempt{attempt("other", "wh1", 1)}})
	for _, queue := range []string{"", "orders"} {
		wantMessage(t, s, queue, "m", ds, as)
	}
}

func messageUnknown(t *testing.T, s tables.Store) {
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{delivery("m", "wh")}})
	wantMessage(t, s, "", "m", []tables.Delivery{delivery("m", "wh")}, nil)
	for _, q := range []struct{ queue, id string }{{"", "other"}, {"orders", "other"}, {"orders-2", "m"}, {"", "M"}, {"", "m%"}, {"", "'"}, {"", longID("z")}} {
		if _, _, err := s.Message(t.Context(), q.queue, q.id); !errors.Is(err, tables.ErrNotFound) {
			t.Errorf("Message(%q, %.40q) = %v, want ErrNotFound", q.queue, q.id, err)
		}
	}
}

func messageSeveralDays(t *testing.T, s tables.Store) {
	// A replay keeps the id, but its message was inserted on a later day.
	d0, d1 := delivery("m", "wh"), delivery("m", "wh")
	d0.Generation, d0.State = 0, tables.DeadLettered
	d1.Generation, d1.State, d1.Day = 1, tables.Delivered, day.Add(2*24*time.Hour)
	a0, a1 := attempt("m", "wh", 1), attempt("m", "wh", 1)
	a1.Generation, a1.Day, a1.StartedAt = 1, d1.Day, d1.Day.Add(time.Second)
	// The same day holds a second generation's attempt with the same number.
	a2 := attempt("m", "wh", 1)
	a2.Generation, a2.StartedAt = 2, a0.StartedAt.Add(time.Minute)
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{d1}, Attempts: []tables.Attempt{a1}})
	mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{d0}, Attempts: []tables.Attempt{a0, a2}})
	for _, queue := range []string{"", "orders"} {
		wantMessage(t, s, queue, "m", []tables.Delivery{d0, d1}, []tables.Attempt{a0, a2, a1})
	}
	wantLoaded(t, s, d0.MessageKey, d0)
	wantLoaded(t, s, d1.MessageKey, d1)
}

func messageHostile(t *testing.T, s tables.Store) {
	ids := []string{"a/b", `a\b`, "a#b?c", "it's", "100%", "a\x00b", longID("m"), longID("é"), "🙂", "d~m"}
	for _, id := range ids {
		mustRecord(t, s, tables.Record{Deliveries: []tables.Delivery{delivery(id, id)}, Attempts: []tables.Attempt{attempt(id, id, 1)}})
	}
	for _, id := range ids {
		wantMessage(t, s, "", id, []tables.Delivery{delivery(id, id)}, []tables.Attempt{attempt(id, id, 1)})
	}
	for _, id := range ids {
		eventually(t, fmt.Sprintf("the attempt of webhook and message %.40q is listed", id), func() bool {
			got := listAttempts(t, s, tables.AttemptFilter{WebhookID: id, MessageID: id}, 10, nil)
			return diff([]tables.Attempt{attempt(id, id, 1)}, got) == ""
		})
	}
}

// spread makes n attempts over three webhooks, two queues, two days and all classes of
// answers, newest first.
func spread(n int) []tables.Attempt {
	statuses := []int{200, 404, 503, 0, 429}
	as := make([]tables.Attempt, n)
	for i := range n {
		a := attempt(fmt.Sprint("m", i/2), fmt.Sprint("wh", i%3), i%2+1)
		a.StartedAt = day.Add(-time.Duration(i) * 47 * time.Minute)
		a.Day = a.StartedAt
		if i/2%2 == 1 {
			a.Queue = "invoices"
		}
		if i%2 == 1 { // both attempts of a message share its day
			a.Day = as[i-1].Day
		}
		switch a.Status = statuses[i%len(statuses)]; a.Status {
		case 200:
			a.Action, a.Reason = policy.Complete, policy.Delivered
		case 404:
			a.Action, a.Reason = policy.DeadLetter, policy.NonRetryableError
		case 0:
			a.ErrorClass = policy.ClassTimeout
		case 429:
			a.Reason = policy.ReceiverBusy
		}
		as[i] = a
	}
	return as
}

func shuffle(as []tables.Attempt) []tables.Attempt {
	as = slices.Clone(as)
	rand.Shuffle(len(as), func(i, j int) { as[i], as[j] = as[j], as[i] })
	return as
}

func attemptsNewestFirst(t *testing.T, s tables.Store) {
	want := spread(40)
	recordAttempts(t, s, len(want), shuffle(want)...)
	for _, limit := range []int{1, 7, 40, tables.MaxPage} {
		if d := diff(want, listAttempts(t, s, tables.AttemptFilter{}, limit, nil)); d != "" {
			t.Errorf("limit %d (-want +got):\n%s", limit, d)
		}
	}
}

func attemptCursors(t *testing.T, s tables.Store) {
	want := spread(24)
	// Three begin in the same millisecond, across a page boundary.
	want[4].StartedAt, want[5].StartedAt = want[3].StartedAt, want[3].StartedAt
	recordAttempts(t, s, len(want), want...)
	total := len(want)
	got := listAttempts(t, s, tables.AttemptFilter{}, 5, func(page int) {
		newer := attempt(fmt.Sprint("new", page), fmt.Sprint("wh", page%3), 1)
		newer.StartedAt = day.Add(time.Duration(page+1) * time.Second)
		total++
		recordAttempts(t, s, total, newer)
	})
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d: newer rows must not push others out or in", len(got), len(want))
	}
	// The order within a millisecond is the store's.
	byID := func(a, b tables.Attempt) int {
		return strings.Compare(a.MessageID+a.WebhookID, b.MessageID+b.WebhookID)
	}
	slices.SortFunc(want[3:6], byID)
	slices.SortFunc(got[3:6], byID)
	if d := diff(want, got); d != "" {
		t.Errorf("Attempts (-want +got):\n%s", d)
	}
}

func filters(all []tables.Attempt) map[string]tables.AttemptFilter {
	return map[string]tables.AttemptFilter{
		"webhook":            {WebhookID: "wh1"},
		"queue":              {Queue: "invoices"},
		"message":            {MessageID: "m3"},
		"status":             {Status: 404},
		"class":              {StatusClass: 5},
		"error class":        {ErrorClass: policy.ClassTimeout},
		"action":             {Action: policy.DeadLetter},
		"reason":             {Reason: policy.ReceiverBusy},
		"from":               {From: all[9].StartedAt},
		"until":              {Until: all[9].StartedAt},
		"from until":         {From: all[20].StartedAt, Until: all[4].StartedAt},
		"webhook and class":  {WebhookID: "wh2", StatusClass: 4},
		"webhook and queue":  {WebhookID: "wh0", Queue: "orders"},
		"queue and message":  {Queue: "invoices", MessageID: "m3"},
		"message elsewhere":  {Queue: "orders", MessageID: "m3"},
		"everything":         {WebhookID: "wh0", Queue: "orders", StatusClass: 2, Status: 200, Action: policy.Complete, Reason: policy.Delivered, From: all[len(all)-1].StartedAt},
		"contradiction":      {Status: 404, StatusClass: 5},
		"unknown webhook":    {WebhookID: "nobody"},
		"hostile":            {WebhookID: "' or '1'='1", Queue: "a/b"},
		"empty time span":    {From: all[4].StartedAt, Until: all[4].StartedAt},
		"webhook from until": {WebhookID: "wh1", From: all[30].StartedAt, Until: all[2].StartedAt},
	}
}

func checkFilters(t *testing.T, s tables.Store, limit int) {
	all := spread(36)
	recordAttempts(t, s, len(all), shuffle(all)...)
	for name, f := range filters(all) {
		want := slices.DeleteFunc(slices.Clone(all), func(a tables.Attempt) bool { return !f.Matches(a) })
		if d := diff(want, listAttempts(t, s, f, limit, nil)); d != "" {
			t.Errorf("filter %s (-want +got):\n%s", name, d)
		}
	}
}

func attemptFilters(t *testing.T, s tables.Store)      { checkFilters(t, s, 100) }
func attemptFiltersPaged(t *testing.T, s tables.Store) { checkFilters(t, s, 2) }

func attemptBadPages(t *testing.T, s tables.Store) {
	recordAttempts(t, s, 1, attempt("m", "wh", 1))
	for _, c := range badCursors() {
		if _, _, err := s.Attempts(t.Context(), tables.AttemptFilter{}, tables.Page{Limit: 1, After: c}); !errors.Is(err, tables.ErrBadCursor) {
			t.Errorf("cursor %.40q = %v, want ErrBadCursor", c, err)
		}
	}
	for _, limit := range []int{-1, 0, tables.MaxPage + 1} {
		if _, _, err := s.Attempts(t.Context(), tables.AttemptFilter{}, tables.Page{Limit: limit}); err == nil {
			t.Errorf("limit %d succeeded, want an error", limit)
		}
	}
}

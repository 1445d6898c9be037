package tablestest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pushlease/pushlease/policy"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
	"github.com/pushlease/pushlease/webhook/content"
)

type test struct {
	name string
	body func(t *testing.T, s tables.Store)
}

// day is the insertion time of most messages here: the evening of the day before
// yesterday, so that it is never near midnight and never old enough to expire.
var day = time.Now().UTC().Truncate(24 * time.Hour).Add(-48*time.Hour + 22*time.Hour + 15*time.Minute + 123*time.Millisecond)

// hostile are keys that some store would trip over.
func hostile() []string {
	return []string{
		"a/b", `a\b`, "a#b", "a?b", "a'b", "a''b", "a%b", "a%2Fb", "a%27b", "a b", " a", "a ", "a\x00b", "\x01\x1f\x7f", "a\u0085b",
		"~", "~~", "a~b", "d~a", ".", "..", "../x", "a\"b", "a;b", "a,b", "a|b", "a`b", "A", "a", "ünïcödé", "🙂", "\U0010FFFF",
		"' or '1'='1", "x' eq 'x", "<a>&", "%00", "null", "0", "-1",
	}
}

// longID is longer than any key of Azure Table Storage.
func longID(seed string) string { return strings.Repeat(seed, 3<<10/len(seed)) }

// sameUTC compares times as instants and wants both in UTC.
var sameUTC = cmp.Comparer(func(a, b time.Time) bool {
	return a.Equal(b) && a.Location() == time.UTC && b.Location() == time.UTC
})

// diff says how got differs from want; empty and nil collections are the same.
func diff(want, got any) string {
	return cmp.Diff(want, got, sameUTC, cmpopts.EquateEmpty())
}

// eventually polls until done, for what the contract allows to lag.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20s", what)
		}
		<-tick.C
	}
}

// maxPages bounds walks: a store may return short and empty pages, not endless
// ones.
const maxPages = 200

// walk reads a list to its end, limit rows a page, and calls between after every
// page that is not the last.
func walk[T any](t *testing.T, limit int, list func(tables.Page) ([]T, tables.Cursor, error), between func(page int)) []T {
	t.Helper()
	var all []T
	page := tables.Page{Limit: limit}
	for n := range maxPages {
		rows, next, err := list(page)
		if err != nil {
			t.Fatalf("page %d: %v", n, err)
		}
		if len(rows) > limit {
			t.Fatalf("page %d has %d rows, want at most %d", n, len(rows), limit)
		}
		all = append(all, rows...)
		if next == "" {
			return all
		}
		if url.QueryEscape(string(next)) != string(next) {
			t.Errorf("cursor %q is not URL-safe", next)
		}
		if between != nil {
			between(n)
		}
		page.After = next
	}
	t.Fatalf("the list does not end within %d pages", maxPages)
	return nil
}

// badCursors are cursors that no store gave.
func badCursors() []tables.Cursor {
	return []tables.Cursor{"x", "not a cursor", "AAAA", "....", "%00", "🙂", "' or 1=1", tables.Cursor(longID("A")), tables.Cursor(rand.Text())}
}

func key(id string) tables.MessageKey {
	return tables.MessageKey{Queue: "orders", MessageID: id, Day: day}
}

func delivery(id, webhookID string) tables.Delivery {
	return tables.Delivery{
		MessageKey: key(id), WebhookID: webhookID, Generation: 2, State: tables.Pending, Reason: policy.RetryableError,
		Attempts: 5, Charged: 3, Waits: 2, Excused: 1, MissingRecords: 4, LastStatus: 503, LastErrorClass: policy.ClassTimeout,
		FirstAt: day.Add(time.Millisecond), LastAt: day.Add(time.Second), NextAt: day.Add(time.Hour),
		UpdatedAt: day.Add(2 * time.Second), ExpiresAt: day.Add(7 * 24 * time.Hour),
		Encoding: "base64", Size: 49152, BodyHash: "0123456789abcdef", DeadLetterID: "orders.1", SameEventAs: "m-0", Instance: "host-1",
	}
}

func mustRecord(t *testing.T, s tables.Store, r tables.Record) {
	t.Helper()
	if err := s.Record(t.Context(), r); err != nil {
		t.Fatalf("Record: %v", err)
	}
}

func mustLoad(t *testing.T, s tables.Store, k tables.MessageKey) []tables.Delivery {
	t.Helper()
	ds, err := s.Load(t.Context(), k)
	if err != nil {
		t.Fatalf("Load(%.40q): %v", k.MessageID, err)
	}
	return ds
}

func wantLoaded(t *testing.T, s tables.Store, k tables.MessageKey, want ...tables.Delivery) {
	t.Helper()
	if d := diff(want, mustLoad(t, s, k)); d != "" {
		t.Errorf("Load(%.40q) (-want +got):\n%s", k.MessageID, d)
	}
}

func attempt(id, webhookID string, number int) tables.Attempt {
	return tables.Attempt{
		MessageKey: key(id), WebhookID: webhookID, Number: number, StartedAt: day.Add(time.Duration(number) * time.Second),
		Duration: 250 * time.Millisecond, Status: 500, Action: policy.Abandon, Reason: policy.RetryableError, Charged: true,
		Delay: 5 * time.Second, NextAt: day.Add(time.Minute), Instance: "host-1",
	}
}

// listAttempts reads all pages.
func listAttempts(t *testing.T, s tables.Store, f tables.AttemptFilter, limit int, between func(int)) []tables.Attempt {
	t.Helper()
	return walk(t, limit, func(p tables.Page) ([]tables.Attempt, tables.Cursor, error) { return s.Attempts(t.Context(), f, p) }, between)
}

func wantMessage(t *testing.T, s tables.Store, queue, id string, ds []tables.Delivery, as []tables.Attempt) {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() && last != "" {
			t.Logf("Message(%q, %.40q) (-want +got):\n%s", queue, id, last)
		}
	}()
	eventually(t, fmt.Sprintf("Message(%q, %.40q) is complete", queue, id), func() bool {
		gotD, gotA, err := s.Message(t.Context(), queue, id)
		if err != nil {
			last = err.Error()
			return false
		}
		last = diff(ds, gotD) + diff(as, gotA)
		return last == ""
	})
}

// deadLetter is one with every field set; what is not of its key derives from at.
func deadLetter(id, webhookID string, at time.Time) tables.DeadLetter {
	k := key(id)
	return tables.DeadLetter{
		ID: tables.DeadLetterID(k, webhookID, 1, at), MessageKey: k, WebhookID: webhookID, Generation: 1,
		Status: tables.Waiting, Reason: policy.MaxDeliveryCountExceeded, Description: "It's given up after 8 attempts 🙂.",
		Attempts: 8, LastStatus: 503, LastErrorClass: policy.ClassReset, FirstAt: at.Add(-time.Hour), LastAt: at.Add(-time.Second),
		DeadLetteredAt: at, Text: []byte("text of " + id), Encoding: "auto", Size: 8 + len(id), BodyHash: "fedcba9876543210",
		DequeueCount: 1 << 40, InsertedAt: k.Day, CopiedToQueue: "orders-poison", ReplayToken: "token", Replays: 2,
		ReplayedAt: at.Add(time.Minute), Instance: "host-1",
	}
}

func mustPutDeadLetter(t *testing.T, s tables.Store, d tables.DeadLetter) tables.DeadLetter {
	t.Helper()
	put, err := s.PutDeadLetter(t.Context(), d)
	if err != nil {
		t.Fatalf("PutDeadLetter(%s): %v", d.ID, err)
	}
	if put.ETag == "" {
		t.Errorf("PutDeadLetter(%s) returned no ETag", d.ID)
	}
	return put
}

func registration(id string) tables.Registration {
	return tables.Registration{
		Webhook: webhook.Webhook{
			ID: id, Name: "Orders 🙂", Queue: "orders", URL: "https://example.com/hook?a=b&c=%2F#",
			Secrets: []webhook.Secret{
				{Key: "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz", CreatedAt: day},
				{Key: "whsec_YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4", CreatedAt: day.Add(-time.Hour), ExpiresAt: day.Add(time.Hour)},
			},
			Headers: map[string]string{"X-Tenant": "it's <a> \"b\"", "Authorization": "Bearer x"},
			Timeout: 45 * time.Second,
			Filter: content.Filter{
				Types:  []string{"a.*", "é"},
				Fields: []content.Condition{{Field: "n", Op: content.OpIn, Value: []byte(`[12345678901234567890,1.50,"x"]`)}},
			},
			Format: content.FormatBinary,
		},
		Policy: policy.Policy{
			Preset: "standard", MaxAttempts: 8, MaxAge: policy.Duration(24 * time.Hour),
			Backoff:       policy.Backoff{Initial: policy.Duration(5 * time.Second), Factor: 4, Max: policy.Duration(time.Hour), Jitter: 0.3},
			RetryAfterCap: policy.Duration(time.Hour), PauseCap: policy.Duration(time.Minute), MaxWaits: 10, AllowSteering: true,
			Rules: []policy.Rule{{Match: "4xx", BodyContains: "try again", Action: "abandon"}},
		},
		Flow: policy.Flow{
			Concurrency: 3, Adaptive: true, Rate: 0.1, Burst: 2, AutoDisableAfter: policy.DurationOrNever(48 * time.Hour), AutoDisableMinFailures: 5,
			Breaker: policy.BreakerSettings{Enabled: true, MinSamples: 4, FailureShare: 0.7, ProbeAfter: policy.Duration(time.Second), ProbeMax: policy.Duration(time.Minute)},
		},
		Enabled: false, DisabledReason: "operator", DisabledAt: day.Add(time.Minute), CreatedAt: day, UpdatedAt: day.Add(time.Minute),
	}
}

func mustPutWebhook(t *testing.T, s tables.Store, r tables.Registration) tables.Registration {
	t.Helper()
	put, err := s.PutWebhook(t.Context(), r)
	if err != nil {
		t.Fatalf("PutWebhook(%.40q): %v", r.ID, err)
	}
	if put.ETag == "" || put.ETag == r.ETag {
		t.Errorf("PutWebhook(%.40q): ETag went from %q to %q, want a new one", r.ID, r.ETag, put.ETag)
	}
	r.ETag = put.ETag
	if d := diff(r, put); d != "" {
		t.Errorf("PutWebhook returned (-want +got):\n%s", d)
	}
	return put
}

// wantOneWinner runs write eight times at once: one succeeds, the others get loss.
func wantOneWinner(t *testing.T, loss error, write func(i int) error) {
	t.Helper()
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			switch err := write(i); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, loss):
				t.Errorf("a losing write got %v, want %v", err, loss)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d of 8 concurrent writes succeeded, want 1", won.Load())
	}
}

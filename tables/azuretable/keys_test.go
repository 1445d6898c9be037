package azuretable

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
)

func TestEncodeIDKeepsGUIDsAndEscapesTheRest(t *testing.T) {
	for _, tt := range []struct{ id, want string }{
		{"", ""},
		{"5974b586-0df3-4e2d-ad0c-18e3892bfca2", "5974b586-0df3-4e2d-ad0c-18e3892bfca2"},
		{"wh_AZ09", "wh_AZ09"},
		{"a/b", "a.2fb"},
		{"it's 100%.", "it.27s.20100.25.2e"},
		{"~\x00é", ".7e.00.c3.a9"},
	} {
		if got := encodeID(tt.id); got != tt.want {
			t.Errorf("encodeID(%q) = %q, want %q", tt.id, got, tt.want)
		}
	}
}

// Rows that were written before have these keys.
func TestRowKeysStayAsTheyWere(t *testing.T) {
	key := tables.MessageKey{Queue: "orders", MessageID: "id-1"}
	d := tables.Delivery{MessageKey: key, WebhookID: "wh_1", Generation: 2, State: tables.Delivered}
	if got, want := deliveryKey(d), fmt.Sprintf("id-1~orders~d~wh_1~0002~%d", tables.Delivered.Rank()); got != want {
		t.Errorf("deliveryKey = %q, want %q", got, want)
	}
	if got, want := attemptKey(tables.Attempt{MessageKey: key, WebhookID: "wh_1", Generation: 12345, Number: 7, Instance: "host/1"}), "id-1~orders~a~wh_1~12345~000007~"+encodeID("host/1"); got != want {
		t.Errorf("attemptKey = %q, want %q", got, want)
	}
	a := tables.Attempt{
		MessageKey: key, WebhookID: "wh_1", Instance: "host/1", Generation: 3, Number: 12, StartedAt: time.UnixMilli(1_772_366_400_123),
	}
	if got, want := invertedHour(a.StartedAt)+" "+recentKey(a), "11 8227633599876~5c8a07ed8628651e~0003~000012"; got != want {
		t.Errorf("the keys in a list of attempts are %q, which rows have as %q", got, want)
	}
	for id, want := range map[string]string{"id-1": "s3", "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f": "s2"} {
		if got := shard(id, 16); got != want {
			t.Errorf("the partition of %s is %s, which rows have as %s", id, got, want)
		}
	}
	for _, n := range []int{0, 9, 10, 999, 1000, 9999, 10000, 999_999, 1_000_000} {
		for _, width := range []int{4, 6} {
			if got, want := string(appendPadded([]byte("9~"), int64(n), width)), fmt.Sprintf("9~%0*d", width, n); got != want {
				t.Errorf("appendPadded(%d, %d) = %q, want %q", n, width, got, want)
			}
		}
	}
}

func TestLongIDsAreHashedAndStayDifferent(t *testing.T) {
	long := strings.Repeat("a", 3<<10)
	a, b := encodeID(long+"x"), encodeID(long+"y")
	if a == b || len(a) > maxEncoded {
		t.Errorf("encodings %q and %q: want two different ones of at most %d characters", a, b, maxEncoded)
	}
	if id, ok := decodeID(a); ok {
		t.Errorf("decodeID of a hash gave %q, want none", id)
	}
	if got := encodeID(strings.Repeat("a", maxEncoded)); got != strings.Repeat("a", maxEncoded) {
		t.Errorf("an id of exactly %d characters became %q", maxEncoded, got)
	}
}

func FuzzEncodedIDsComeBackAndAreSafeKeys(f *testing.F) {
	for _, id := range []string{"", "~", "~~", "..", ".", ".2f", "a/b", "a'b", "\xff\x00", "é", "..0", strings.Repeat("/", 67)} {
		f.Add(id, "x")
	}
	f.Fuzz(func(t *testing.T, id, other string) {
		key := encodeID(id)
		if len(key) > maxEncoded || !safeKey(key) || strings.Contains(key, separator) {
			t.Fatalf("encodeID(%q) = %q: not a safe part of a key", id, key)
		}
		if got, ok := decodeID(key); ok && got != id {
			t.Fatalf("%q → %q → %q", id, key, got)
		} else if !ok && !strings.HasPrefix(key, "..") {
			t.Fatalf("%q → %q does not come back", id, key)
		}
		if id != other && key == encodeID(other) {
			t.Fatalf("%q and %q have the same key", id, other)
		}
		rk := deliveryKey(tables.Delivery{MessageKey: tables.MessageKey{Queue: other, MessageID: id}, WebhookID: other})
		if prefix := messagePrefix(id); rk < prefix || rk >= prefix+separator+separator || !isDelivery(rk) || len(rk) > 512 {
			t.Fatalf("row key %q lies outside of its message's range", rk)
		}
		if id != other {
			if prefix := messagePrefix(other); rk >= prefix && rk < prefix+separator+separator {
				t.Fatalf("row key %q lies in the range of message %q", rk, other)
			}
		}
	})
}

func TestRecentKeysSortNewestFirst(t *testing.T) {
	start := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	var keys []string
	for i := range 24 * 4 {
		a := tables.Attempt{WebhookID: fmt.Sprint(i % 3), Number: i, StartedAt: start.Add(time.Duration(i) * 15 * time.Minute)}
		keys = append(keys, invertedHour(a.StartedAt)+recentKey(a))
	}
	slices.Reverse(keys)
	if !slices.IsSorted(keys) {
		t.Errorf("keys of one day, newest first, are not ascending: %q", keys)
	}
	for _, odd := range []time.Time{{}, time.UnixMilli(-1), time.UnixMilli(maxMillis + 1)} {
		if got := invertedMillis(odd); len(got) != 13 {
			t.Errorf("invertedMillis(%v) = %q, want 13 digits", odd, got)
		}
	}
}

func TestCursorsThatAStoreCannotHaveGivenAreRefused(t *testing.T) {
	good := []position{
		{Row: "0001~ab"}, {Day: "20261126", Partition: "all~05", Row: "x"},
		{Day: "20261126", Partition: "all~", NextPartition: "1!8!YQ--", NextRow: "1!4!"},
	}
	for _, p := range good {
		if got, err := parsePosition(p.cursor()); err != nil || got != p {
			t.Errorf("parsePosition(%+v) = %+v, %v", p, got, err)
		}
	}
	bad := []position{
		{}, {Day: "20261126"}, {Day: "2026112x", Partition: "all~", Row: "x"}, {Day: "20261126", Partition: "all~' or 1 eq 1", Row: "x"},
		{Row: "' or RowKey gt '"}, {Row: strings.Repeat("a", 513)}, {Partition: "all~"}, {Row: strings.Repeat("a", maxCursor)},
	}
	for _, p := range bad {
		if _, err := parsePosition(p.cursor()); err == nil {
			t.Errorf("position %+v was accepted", p)
		}
	}
}

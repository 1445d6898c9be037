package azuretable

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// Keys are made of [A-Za-z0-9_.-] only, whatever the ids hold; '~' separates
// their parts and sorts after all of them, so that everything that begins with
// "x~" lies in the range ["x~", "x~~~"): no key has three in a row.
const (
	separator = "~"
	// maxEncoded bounds one id within a key. A key may have 512 characters, and
	// a row key holds three ids.
	maxEncoded = 160
)

const hexDigits = "0123456789abcdef"

// encodeID escapes an id for use in a key: a byte outside [A-Za-z0-9_-] becomes
// '.' and two hex digits, so a GUID stays as it is. An id whose escaped form is
// longer than maxEncoded becomes ".." and its SHA-256; the row's columns always
// hold the id itself.
func encodeID(id string) string {
	if len(id) <= maxEncoded && plainKey(id) {
		return id
	}
	var b strings.Builder
	for i := range len(id) {
		if c := id[i]; plainKeyByte(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'.', hexDigits[c>>4], hexDigits[c&15]})
		}
		if b.Len() > maxEncoded {
			sum := sha256.Sum256([]byte(id))
			return ".." + hex.EncodeToString(sum[:])
		}
	}
	return b.String()
}

// decodeID undoes encodeID. ok is false for a hashed id and for what encodeID
// can't have made.
func decodeID(s string) (id string, ok bool) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '.' {
			if !plainKeyByte(s[i]) {
				return "", false
			}
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		high, low := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
		if high < 0 || low < 0 {
			return "", false
		}
		b = append(b, byte(high<<4|low))
		i += 2
	}
	return string(b), true
}

func plainKey(s string) bool {
	for i := range len(s) {
		if !plainKeyByte(s[i]) {
			return false
		}
	}
	return true
}

func plainKeyByte(c byte) bool {
	return c == '-' || c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')
}

// safeKey reports whether s can be a key, or a part of one, that we made.
func safeKey(s string) bool {
	for i := range len(s) {
		if !plainKeyByte(s[i]) && s[i] != '.' && s[i] != '~' {
			return false
		}
	}
	return len(s) <= 512
}

// Row keys of a Log table:
//
//	<message id>~<queue>~d~<webhook id>~<generation>~<rank>      a delivery
//	<message id>~<queue>~d~<webhook id>~<generation>~<rank>~<instance>      a delivery with its one attempt, or a note
//	<message id>~<queue>~a~<webhook id>~<generation>~<number>~<instance>    an attempt
//
// A delivery has a row for each rank that it reached, so that a write that takes effect
// late replaces nothing newer, at no further request; what is read is the newest.
func messagePrefix(messageID string) string {
	return encodeID(messageID) + separator
}

// orderOf is what rows have in common that have to stay in order: in a table of records the
// message, which is the first part of the key, and the row itself everywhere else.
func orderOf(rk string) string {
	first, _, _ := strings.Cut(rk, separator)
	return first
}

func queuePrefix(queue, messageID string) string {
	return messagePrefix(messageID) + encodeID(queue) + separator
}

func deliveriesPrefix(queue, messageID string) string {
	return queuePrefix(queue, messageID) + "d" + separator
}

func deliveryKey(d tables.Delivery) string { return string(appendDeliveryKey(nil, &d)) }

// maxKey is room for most keys.
const maxKey = 160

func appendDeliveryKey(b []byte, d *tables.Delivery) []byte {
	b = append(append(b, encodeID(d.MessageID)...), separator...)
	b = append(append(b, encodeID(d.Queue)...), separator+"d"+separator...)
	b = append(append(b, encodeID(d.WebhookID)...), separator...)
	b = append(appendPadded(b, int64(d.Generation), 4), separator...)
	return strconv.AppendInt(b, int64(d.Rank()), 10)
}

// completedKey is that of a first success. Two instances may each have one of the same delivery.
func completedKey(d tables.Delivery) string {
	var room [maxKey]byte
	b := append(appendDeliveryKey(room[:0], &d), separator...)
	return string(append(b, encodeID(d.Instance)...))
}

// noteKey is that of what an instance notes about a delivery while it is at work on it.
func noteKey(d tables.Delivery) string { return completedKey(d) }

// appendPadded appends a number with zeros before it, so that it has at least width digits.
func appendPadded(b []byte, n int64, width int) []byte {
	start := len(b)
	b = strconv.AppendInt(b, n, 10)
	if missing := width - (len(b) - start); n >= 0 && missing > 0 {
		b = slices.Insert(b, start, []byte("0000000000000")[:missing]...)
	}
	return b
}

// isDelivery tells the two kinds of row keys in a Log table apart.
func isDelivery(rk string) bool {
	parts := strings.SplitN(rk, separator, 4)
	return len(parts) == 4 && parts[2] == "d"
}

// isCompleted reports whether a row key is one that completedKey made: that of a note has another rank.
func isCompleted(rk string) bool {
	parts := strings.Split(rk, separator)
	return len(parts) == 7 && parts[2] == "d" && parts[5] == strconv.Itoa(tables.Delivered.Rank())
}

func attemptKey(a tables.Attempt) string {
	b := append(make([]byte, 0, maxKey), queuePrefix(a.Queue, a.MessageID)+"a"+separator...)
	b = append(append(b, encodeID(a.WebhookID)...), separator...)
	b = append(appendPadded(b, int64(a.Generation), 4), separator...)
	b = append(appendPadded(b, int64(a.Number), 6), separator...)
	return string(append(b, encodeID(a.Instance)...))
}

// shard spreads what has an id over n partitions of a table.
func shard(id string, n int) string {
	if n == 1 {
		return "s0"
	}
	var room [maxKey]byte
	sum := sha256.Sum256(append(room[:0], id...))
	return "s" + strconv.FormatUint(uint64(binary.BigEndian.Uint32(sum[:4])%uint32(n)), 10)
}

// Keys of a Recent table. Hours and milliseconds are inverted, so that ascending
// keys, the only order there is, mean newest first.
const allWebhooks = "all" + separator

// listShards is among how many partitions the attempts of all webhooks in an hour are divided: one takes 2,000 rows a second, as
// many as one webhook may have. A transaction goes to any of them, so that few of them cost no more than one; who reads, reads all.
const listShards = 4

// allPrefixes begin the partitions of all webhooks. The first has the name that it had when it was the only one.
func allPrefixes() []string {
	all := []string{allWebhooks}
	for i := 1; i < listShards; i++ {
		all = append(all, "all"+strconv.Itoa(i)+separator)
	}
	return all
}

func webhookPrefix(webhookID string) string {
	return "w" + separator + encodeID(webhookID) + separator
}

func invertedHour(t time.Time) string {
	var room [2]byte
	return string(appendPadded(room[:0], int64(23-t.UTC().Hour()), 2))
}

// maxMillis inverts times; it has 13 digits.
const maxMillis = 9_999_999_999_999

func invertedMillis(t time.Time) string { return string(appendInvertedMillis(nil, t)) }

func appendInvertedMillis(b []byte, t time.Time) []byte {
	return appendPadded(b, maxMillis-min(max(t.UnixMilli(), 0), maxMillis), 13)
}

func recentKey(a tables.Attempt) string {
	var room [2 * maxKey]byte
	b := room[:0]
	for _, id := range [...]string{a.Queue, a.MessageID, a.WebhookID} {
		b = append(strconv.AppendInt(b, int64(len(id)), 10), '.')
		b = append(b, id...)
	}
	sum := sha256.Sum256(append(b, a.Instance...))
	b = append(appendInvertedMillis(room[:0], a.StartedAt), separator...)
	b = append(hex.AppendEncode(b, sum[:8]), separator...)
	b = append(appendPadded(b, int64(a.Generation), 4), separator...)
	return string(appendPadded(b, int64(a.Number), 6))
}

package azuretable

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pushlease/pushlease/tables"
)

// Names of tables, behind the prefix. A day, or the number of a bucket, follows those of Log and Claims.
const (
	logName         = "Log"
	claimsName      = "Claims"
	healthName      = "Health"
	deadLettersName = "DeadLetters"
	rollupsName     = "Rollups"
	auditsName      = "Audits"
	webhooksName    = "Webhooks"
)

const dayLayout = "20060102"

func day(t time.Time) string { return t.UTC().Format(dayLayout) }

// sameDay is whether day says the same of both.
func sameDay(a, b time.Time) bool { return a.Equal(b) || day(a) == day(b) }

// cutDay returns the day of a table's name. Names of tables are the same in
// either case.
func cutDay(name, prefix string) (string, bool) {
	if len(name) != len(prefix)+len(dayLayout) || !strings.EqualFold(name[:len(prefix)], prefix) {
		return "", false
	}
	day := name[len(prefix):]
	return day, validDay(day)
}

func validDay(day string) bool {
	_, err := time.Parse(dayLayout, day)
	return err == nil
}

// A Claims table holds the claims of one bucket of time, by At. A bucket is as long
// as the window, so the claims that hold a key at any time lie in two of them.
const (
	bucketLength = tables.ClaimWindow
	// claimSkew is how far our clock may be from storage's, which made At, and from
	// those of other instances.
	claimSkew = time.Hour
)

// bucket numbers the buckets; the digits of a table's name bound it.
type bucket int64

const (
	bucketDigits = 5
	lastBucket   = 99_999
)

func bucketOf(t time.Time) bucket {
	const length = int64(bucketLength / time.Second)
	return bucket(min(max(t.Unix(), 0)/length, lastBucket))
}

// cutBucket returns the bucket of a table's name. Names of tables are the same in
// either case.
func cutBucket(name, prefix string) (bucket, bool) {
	if len(name) != len(prefix)+bucketDigits || !strings.EqualFold(name[:len(prefix)], prefix) {
		return 0, false
	}
	n, err := strconv.ParseUint(name[len(prefix):], 10, 32)
	return bucket(n), err == nil
}

// watched reports whether nobody drops a table by right as yet: those of days and buckets go when their retention
// has passed, which other instances see to, a day early at most. The index is made of what others hold.
func watched(prefix string, retention time.Duration, table string, now time.Time) bool {
	if day, ok := cutDay(table, prefix+logName); ok {
		return day >= now.UTC().Add(min(0, dropsEarly-retention)).Format(dayLayout)
	}
	if b, ok := cutBucket(table, prefix+claimsName); ok {
		return b >= oldestClaims(now.Add(dropsEarly))
	}
	return slices.Contains([]string{prefix + webhooksName, prefix + healthName, prefix + deadLettersName, prefix + rollupsName, prefix + auditsName}, table)
}

// dropsEarly is how much earlier than this process others may take a retention for passed.
const dropsEarly = 24 * time.Hour

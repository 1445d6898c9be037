package azuretable

import (
	"fmt"
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
	recentName      = "Recent"
)

// names are those of one store's tables, and of the partitions of a Log table.
type names struct {
	// prefix begins the name of each table.
	prefix string
	// partitions is how many the rows of a day have.
	partitions int
}

func (n names) webhooksTable() string         { return n.prefix + webhooksName }
func (n names) healthTable() string           { return n.prefix + healthName }
func (n names) deadLettersTable() string      { return n.prefix + deadLettersName }
func (n names) rollupsTable() string          { return n.prefix + rollupsName }
func (n names) auditsTable() string           { return n.prefix + auditsName }
func (n names) logTable(day string) string    { return n.prefix + logName + day }
func (n names) recentTable(day string) string { return n.prefix + recentName + day }
func (n names) claimsTable(b bucket) string {
	return fmt.Sprintf("%s%0*d", n.prefix+claimsName, bucketDigits, b)
}

// logPartition is the partition of a message's rows within its Log table.
func (n names) logPartition(messageID string) string { return shard(messageID, n.partitions) }

// shards are the partitions of a Log table.
func (n names) shards() []string {
	var all []string
	for i := range n.partitions {
		all = append(all, fmt.Sprintf("s%d", i))
	}
	return all
}

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

// oldestClaims is the first bucket that is kept. For the time of the skew another instance might write to it.
func oldestClaims(now time.Time) bucket { return bucketOf(now.Add(-tables.ClaimWindow - claimSkew)) }

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
func (n names) watched(retention time.Duration, table string, now time.Time) bool {
	if day, ok := cutDay(table, n.prefix+logName); ok {
		return day >= now.UTC().Add(min(0, dropsEarly-retention)).Format(dayLayout)
	}
	if b, ok := cutBucket(table, n.prefix+claimsName); ok {
		return b >= oldestClaims(now.Add(dropsEarly))
	}
	return slices.Contains([]string{n.webhooksTable(), n.healthTable(), n.deadLettersTable(), n.rollupsTable(), n.auditsTable()}, table)
}

// dropsEarly is how much earlier than this process others may take a retention for passed.
const dropsEarly = 24 * time.Hour

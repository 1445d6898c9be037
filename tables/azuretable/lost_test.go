package azuretable

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

// Settle makes the tables that the store has used no new ones any more.
func (s *Store) Settle() {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	for table, since := range s.watch.used {
		s.watch.used[table] = since.Add(-settling)
	}
}

// C85: each midnight, and when a program is new, several requests find a table not there yet. One of
// them makes it; the answers of the others may come after that.
func TestATableThatIsJustMadeIsNotTakenForADroppedOne(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		told := 0
		n := names{prefix: "t"}
		w := &watch{kept: func(table string, now time.Time) bool { return n.watched(0, table, now) }, missing: func() {}, lost: func(string) { told++ }}
		c, table := &client{seen: w.saw}, n.healthTable()
		missing := &storageError{code: "TableNotFound", index: -1}
		saw := func(what string, began time.Time, err error, want int) {
			t.Helper()
			if c.saw(table, began, err); told != want {
				t.Errorf("%s: told %d times, want %d", what, told, want)
			}
		}
		start := time.Now()
		saw("it is not there yet", start, missing, 0)
		time.Sleep(time.Second)
		made := time.Now()
		saw("it is made", made, nil, 0)
		saw("a late answer of before", start, missing, 0)
		time.Sleep(time.Second)
		saw("missing once more just after it was made", time.Now(), missing, 0)
		time.Sleep(settling)
		saw("a very late answer of before", made, missing, 0)
		saw("used", time.Now(), nil, 0)
		time.Sleep(time.Second)
		gone := time.Now()
		saw("dropped", gone, missing, 1)
		saw("nothing new", gone, missing, 1)
		time.Sleep(time.Second)
		saw("made anew", time.Now(), nil, 1)
		saw("a late answer of when it was gone", gone, missing, 1)
	})
}

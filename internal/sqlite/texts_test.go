package sqlite

import (
	"encoding/binary"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"modernc.org/libc"
	engine "modernc.org/sqlite/lib"

	"github.com/pushlease/pushlease/internal/bubble"
	"github.com/pushlease/pushlease/queue"
)

// pagesWritten is how many pages the writer has put into the journal so far.
func pagesWritten(t testing.TB, db *DB) (pages int32) {
	t.Helper()
	err := db.writer.do(t.Context(), "", false, func(tx *tx) error {
		c := tx.w.conn
		room := engine.Xsqlite3_malloc(c.tls, 8)
		defer engine.Xsqlite3_free(c.tls, room)
		rc := engine.Xsqlite3_db_status(c.tls, c.db, engine.SQLITE_DBSTATUS_CACHE_WRITE, room, room+4, 0)
		pages = int32(binary.NativeEndian.Uint32(libc.GoBytes(room, 4)))
		if rc != engine.SQLITE_OK {
			return c.failure(rc)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages
}

// longText is far longer than what is kept in a row, and unlike that of any other n.
func longText(n int) string { return strings.Repeat(string(rune('a'+n)), 40<<10) }

func TestALeaseWritesNoLongTextAnew(t *testing.T) {
	db := openNew(t)
	q := mustQueue(t, db)
	const messages = 10
	for n := range messages {
		mustSend(t, q, longText(n), queue.SendOptions{})
	}
	const most = 3 * messages // an abandon that writes texts takes 140
	write := func(what string, do func()) {
		t.Helper()
		before := pagesWritten(t, db)
		do()
		if pages := pagesWritten(t, db) - before; pages > most {
			t.Errorf("to %s %d messages of 40 KiB wrote %d pages, want at most %d", what, messages, pages, most)
		}
	}
	var leased []*queue.Message
	write("receive", func() { leased = receiveAll(t, q) })
	if len(leased) != messages {
		t.Fatalf("%d messages received, want %d", len(leased), messages)
	}
	write("renew", func() {
		for _, m := range leased {
			must(t, q.Renew(t.Context(), m, time.Minute))
		}
	})
	write("abandon", func() {
		for _, m := range leased {
			must(t, q.Abandon(t.Context(), m, 0))
		}
	})
	for n, m := range receiveAll(t, q) {
		if string(m.Text) != longText(n) {
			t.Errorf("message %d came back with another text of %d bytes", n, len(m.Text))
		}
	}
}

// textsApart is how many texts are not in the rows of messages.
func textsApart(t *testing.T, db *DB) (n int) {
	t.Helper()
	must(t, db.reads.QueryRowContext(t.Context(), "SELECT count(*) FROM texts").Scan(&n))
	return n
}

func TestATextGoesWithItsMessage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := openFile(t, filepath.Join(t.TempDir(), "p.db"), Options{OnExpired: func(Expired) {}})
		q := mustQueue(t, db)
		for _, text := range []string{"", "short", strings.Repeat("s", longestShort), strings.Repeat("l", longestShort+1), longText(0)} {
			mustSend(t, q, text, queue.SendOptions{TTL: time.Hour})
			if got := wantVisible(t, q, "sent", 1); string(got[0].Text) != text {
				t.Errorf("%d bytes came back as %d", len(text), len(got[0].Text))
			} else {
				must(t, q.Abandon(t.Context(), got[0], 0))
			}
			want := 0
			if len(text) > longestShort {
				want = 1
			}
			if n := textsApart(t, db); n != want {
				t.Errorf("%d texts are apart of a message of %d bytes, want %d", n, len(text), want)
			}
			must(t, q.Complete(t.Context(), receiveAll(t, q)[0]))
			if n := textsApart(t, db); n != 0 {
				t.Errorf("%d texts are left of a message of %d bytes that is deleted", n, len(text))
			}
		}
		mustSend(t, q, longText(1), queue.SendOptions{TTL: time.Hour})
		register(t, db, "w1")
		time.Sleep(2 * time.Hour)
		wantVisible(t, q, "expired", 0)
		if d := letters(t, db)[""]; string(d.Text) != longText(1) {
			t.Errorf("the dead letter of an expired message has %d bytes of text", len(d.Text))
		}
		if n := textsApart(t, db); n != 0 {
			t.Errorf("%d texts are left of a message that has expired", n)
		}
	})
}

// Until schema 12 every text was in the row of its message. A process of that version which goes on beside
// this one must not take a text that is apart for an empty one, but settles what it has in hand.
func TestAFileWithLongTextsInRowsIsReadAndAnOlderProcessMistakesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "old.db")
	other(t, path, strings.Join(schemas[:12], "\n")+`PRAGMA user_version = 12;
INSERT INTO queues (id, name) VALUES (1, 'orders');
INSERT INTO messages (queue, visible_at, hidden_at, receipt, dequeue_count, inserted_at, expires_at, id, text)
VALUES (1, 1764000000000, 1764000000000, 1, 0, 1764000000000, 0, 'old', CAST('`+longText(0)+`' AS BLOB));`)
	db := openFile(t, path, Options{})
	q := mustQueue(t, db)
	mustSend(t, q, longText(1), queue.SendOptions{})
	leased := wantVisible(t, q, "after the upgrade", 2)
	for n, m := range leased {
		if string(m.Text) != longText(n) {
			t.Errorf("message %d has %d bytes of another text", n, len(m.Text))
		}
	}
	err := db.write(t.Context(), serviceTable, "test", func(tx *tx) error {
		_, err := tx.exec("UPDATE messages SET dequeue_count = 1 WHERE text = ''")
		if err == nil || !strings.Contains(err.Error(), "no such column: text") {
			t.Errorf("a statement of the older version that reads texts: %v", err)
		}
		n, err := tx.exec("DELETE FROM messages WHERE id = ?", leased[1].ID)
		if n != 1 {
			t.Errorf("its delete of a message removed %d rows, want 1", n)
		}
		return err
	})
	must(t, err, q.Complete(t.Context(), leased[0]))
	if n := textsApart(t, db); n != 0 {
		t.Errorf("%d texts are left", n)
	}
}

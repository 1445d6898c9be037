package sqlite

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"modernc.org/libc"
	engine "modernc.org/sqlite/lib"

	"github.com/pushlease/pushlease/queue"
)

// disk stands between SQLite and the files of one folder, and knows what of them a loss of
// power would leave: what was synced, and of everything written since any part, in sectors.
type disk struct {
	folder string
	vfs    *engine.Tsqlite3_vfs
	open   uintptr // the VFS's own
	// functions are what SQLite calls, and Go does not know that it does.
	functions []any

	mu    sync.Mutex
	files map[uintptr]*file // by the address of SQLite's
	names map[string]*file
	// due is what happens after so many more writes and syncs.
	due   func()
	until int
}

// after has f called between two calls of SQLite's, with mu held, and waits for it.
func (d *disk) after(calls int, f func()) {
	done := make(chan struct{})
	d.mu.Lock()
	d.until, d.due = calls, func() { f(); close(done) }
	d.mu.Unlock()
	<-done
}

// step counts a call; mu is held.
func (d *disk) step() {
	if d.until--; d.due != nil && d.until <= 0 {
		due := d.due
		d.due = nil
		due()
	}
}

type file struct {
	methods *engine.Tsqlite3_io_methods // its own
	durable []byte
	pending []change
}

// change is a write, or, where data is nil, a truncation to the offset.
type change struct {
	offset int64
	data   []byte
}

// sector is what a disk writes whole.
const sector = 512

func (c change) apply(b []byte) []byte {
	if c.data == nil {
		return b[:min(int64(len(b)), c.offset)]
	}
	if need := c.offset + int64(len(c.data)) - int64(len(b)); need > 0 {
		b = append(b, make([]byte, need)...)
	}
	copy(b[c.offset:], c.data)
	return b
}

// torn is what a loss of power leaves of a change: all, nothing, or some sectors.
func (c change) torn(b []byte, r *rand.Rand) []byte {
	if c.data == nil {
		if r.IntN(2) == 0 {
			return b
		}
		return c.apply(b)
	}
	for at := 0; at < len(c.data); at += sector {
		if r.IntN(2) == 0 {
			b = change{c.offset + int64(at), c.data[at:min(at+sector, len(c.data))]}.apply(b)
		}
	}
	return b
}

// at is the Go value at an address of SQLite's memory.
func at[T any](address uintptr) *T { return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&address))) }

// function is the Go function that a C function pointer stands for.
func function[F any](pointer uintptr) F {
	return *(*F)(unsafe.Pointer(&pointer))
}

// pointer is the C function pointer that stands for a Go function, which is kept for it.
func (d *disk) pointer(f any) uintptr {
	d.functions = append(d.functions, f)
	return (*[2]uintptr)(unsafe.Pointer(&f))[1]
}

type (
	openFunc  = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32
	writeFunc = func(tls *libc.TLS, file, from uintptr, n int32, offset int64) int32
	sizeFunc  = func(tls *libc.TLS, file uintptr, size int64) int32
)

// newDisk takes over the files that SQLite opens in folder, until the test ends.
func newDisk(t *testing.T, folder string) *disk {
	t.Helper()
	tls := libc.NewTLS()
	d := &disk{folder: folder, files: map[uintptr]*file{}, names: map[string]*file{}}
	d.vfs = at[engine.Tsqlite3_vfs](engine.Xsqlite3_vfs_find(tls, 0))
	d.open = d.vfs.FxOpen
	d.vfs.FxOpen = d.pointer(d.xOpen)
	t.Cleanup(func() {
		d.vfs.FxOpen = d.open
		tls.Close()
	})
	return d
}

func (d *disk) xOpen(tls *libc.TLS, vfs, name, id uintptr, flags int32, out uintptr) int32 {
	rc := function[openFunc](d.open)(tls, vfs, name, id, flags, out)
	if rc != engine.SQLITE_OK || name == 0 || filepath.Dir(libc.GoString(name)) != d.folder {
		return rc
	}
	sqlite := at[engine.Tsqlite3_file](id)
	d.mu.Lock()
	defer d.mu.Unlock()
	base := filepath.Base(libc.GoString(name))
	f := d.names[base]
	if f == nil {
		f = &file{}
		d.names[base] = f
	}
	f.methods = at[engine.Tsqlite3_io_methods](sqlite.FpMethods)
	d.files[id] = f
	mine := engine.Xsqlite3_malloc(tls, int32(unsafe.Sizeof(*f.methods))) // for the rest of the test
	*at[engine.Tsqlite3_io_methods](mine) = *f.methods
	at[engine.Tsqlite3_io_methods](mine).FxWrite = d.pointer(d.xWrite)
	at[engine.Tsqlite3_io_methods](mine).FxTruncate = d.pointer(d.xTruncate)
	at[engine.Tsqlite3_io_methods](mine).FxSync = d.pointer(d.xSync)
	sqlite.FpMethods = mine
	return rc
}

func (d *disk) xWrite(tls *libc.TLS, id, from uintptr, n int32, offset int64) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[id]
	d.step()
	f.pending = append(f.pending, change{offset, bytes.Clone(libc.GoBytes(from, int(n)))})
	return function[writeFunc](f.methods.FxWrite)(tls, id, from, n, offset)
}

func (d *disk) xTruncate(tls *libc.TLS, id uintptr, size int64) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[id]
	f.pending = append(f.pending, change{size, nil})
	return function[sizeFunc](f.methods.FxTruncate)(tls, id, size)
}

func (d *disk) xSync(tls *libc.TLS, id uintptr, _ int32) int32 {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[id]
	d.step()
	for _, c := range f.pending {
		f.durable = c.apply(f.durable)
	}
	f.pending = nil
	return engine.SQLITE_OK
}

// cut writes what a loss of power would leave now into another folder; mu is held. It runs in
// the store's goroutines, so it fails the test without ending it.
func (d *disk) cut(t *testing.T, folder string, r *rand.Rand) (unsynced int) {
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		f := d.names[name]
		if _, err := os.Stat(filepath.Join(d.folder, name)); err != nil {
			continue // it was deleted
		}
		left := bytes.Clone(f.durable)
		for _, c := range f.pending {
			left = c.torn(left, r)
			unsynced++
		}
		if err := os.WriteFile(filepath.Join(folder, name), left, 0o600); err != nil {
			t.Error(err)
		}
	}
	return unsynced
}

// traffic is what callers of the store were told.
type traffic struct {
	mu sync.Mutex
	// ending are those whose end was asked for, and ended those of which it was answered.
	accepted, ending, ended map[string]bool
}

func (tr *traffic) note(m map[string]bool, id string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	m[id] = true
}

func (tr *traffic) told() *traffic {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return &traffic{accepted: maps.Clone(tr.accepted), ending: maps.Clone(tr.ending), ended: maps.Clone(tr.ended)}
}

// What was answered before the power went is there afterwards, whatever the disk had made of
// the writes that were not synced.
func TestPowerLossLosesNothingThatWasAnswered(t *testing.T) {
	folder, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	d := newDisk(t, folder)
	db := openFile(t, filepath.Join(folder, "p.db"), Options{})
	q := mustQueue(t, db)
	mustSend(t, q, "makes the queue", queue.SendOptions{})
	tr := &traffic{accepted: map[string]bool{}, ending: map[string]bool{}, ended: map[string]bool{}}
	stop := make(chan struct{})
	var work sync.WaitGroup
	for range 4 {
		work.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				sent, err := q.Send(t.Context(), []byte(strings.Repeat("x", 1+n%3*2000)), queue.SendOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				tr.note(tr.accepted, sent.ID)
				if n%3 != 0 {
					continue
				}
				ms, err := q.Receive(t.Context(), 1, time.Minute)
				if err == nil && len(ms) == 1 {
					tr.note(tr.ending, ms[0].ID)
					err = q.Complete(t.Context(), ms[0])
				}
				if err != nil {
					t.Error(err)
					return
				}
				if len(ms) == 1 {
					tr.note(tr.ended, ms[0].ID)
				}
			}
		})
	}
	seed := rand.Uint64()
	r, unsynced := rand.New(rand.NewPCG(seed, 0)), 0
	for i := range 12 {
		if i%4 == 3 { // a checkpoint moves everything, and its writes may be torn too
			work.Go(func() {
				if _, err := db.reads.Exec("PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
					t.Error(err)
				}
			})
		}
		left := t.TempDir()
		var told *traffic
		d.after(1+r.IntN(60), func() {
			told = tr.told()
			unsynced += d.cut(t, left, r)
		})
		if problem := checkLeft(t, filepath.Join(left, "p.db"), told); problem != "" {
			t.Errorf("cut %d of seed %d: %s", i+1, seed, problem)
			break
		}
	}
	close(stop)
	work.Wait()
	if unsynced == 0 {
		t.Error("no cut came between a write and its sync: the test has tried nothing")
	}
}

// checkLeft opens what a loss of power has left, and says what is wrong with it.
func checkLeft(t *testing.T, path string, told *traffic) string {
	t.Helper()
	db, err := Open(t.Context(), path, Options{})
	if err != nil {
		return err.Error()
	}
	defer func() { must(t, db.Close()) }()
	var health string
	must(t, db.reads.QueryRow("PRAGMA integrity_check").Scan(&health))
	there := map[string]bool{}
	rows, err := db.reads.Query("SELECT id FROM messages")
	must(t, err)
	defer func() { must(t, rows.Close()) }()
	for rows.Next() {
		var id string
		must(t, rows.Scan(&id))
		there[id] = true
	}
	must(t, rows.Err())
	lost, back := 0, 0
	for id := range told.accepted {
		if !there[id] && !told.ending[id] {
			lost++
		}
	}
	for id := range told.ended {
		if there[id] {
			back++
		}
	}
	if health != "ok" || lost > 0 || back > 0 {
		return fmt.Sprintf("integrity %q; of %d accepted messages %d are lost, of %d completed ones %d are back", health, len(told.accepted), lost, len(told.ended), back)
	}
	return ""
}

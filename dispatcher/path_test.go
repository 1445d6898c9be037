package dispatcher

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/webhook"
)

// callers are the dispatcher's files on the stack, from the outermost down. One that another file calls back, to
// run a step of its own, is there once.
func callers() (files []string) {
	pcs := make([]uintptr, 100)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		_, file, ours := strings.Cut(f.File, "/dispatcher/")
		file = strings.TrimPrefix(file, "internal/")
		if ours && !strings.HasSuffix(file, "_test.go") {
			files = append(files, file)
		}
	}
	slices.Reverse(files)
	first := map[string]bool{}
	return slices.DeleteFunc(files, func(file string) bool {
		again := first[file]
		first[file] = true
		return again
	})
}

// witness notes on which way the dispatcher came to each call that something else sees.
type witness struct {
	queue.Service
	Store
	Sender
	ways map[string][]string
}

type witnessed struct {
	queue.Queue
	w *witness
}

func (w *witness) Queue(name string) (queue.Queue, error) {
	q, err := w.Service.Queue(name)
	return witnessed{q, w}, err
}

func (q witnessed) Complete(ctx context.Context, m *queue.Message) error {
	q.w.ways["delete"] = callers()
	return q.Queue.Complete(ctx, m)
}

func (w *witness) Record(ctx context.Context, r tables.Record) error {
	w.ways["record"] = callers()
	return w.Store.Record(ctx, r)
}

func (w *witness) Send(ctx context.Context, to *webhook.Webhook, r webhook.Request) webhook.Result {
	w.ways["POST"] = callers()
	return w.Sender.Send(ctx, to, r)
}

// The page is what a stranger follows: the files through which a message's first success goes, in order.
func TestAMessagesFirstSuccessGoesThroughTheFilesThatThePageNames(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "dispatcher.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n## A message's first success\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var named []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z/]+\\.go)` \\|").FindAllStringSubmatch(text, -1) {
		named = append(named, m[1])
	}
	if !found || len(named) < 8 || len(named) > 12 {
		t.Fatalf("the page names %d files, want 8 to 12: %v", len(named), named)
	}
	inBubble(t, func(b *bench) {
		w := &witness{Service: b.queues, Store: b.store, Sender: b.sender, ways: map[string][]string{}}
		_, stop := b.start(func(o *Options) { o.Queues, o.Store, o.Sender = w, w, w })
		b.send("one")
		time.Sleep(10 * time.Second)
		stop()
		for _, call := range []string{"POST", "record", "delete"} {
			way := w.ways[call]
			if len(way) == 0 {
				t.Fatalf("there was no %s", call)
			}
			at := -1
			for _, file := range way {
				if file == "retry/retry.go" { // it is told nothing of the message
					continue
				}
				if n := slices.Index(named, file); n <= at {
					t.Errorf("the %s comes by %v: %s is not on the page after the file before it", call, way, file)
				} else {
					at = n
				}
			}
		}
	})
}

package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/pushlease/pushlease/internal/bubble"
)

// counted counts what reaches it.
type counted struct {
	mu     sync.Mutex
	text   bytes.Buffer
	writes int
}

func (c *counted) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes++
	return c.text.Write(p)
}

func (c *counted) seen() (lines, writes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Count(c.text.String(), "\n"), c.writes
}

func TestLinesAreWrittenTogetherAndSoon(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var out counted
		to := &lines{to: &out}
		log := slog.New(newHandler(Options{LogOutput: &out, LogFormat: "json"}, to, &lastError{}))
		want := func(when string, lines, writes int) {
			t.Helper()
			if gotLines, gotWrites := out.seen(); gotLines != lines || gotWrites != writes {
				t.Errorf("%s: %d lines in %d writes, want %d in %d", when, gotLines, gotWrites, lines, writes)
			}
		}
		for range 20 {
			log.Info("attempt")
			time.Sleep(time.Millisecond)
		}
		want("before 50 ms are over", 0, 0)
		time.Sleep(linesWait)
		synctest.Wait()
		want("after 50 ms", 20, 1)
		log.Info("attempt")
		log.Warn("something is wrong")
		want("at a warning", 22, 2)
		log.Info("attempt")
		time.Sleep(linesWait + time.Millisecond)
		synctest.Wait()
		want("the next one, after 50 ms", 23, 3)
		for range linesRoom / 10 {
			log.Info("attempt")
		}
		if _, writes := out.seen(); writes < 4 {
			t.Error("what waits has no bound")
		}
		log.Info("stopped")
		to.Direct()
		lines, writes := out.seen()
		if !strings.Contains(out.text.String(), "stopped") {
			t.Error("the last line is lost")
		}
		log.Info("later")
		want("after the end", lines+1, writes+1)
	})
}

func TestShutdownWritesWhatWaits(t *testing.T) {
	noCollector(t)
	var out counted
	tel := start(t, Options{LogOutput: &out, LogFormat: "json"})
	tel.Logger.Info("stopped")
	if err := tel.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lines, _ := out.seen(); lines != 1 {
		t.Errorf("%d lines, want the one that waited", lines)
	}
}

// blocked takes nothing before it is let go on, as a pipe does that is full and that nobody reads.
type blocked struct {
	counted
	goOn chan struct{}
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.goOn
	return b.counted.Write(p)
}

// Under the Functions host the log is a pipe, and who reads it may stop to. Everything that logs goes on
// after a second, and what does not fit is told of when the log is read again.
func TestALogThatNobodyReadsHoldsNothingUp(t *testing.T) {
	for _, direct := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			out := &blocked{goOn: make(chan struct{})}
			to := &lines{to: out}
			log := slog.New(newHandler(Options{LogOutput: out, LogFormat: "json"}, to, &lastError{}))
			to.direct = direct
			start, total := time.Now(), 0
			say := func(n int) {
				for range n {
					total++
					log.Info("attempt", "text", strings.Repeat("x", 1000))
					log.Warn("something is wrong")
					total++
				}
			}
			say(10)
			if took := time.Since(start); took > linesPatience {
				t.Errorf("20 lines took %s", took)
			}
			start = time.Now()
			say(3000)
			if took := time.Since(start); took > 0 {
				t.Errorf("6000 lines more took %s", took)
			}
			close(out.goOn)
			synctest.Wait()
			log.Warn("read again")
			total++
			var lost int
			written := strings.Split(strings.TrimSpace(out.text.String()), "\n")
			for _, line := range written {
				var l struct {
					Msg   string
					Lines int
				}
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatalf("%v: %s", err, line)
				}
				lost += l.Lines
			}
			if got := len(written) - 1 + lost; got != total || lost == 0 || len(written) < 1000 || !strings.Contains(written[len(written)-1], "read again") {
				t.Errorf("%d lines are written and %d told of as dropped, want %d and the last one; it is %s", len(written)-1, lost, total, written[len(written)-1])
			}
			start = time.Now()
			if log.Warn("soon"); time.Since(start) > 0 {
				t.Error("it is waited for a log that is read")
			}
		})
	}
}

// What is appended by hand is what slog writes, to the byte.
func TestALineIsTheSameAsSlogs(t *testing.T) {
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 0xab}, SpanID: trace.SpanID{2, 0xcd}})
	now := time.Date(2026, 11, 30, 18, 0, 0, 1230, time.FixedZone("", 3600))
	byHand := 0
	for _, values := range [][]slog.Attr{
		nil,
		{slog.String("queue", "orders"), slog.Int("attempt", -1), slog.Int64("n", 1<<40), slog.Bool("charged", true), slog.Duration("delay", 90*time.Second), slog.String("empty", "")},
		{slog.Duration("delay", 1500*time.Nanosecond)},
		{slog.String("cause", `the receiver said "no" \ and <left>`)}, {slog.String("tab", "a\tb")}, {slog.String("letter", "é\u2028")}, {slog.String("broken", "\xff")},
		{slog.String("less", "<&>'/~")}, {slog.String("delete", "\x7f")}, {slog.String(`a "name"`, "x")}, {slog.Float64("f", 0.1)}, {slog.Time("t", now)},
		{slog.Any("error", io.EOF)}, {slog.Any("nothing", nil)}, {slog.Group("g", slog.Int("a", 1))}, {slog.Uint64("u", 1<<63)}, {slog.Any("list", []int{1})}, {{}},
	} {
		for _, ctx := range []context.Context{t.Context(), trace.ContextWithSpanContext(t.Context(), span)} {
			for _, text := range []string{"attempt", `a "text"`} {
				r := slog.NewRecord(now, slog.LevelInfo, text, 0)
				r.AddAttrs(values...)
				if _, ok := appendLine(nil, &r, span); ok {
					byHand++
				}
				var got, want bytes.Buffer
				for _, h := range []struct {
					out  *bytes.Buffer
					json bool
				}{{&got, true}, {&want, false}} {
					out := &lines{to: h.out, direct: true}
					handler := newHandler(Options{LogOutput: h.out, LogFormat: "json"}, out, &lastError{}).(traceHandler)
					handler.json = h.json
					if err := handler.Handle(ctx, r); err != nil {
						t.Fatal(err)
					}
					out.Flush()
				}
				if got.String() != want.String() || got.Len() == 0 {
					t.Errorf("%q, where slog writes %q", &got, &want)
				}
			}
		}
	}
	if want := 6; byHand != want {
		t.Errorf("%d lines were appended by hand, want %d", byHand, want)
	}
	var with bytes.Buffer
	out := &lines{to: &with, direct: true}
	slog.New(newHandler(Options{LogOutput: &with, LogFormat: "json"}, out, &lastError{})).With("part", "a").Info("attempt", "n", 1)
	if out.Flush(); !strings.HasSuffix(with.String(), `"msg":"attempt","part":"a","n":1}`+"\n") {
		t.Errorf("%q", &with)
	}
}

// What a line costs, with a system call of its own or without.
func BenchmarkAttemptLine(b *testing.B) {
	file, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for name, to := range map[string]io.Writer{"discard": io.Discard, "file": file} {
		for _, direct := range []bool{true, false} {
			b.Run(map[bool]string{true: name + "/direct", false: name + "/gathered"}[direct], func(b *testing.B) {
				out := &lines{to: to}
				log := slog.New(newHandler(Options{LogOutput: to, LogFormat: "json"}, out, &lastError{}))
				out.direct = direct
				ctx := trace.ContextWithSpanContext(b.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: newTraceID(), SpanID: trace.SpanID{1}}))
				b.ReportAllocs()
				for range b.N {
					log.LogAttrs(ctx, slog.LevelInfo, "attempt",
						slog.String("queue", "orders"), slog.String("message", "0123456789abcdef0123456789"), slog.String("webhook", "wh_0123456789"),
						slog.Int("attempt", 1), slog.Int("generation", 0), slog.Int64("delivery_count", 1), slog.Int("status", 200),
						slog.String("error_class", ""), slog.Int64("duration_ms", 12), slog.String("decision", "complete"),
						slog.String("reason", "Delivered"), slog.Bool("charged", true), slog.Duration("delay", 0), slog.Int("redials", 0))
				}
			})
		}
	}
}

package telemetry

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
)

// maxErrorText bounds what is logged of an exporter's error, which may quote
// the collector's answer.
const maxErrorText = 300

// newHandler writes to out, at once where somebody reads at a terminal.
func newHandler(o Options, out *lines, worst *lastError) slog.Handler {
	opts := &slog.HandlerOptions{Level: o.LogLevel, ReplaceAttr: durationsAsText}
	out.direct = isTerminal(o.LogOutput)
	format := func(w io.Writer) slog.Handler { return slog.NewJSONHandler(w, opts) }
	asText := o.LogFormat == "text" || o.LogFormat == "auto" && out.direct
	if asText {
		format = func(w io.Writer) slog.Handler { return slog.NewTextHandler(w, opts) }
	}
	out.lost = func(n int) []byte { // not by way of out, whose writer makes it
		var line bytes.Buffer
		r := slog.NewRecord(time.Now(), slog.LevelWarn, "lines of the log were dropped, since nobody read it", 0)
		r.AddAttrs(slog.Int("lines", n))
		_ = format(&line).Handle(context.Background(), r) // a Buffer takes all
		return line.Bytes()
	}
	return traceHandler{format(out), out, worst, !asText}
}

// isTerminal reports whether someone reads what is written to w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// durationsAsText writes durations as everywhere else in pushlease ("30s"); slog
// alone would write nanoseconds into JSON.
func durationsAsText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// traceHandler adds the ids of the span in the context. What is a warning or worse waits for no
// other line.
type traceHandler struct {
	slog.Handler
	out   *lines
	worst *lastError
	// json: what is logged is JSON, and has no attributes but its own.
	json bool
}

// usualLine is room for most lines.
const usualLine = 1 << 10

func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	sc := trace.SpanContextFromContext(ctx)
	if h.json && r.Level < slog.LevelWarn {
		var room [usualLine]byte
		if line, ok := appendLine(room[:0], &r, sc); ok {
			_, err := h.out.Write(line)
			return err
		}
	}
	if sc.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	err := h.Handler.Handle(ctx, r)
	if r.Level >= slog.LevelWarn {
		h.out.Flush()
	}
	if r.Level >= slog.LevelError {
		h.worst.note(r)
	}
	return err
}

func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceHandler{h.Handler.WithAttrs(attrs), h.out, h.worst, false}
}

func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.Handler.WithGroup(name), h.out, h.worst, false}
}

// lastError is what was logged last as an error.
type lastError struct {
	mu   sync.Mutex
	text string
	at   time.Time
}

// note keeps the sentence, with what caused it where the line says that.
func (e *lastError) note(r slog.Record) {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "error" {
			text += ": " + a.Value.String()
		}
		return true
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.text, e.at = text, r.Time
}

func (e *lastError) get() (text string, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.text, e.at
}

// errorLog logs the errors of exporters, at most one in each period: a collector
// that is down for a day must not fill the log.
type errorLog struct {
	log   *slog.Logger
	every time.Duration

	mu         sync.Mutex
	last       time.Time
	suppressed int
}

// Handle implements otel.ErrorHandler.
func (e *errorLog) Handle(err error) {
	if err == nil {
		return
	}
	e.mu.Lock()
	now := time.Now()
	if !e.last.IsZero() && now.Sub(e.last) < e.every {
		e.suppressed++
		e.mu.Unlock()
		return
	}
	suppressed := e.suppressed
	e.last, e.suppressed = now, 0
	e.mu.Unlock()
	text := err.Error()
	if len(text) > maxErrorText {
		text = text[:maxErrorText] + "…"
	}
	e.log.Warn("telemetry could not be sent", "error", text, "suppressed", suppressed)
}

// sdkLog takes what the SDK logs about itself. Left alone, the SDK writes to standard
// error, and quotes the variable that it can't read: the headers for the collector
// are credentials. So the values and the error, which quotes them too, are left out.
type sdkLog struct{ log *slog.Logger }

func (sdkLog) Init(logr.RuntimeInfo) {}

func (sdkLog) Enabled(int) bool { return false } // of what is no error

func (sdkLog) Info(int, string, ...any) {}

func (s sdkLog) Error(_ error, msg string, _ ...any) {
	s.log.Warn("OpenTelemetry can't use a setting; check the OTEL_* variables", "step", msg)
}

func (s sdkLog) WithValues(...any) logr.LogSink { return s }

func (s sdkLog) WithName(string) logr.LogSink { return s }

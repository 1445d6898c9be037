package telemetry

import (
	"encoding/hex"
	"log/slog"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// appendLine appends a record as slog writes it in JSON, with the ids of its span. Nearly all lines are about an attempt, one for
// each message: slog copies its attributes for the ids, and asks about each of them. ok is false where a value is more than a plain
// text, a number or the like: slog writes those.
func appendLine(b []byte, r *slog.Record, span trace.SpanContext) (line []byte, ok bool) {
	if !plain(r.Message) {
		return nil, false
	}
	b = append(b, `{"time":"`...)
	b = r.Time.AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","level":"`...)
	b = append(b, r.Level.String()...)
	b = append(b, `","msg":"`...)
	b = append(append(b, r.Message...), '"')
	ok = true
	r.Attrs(func(a slog.Attr) bool {
		b, ok = appendAttr(b, a)
		return ok
	})
	if !ok {
		return nil, false
	}
	if span.IsValid() {
		trace, id := span.TraceID(), span.SpanID()
		b = hex.AppendEncode(append(b, `,"trace_id":"`...), trace[:])
		b = append(hex.AppendEncode(append(b, `","span_id":"`...), id[:]), '"')
	}
	return append(b, "}\n"...), true
}

func appendAttr(b []byte, a slog.Attr) ([]byte, bool) {
	if !plain(a.Key) {
		return b, false
	}
	b = append(append(append(b, `,"`...), a.Key...), `":`...)
	switch v := a.Value; v.Kind() { //nolint:exhaustive // slog writes the others
	case slog.KindString:
		return append(append(append(b, '"'), v.String()...), '"'), plain(v.String())
	case slog.KindDuration: // as everywhere else in pushlease
		return append(append(append(b, '"'), v.Duration().String()...), '"'), plain(v.Duration().String())
	case slog.KindInt64:
		return strconv.AppendInt(b, v.Int64(), 10), true
	case slog.KindBool:
		return strconv.AppendBool(b, v.Bool()), true
	default:
		return b, false
	}
}

// plain reports whether a text is the same within quotation marks.
func plain(text string) bool {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

package sim

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Clocks of instances that differ. A bubble has one clock, which every instance reads. So what would be said of time
// in the words of another clock is translated where it comes in and goes out, at storage and at the API: by as much
// as an instance's clock is ahead, a time that it reads there is earlier than it is written, and one that it writes
// is later. What it compares is then as far apart as if its own clock were ahead. Keys that order dead letters and
// lists by time are names: they stay as whoever made them did.

// ahead is how far the clock of an instance is ahead of the simulation's.
func (w *world) ahead(slot int) time.Duration {
	if len(w.plan.Clocks) == 0 {
		return 0
	}
	return w.plan.Clocks[slot]
}

// aheadOf is ahead by an instance's name.
func (w *world) aheadOf(name string) time.Duration {
	for _, i := range w.all {
		if i.name == name {
			return w.ahead(i.slot)
		}
	}
	return 0
}

// notation is a way to write a time, in a form that keeps its length: with a layout, or without one as milliseconds from
// the first digit on.
type notation struct {
	form   *regexp.Regexp
	layout string
}

var (
	rowTime    = notation{regexp.MustCompile(`"9\d{11}"`), ""} // a row holds milliseconds (docs/architecture.md)
	filterTime = notation{regexp.MustCompile(`\b9\d{11}L`), ""}
	jsonTime   = notation{regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d`), "2006-01-02T15:04:05"}
	headerTime = notation{regexp.MustCompile(`[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT`), http.TimeFormat}
)

// later has times of a text later by as much, whole seconds.
func (w *world) later(text []byte, by time.Duration, ways ...notation) []byte {
	if by == 0 {
		return text
	}
	for _, way := range ways {
		text = way.form.ReplaceAllFunc(text, func(b []byte) []byte {
			if t, ok := way.read(b); ok && t.Sub(w.begin).Abs() < 60*24*time.Hour { // not one that means never
				return way.write(b, t.Add(by))
			}
			return b
		})
	}
	return text
}

func (way notation) read(b []byte) (time.Time, bool) {
	if way.layout != "" {
		t, err := time.Parse(way.layout, string(b))
		return t, err == nil
	}
	ms, err := strconv.ParseInt(strings.Trim(string(b), `"L`), 10, 64)
	return time.UnixMilli(ms), err == nil
}

func (way notation) write(b []byte, t time.Time) []byte {
	if way.layout != "" {
		return t.UTC().AppendFormat(nil, way.layout)
	}
	from := bytes.IndexByte(b, '9')
	return append(strconv.AppendInt(b[:from:from], t.UnixMilli(), 10), b[from+12:]...)
}

// binaryRow is a value of a row that may hold JSON as bytes: registrations, instances and replay jobs are kept so.
var binaryRow = regexp.MustCompile(`"eyJ[A-Za-z0-9+/]+={0,2}"`)

// laterInRows is later for rows, whose bytes keep their length too.
func (w *world) laterInRows(text []byte, by time.Duration) []byte {
	if by == 0 {
		return text
	}
	text = binaryRow.ReplaceAllFunc(text, func(b []byte) []byte {
		whole, err := base64.StdEncoding.AppendDecode(nil, b[1:len(b)-1])
		if err != nil {
			return b
		}
		return append(base64.StdEncoding.AppendEncode([]byte{'"'}, w.later(whole, by, jsonTime)), '"')
	})
	return w.later(text, by, rowTime, jsonTime)
}

// sends translates what an instance asks of the account: queues are told no times.
func (i *instance) sends(req *http.Request, body []byte) []byte {
	by := i.w.ahead(i.slot)
	req.URL.RawQuery = string(i.w.later([]byte(req.URL.RawQuery), by, filterTime))
	return i.w.laterInRows(body, by)
}

// reads translates what the account answers it.
func (i *instance) reads(c *call, answer *httptest.ResponseRecorder) {
	by := -i.w.ahead(i.slot)
	if by == 0 {
		return
	}
	text := i.w.later(answer.Body.Bytes(), by, headerTime)
	if c.service == "table" {
		text = i.w.laterInRows(answer.Body.Bytes(), by)
	}
	answer.Body.Reset()
	answer.Body.Write(text)
	for _, values := range answer.Header() {
		for n, value := range values {
			values[n] = string(i.w.later([]byte(value), by, headerTime))
		}
	}
}

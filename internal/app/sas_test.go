package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// C21: what ends by itself is told of before.
func TestEndOfTheStoragesSignatureIsToldInTime(t *testing.T) {
	const day = 24 * time.Hour
	start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		end          time.Time
		warns, fails int
	}{
		"ends in three weeks": {start.Add(21 * day), 13 + 24, 24 * 9},
		"ends in a year":      {start.Add(365 * day), 0, 0},
		"has ended":           {start.Add(-day), 0, 24 * 30},
		"never ends":          {time.Time{}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			w := sasWatch{end: tt.end, log: slog.New(slog.NewJSONHandler(&log, nil))}
			for now := start; now.Before(start.Add(30 * day)); now = now.Add(time.Hour) {
				w.look(now)
			}
			warns, fails := strings.Count(log.String(), `"WARN"`), strings.Count(log.String(), `"ERROR"`)
			if near(warns, tt.warns) && near(fails, tt.fails) {
				return
			}
			t.Errorf("%d warnings and %d errors in 30 days, want about %d and %d", warns, fails, tt.warns, tt.fails)
		})
	}
}

// near allows for where a period begins; none is none.
func near(got, want int) bool {
	return got == want || want > 0 && got >= want-2 && got <= want+2
}

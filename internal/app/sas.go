package app

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/internal/azureconn"
)

// tellSASFaults says at the start what the storage's signature lacks.
func tellSASFaults(log *slog.Logger, faults []azureconn.Right) {
	for _, f := range faults {
		level := slog.LevelError
		if f.Warning {
			level = slog.LevelWarn
		}
		log.Log(context.Background(), level, f.Text, "cure", f.Cure)
	}
}

// sasCheck fails while the storage's signature does not allow what is needed, whether that
// was asked for already or not.
func sasCheck(faults []azureconn.Right) api.Check {
	c := api.Check{Name: "signature", OK: true}
	var lacking []string
	for _, f := range faults {
		if f.Warning {
			continue
		}
		c.Degrades = f.Partly && (c.OK || c.Degrades)
		c.OK = false
		lacking = append(lacking, f.Text)
	}
	if !c.OK {
		c.Detail = strings.Join(lacking, "; ") + ": " + faults[0].Cure
	}
	return c
}

const (
	// sasNotice is how long before the end of the storage's signature the log begins to
	// say so.
	sasNotice = 14 * 24 * time.Hour
	// sasEvery is how often it is said again, and sasEveryLate on the last day and after
	// the end.
	sasEvery     = 24 * time.Hour
	sasEveryLate = time.Hour
)

// sasWatch warns before the shared access signature of the storage ends, since every
// call is refused from then on and nothing here can renew it. Safe for concurrent use.
type sasWatch struct {
	end time.Time // zero when it never ends, or nobody knows
	log *slog.Logger

	mu   sync.Mutex
	said time.Time
}

// look is called from time to time.
func (w *sasWatch) look(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := w.end.Sub(now)
	every := sasEvery
	if left < sasEvery {
		every = sasEveryLate
	}
	if w.end.IsZero() || left > sasNotice || !w.said.IsZero() && now.Sub(w.said) < every {
		return
	}
	w.said = now
	if left <= 0 {
		w.log.Error("the storage's shared access signature has ended: make a new one and set storage to it", "ended", w.end.UTC())
		return
	}
	w.log.Warn("the storage's shared access signature ends soon: make a new one and set storage to it",
		"ends", w.end.UTC(), "left", left.Round(time.Minute).String())
}

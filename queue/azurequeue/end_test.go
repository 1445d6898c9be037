package azurequeue_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/queue/azurequeue"
)

// strict is a service that does as its page says: it does not hide a message until after its end. Its
// clock is far from ours.
func strict(t *testing.T, now, end time.Time) *fake {
	t.Helper()
	return newFake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", now.Format(http.TimeFormat))
		visibility, err := strconv.Atoi(r.URL.Query().Get("visibilitytimeout"))
		if err != nil || now.Add(time.Duration(visibility)*time.Second).After(end) {
			refuse(w, 400, "InvalidQueryParameterValue", "<QueryParameterName>visibilitytimeout</QueryParameterName>")
			return
		}
		w.Header().Set("x-ms-popreceipt", "next")
		w.WriteHeader(http.StatusNoContent)
	})
}

// A message whose life is shorter than the lease that is asked for is hidden for what it has left.
func TestAMessageIsHiddenToItsEndWhereStorageHidesItForNoLonger(t *testing.T) {
	now := time.Now().Add(-5 * time.Minute).UTC().Truncate(time.Second)
	for name, hide := range map[string]func(q queue.Queue, m *queue.Message) error{
		"renew":   func(q queue.Queue, m *queue.Message) error { return q.Renew(t.Context(), m, time.Minute) },
		"hide":    func(q queue.Queue, m *queue.Message) error { return q.Hide(t.Context(), m, time.Minute) },
		"abandon": func(q queue.Queue, m *queue.Message) error { return q.Abandon(t.Context(), m, time.Minute) },
	} {
		for left, want := range map[time.Duration]time.Duration{40 * time.Second: 39 * time.Second, time.Second: time.Second, time.Minute: time.Minute} {
			m := held("r")
			m.ExpiresAt = now.Add(left)
			f := strict(t, now, m.ExpiresAt)
			start := time.Now()
			if err := hide(f.openQueue(t, azurequeue.Options{}), m); err != nil {
				t.Errorf("%s with %s left: %v", name, left, err)
			}
			seen := f.requests()
			if last := seen[len(seen)-1].uri; !strings.Contains(last, fmt.Sprintf("visibilitytimeout=%d", want/time.Second)) {
				t.Errorf("%s with %s left: %s does not hide it for %s", name, left, last, want)
			}
			if name == "abandon" {
				continue
			}
			if m.Lease.Receipt() != "next" || m.Lease.Granted() != want || m.Lease.Until().Before(start.Add(want)) || m.Lease.Until().After(time.Now().Add(want)) {
				t.Errorf("%s with %s left: receipt %s, granted %s", name, left, m.Lease.Receipt(), m.Lease.Granted())
			}
		}
	}
}

// What is refused for another reason is not asked for again, and neither is what has ended.
func TestARefusedUpdateIsNotAskedForAgainWithoutReason(t *testing.T) {
	now := time.Now().UTC().Truncate(time.Second)
	for name, c := range map[string]struct {
		expires time.Time
		date    string
		want    int // requests
	}{
		"it never ends":                    {time.Time{}, now.Format(http.TimeFormat), 1},
		"it has longer":                    {now.Add(time.Hour), now.Format(http.TimeFormat), 1},
		"the answer has no date":           {now.Add(10 * time.Second), "soon", 1},
		"storage refuses what is left too": {now.Add(10 * time.Second), now.Format(http.TimeFormat), 2},
	} {
		f := newFake(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Date", c.date)
			refuse(w, 400, "OutOfRangeQueryParameterValue", "")
		})
		m := held("r")
		m.ExpiresAt = c.expires
		err := f.openQueue(t, azurequeue.Options{}).Renew(t.Context(), m, time.Minute)
		if err == nil || !queue.Ambiguous(err) || len(f.requests()) != c.want {
			t.Errorf("%s: %v after %d requests, want %d", name, err, len(f.requests()), c.want)
		}
		noSecrets(t, err)
	}
}

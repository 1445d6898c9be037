package azuretable

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/tables"
	"github.com/pushlease/pushlease/tables/azuretable/internal/commit"
)

// BenchmarkSubmit encodes and writes attempts in one transaction. What the service does
// in this process is the same for any client: it throws the request away.
func BenchmarkSubmit(b *testing.B) {
	for _, n := range []int{1, 16, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			answer := batchAnswer(slices.Repeat([]string{written}, n)...)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.WriteHeader(http.StatusAccepted)
				_, _ = io.WriteString(w, answer)
			}))
			defer server.Close()
			s := openSAS(b, server.URL)
			at := time.Date(2026, 11, 26, 22, 15, 30, 123_000_000, time.UTC)
			b.ReportAllocs()
			for b.Loop() {
				rows := make([]commit.Row, n)
				for i := range rows {
					a := tables.Attempt{
						MessageKey: tables.MessageKey{Queue: "orders", MessageID: fmt.Sprintf("0b4d1b5e-6f7a-4b8e-9c1d-%012d", i), Day: at},
						WebhookID:  "wh_orders", Number: 1, StartedAt: at, Duration: 12 * time.Millisecond, Status: 204,
						Action: "complete", Reason: "Delivered", Charged: true, Explanation: "2xx: the receiver has it", Instance: "host-1",
					}
					c := attemptColumns(a)
					r, err := c.row("s0", attemptKey(a))
					if err != nil {
						b.Fatal(err)
					}
					rows[i] = r
				}
				if err := s.client.submit(b.Context(), "pushleaseLog20261126", rows); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

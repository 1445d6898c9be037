package main

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"
)

// An operator's Prometheus sees each counter at 0 before its first event, what the queue
// holds, and no name that another service may have too.
func TestMetricsShowTheFirstEventAndWhatTheQueueHolds(t *testing.T) {
	onStores(t, func(t *testing.T, s *store) {
		p, queue := s.start(t), queueName("watched")
		in := newInbox(t, receiverOptions{Answer: reply{Status: http.StatusBadRequest}})
		p.register(queue, in.url, nil)
		scrape := func() string {
			a, err := p.try(http.MethodGet, "/metrics", "", "")
			if err != nil || a.status != http.StatusOK {
				t.Fatalf("metrics: %v %d", err, a.status)
			}
			return string(a.body)
		}
		dead := fmt.Sprintf("\npushlease_messages_deadlettered_total{queue=%q,reason=\"NonRetryableError\"} ", queue)
		for _, count := range []string{"0", "1"} {
			waitUntil(t, 20*time.Second, func() string {
				if !strings.Contains(scrape(), dead+count+"\n") {
					return "the counter is not at " + count
				}
				return ""
			})
			if count == "0" {
				p.publish(queue, `{"text":"`+bodyMark+`"}`)
			}
		}
		waitUntil(t, 90*time.Second, func() string { // counted once a minute
			if !strings.Contains(scrape(), fmt.Sprintf("\npushlease_queue_messages{queue=%q,state=\"visible\"} 0\n", queue)) {
				return "what the queue holds is not counted"
			}
			return ""
		})
		if p.metric("pushlease_message_first_attempt_delay_seconds_count", queue) != 1 || p.metric("pushlease_message_delivery_duration_seconds_count", queue) != 0 {
			t.Error("the time to the first attempt, or of the delivery that never was")
		}
		own := regexp.MustCompile(`^(pushlease|go|process|promhttp)_|^target_info`)
		for line := range strings.SplitSeq(scrape(), "\n") {
			if line != "" && line[0] != '#' && !own.MatchString(line) {
				t.Errorf("another service may have %s", line)
			}
		}
	})
}

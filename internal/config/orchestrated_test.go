package config

import (
	"testing"
	"time"
)

// C110: where something outside decides where requests are sent, it has time to notice a stop; on a terminal a stop is
// not held up.
func TestAStopWaitsWhereAnOrchestratorSendsRequests(t *testing.T) {
	for env, want := range map[string]time.Duration{
		"KUBERNETES_SERVICE_HOST=10.0.0.1": 5 * time.Second, "CONTAINER_APP_NAME=push": 5 * time.Second, "HOME=/root": 0,
	} {
		c, err := Load(nil, []string{env})
		if err != nil || c.ShutdownDelay != want {
			t.Errorf("%s: shutdown_delay is %s, %v; want %s", env, c.ShutdownDelay, err, want)
		}
		if c, err := Load(nil, []string{env, "PUSHLEASE_SHUTDOWN_DELAY=2s"}); err != nil || c.ShutdownDelay != 2*time.Second {
			t.Errorf("%s: a shutdown_delay of 2s is %s, %v", env, c.ShutdownDelay, err)
		}
	}
}

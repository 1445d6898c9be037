package app

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/pushlease/pushlease/api"
)

func TestOneQueueOfSeveralDegradesAndAllOfThemUnready(t *testing.T) {
	const queues = 12
	for failing := range queues + 1 {
		health := map[string]error{"webhooks": nil}
		for i := range queues {
			var err error
			if i < failing {
				err = errors.New("status 403")
			}
			health[fmt.Sprintf("queue q%d", i)] = err
		}
		for _, c := range healthChecks(health) {
			wrong := c.Detail != ""
			if c.OK == wrong || c.Degrades != (wrong && failing < queues) {
				t.Errorf("%d of %d fail: %+v", failing, queues, c)
			}
		}
	}
	checks := healthChecks(map[string]error{"webhooks": errors.New("no answer"), "queue a": nil})
	if i := slices.IndexFunc(checks, func(c api.Check) bool { return c.Name == "webhooks" }); checks[i].OK || checks[i].Degrades {
		t.Errorf("registrations that can't be read: %+v", checks[i])
	}
}

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/api"
	"github.com/pushlease/pushlease/queue"
	"github.com/pushlease/pushlease/webhook"
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

// What keeps this process from serving its API makes it not ready, and nothing else does.
func TestReadyIsWhoCanServeTheAPI(t *testing.T) { // C50
	var storage, webhooks, one, other error
	ahead := time.Duration(0)
	r := &readiness{
		stores: &stores{lost: &lost{}, fault: func(context.Context) error { return storage }, clockAhead: func() (time.Duration, bool) { return ahead, true }},
		name:   func(time.Time) api.Check { return api.Check{Name: "instance", OK: true} }, shortage: func() webhook.Shortage { return webhook.Shortage{} },
		health: func() map[string]error {
			return map[string]error{"webhooks": webhooks, "queue a": one, "queue b": other}
		},
	}
	is := func(what string, ready int, failing ...string) {
		t.Helper()
		got, kinds := tally(r.checks(t.Context()))
		if got != int64(ready) {
			t.Errorf("%s: ready is %d, want %d", what, got, ready)
		}
		for kind, n := range kinds {
			if (n > 0) != slices.Contains(failing, kind) {
				t.Errorf("%s: %d checks of %s fail, want those of %v", what, n, kind, failing)
			}
		}
	}
	fault := errors.New("status 403")
	is("all is well", 1)
	one = fault
	is("one queue", 1, "queue")
	other = fault
	is("all queues", 0, "queue")
	one, other, webhooks = nil, nil, fault
	is("the registrations", 0, "webhooks")
	webhooks, storage = nil, fault
	is("storage", 0, "storage")
	storage, ahead = nil, clockLimit+time.Second
	is("the clock", 0, "clock")
	ahead = 0
	is("all is well again", 1)
	r.draining.Store(true)
	is("a stop", 0, "draining")
}

// C94: a queue that somebody deleted says nothing of storage, nor of the other queues.
func TestAQueueThatSomebodyDeletedDegrades(t *testing.T) {
	gone := fmt.Errorf("%w: it was in use", queue.ErrQueueNotFound)
	for _, c := range healthChecks(map[string]error{"webhooks": nil, "queue a": gone, "queue b": gone}) {
		if name := strings.HasPrefix(c.Name, queueCheck); c.OK == name || c.Degrades != name {
			t.Errorf("all that there are: %+v", c)
		}
	}
	for _, c := range healthChecks(map[string]error{"queue a": gone, "queue b": errors.New("status 403")}) {
		if deleted := c.Name == "queue a"; c.OK || c.Degrades != deleted {
			t.Errorf("the only other one can't be received from: %+v", c)
		}
	}
}

// C105: a lack of this machine's is told, for a while, to who asks and by the log and the
// metrics that are made of the same checks.
func TestAShortageOfThisMachineIsAFailingCheck(t *testing.T) {
	now := time.Now()
	if c := socketsCheck(webhook.Shortage{}, now); !c.OK {
		t.Errorf("without a shortage: %+v", c)
	}
	last := webhook.Shortage{At: now.Add(-50 * time.Second), Text: "this machine has no socket left"}
	c := socketsCheck(last, now)
	if c.OK || !c.Degrades || !strings.Contains(c.Detail, last.Text) {
		t.Errorf("50 s after one: %+v", c)
	}
	if ready, failing := tally([]api.Check{c}); ready != 1 || failing["sockets"] != 1 {
		t.Errorf("the gauges say %d, %v", ready, failing)
	}
	last.At = now.Add(-70 * time.Second)
	if c := socketsCheck(last, now); !c.OK {
		t.Errorf("70 s after one: %+v", c)
	}
}

// A rule that compares needs a 0 before the 1.
func TestEachKindOfCheckHasAValueFromTheStart(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`api\.Check\{+\s*Name:\s*"(\w+)`)
	_, failing := tally(nil)
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range named.FindAllSubmatch(text, -1) {
			found++
			if _, there := failing[string(m[1])]; !there {
				t.Errorf("the check %s of %s has no value while it does not fail", m[1], file)
			}
		}
	}
	if found < 7 {
		t.Errorf("only %d checks are found in the source", found)
	}
}

package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

// C81: an account that can be read and not written serves nobody.
func TestAnAccountThatCanNotBeWrittenIsAFault(t *testing.T) {
	noAnswer := errors.New("no answer")
	for name, tt := range map[string]struct {
		status int
		err    error
		says   string
	}{
		"denied":    {403, nil, "Storage Table Data Contributor"},
		"no token":  {401, nil, "check the role"},
		"busy":      {503, nil, "answered 503"},
		"throttled": {429, nil, "answered"},
		"no answer": {0, noAnswer, "check the network"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := &writes{}
				for n := range failedWrites {
					if err := w.fault(t.Context()); err != nil {
						t.Errorf("after %d failed writes: %v", n, err)
					}
					w.note("table", "", "batch", tt.status, tt.err)
					w.note("table", "", "query", 200, nil) // what is read says nothing about that
					w.note("queue", "orders", "send", 201, nil)
				}
				if err := w.fault(t.Context()); err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), "table service") {
					t.Errorf("the fault is %v", err)
				}
				time.Sleep(failedWriteAge)
				if err := w.fault(t.Context()); err != nil {
					t.Errorf("long after: %v", err)
				}
				w.note("table", "", "insert", tt.status, tt.err)
				if err := w.fault(t.Context()); err == nil {
					t.Error("no fault while writes still fail")
				}
				w.note("table", "", "insert", 204, nil)
				if err := w.fault(t.Context()); err != nil {
					t.Errorf("after one that succeeded: %v", err)
				}
			})
		})
	}
}

func TestRefusalsOfSingleRequestsAreNoFaultOfTheAccount(t *testing.T) {
	w := &writes{}
	for range 10 {
		for _, status := range []int{400, 404, 409, 412, 413} {
			w.note("queue", "orders", "complete", status, nil)
			w.note("table", "", "replace", status, nil)
		}
		w.note("queue", "orders", "receive", 503, nil) // is told by the queue's own check
	}
	if err := w.fault(t.Context()); err != nil {
		t.Errorf("the fault is %v", err)
	}
}

// C50, C81: a role that is missing on one queue is that queue's. It is the account's where nothing else is written and it is
// missing on two, or on the only one.
func TestAQueueThatCanNotBeWrittenIsTheAccountsFaultWhereItIsNotAlone(t *testing.T) {
	refused := func(w *writes, names ...string) {
		for range failedWrites {
			for _, name := range names {
				w.note("queue", name, "send", 403, nil)
			}
		}
	}
	is := func(w *writes, account bool, says string) {
		t.Helper()
		if err, partly := w.fault(t.Context()), w.partly(); (err != nil) != account || !strings.HasPrefix(partly, says) || says == "" && partly != "" {
			t.Errorf("of the account: %v; of a queue: %q", err, partly)
		}
	}
	known := func(names ...string) *writes {
		w := &writes{}
		for _, name := range names {
			w.note("queue", name, "receive", 200, nil)
		}
		return w
	}
	w := known("orders", "refunds")
	refused(w, "orders")
	is(w, false, "the last 3 writes to the queue orders failed")
	if says := w.partly(); !strings.Contains(says, "Storage Queue Data Contributor") {
		t.Errorf("it says %q", says)
	}
	w.note("queue", "orders", "renew", 204, nil)
	is(w, false, "")
	refused(w, "orders", "refunds")
	is(w, true, "")
	w.note("queue", "notes", "send", 201, nil) // what is written elsewhere tells that the account can be
	is(w, false, "the last 3 writes to the queue orders failed")
	if says := w.partly(); !strings.Contains(says, "those to 1 others") {
		t.Errorf("it says %q", says)
	}

	w = known("orders")
	refused(w, "orders", "orders-poison")
	is(w, true, "")
	w = known("orders")
	w.note("queue", "ordrs", "depth", 404, nil) // one that somebody has asked for, and that is not there
	refused(w, "orders")
	is(w, true, "")
	w = known("orders", "refunds")
	refused(w, "ordrs", "refnds") // with a role for each queue those that are not there are refused too
	is(w, false, "the last 3 writes to the queue ordrs failed")
	w = known("orders")
	refused(w, "ordrs", "refnds", "nots")
	is(w, false, "the last 3 writes to the queue nots failed")
	w = known("orders")
	w.note("queue", "archive", "peek", 200, nil) // which somebody has looked at
	refused(w, "orders")
	is(w, true, "")
	w = known("orders", "refunds")
	w.note("queue", "refunds", "send", 503, nil) // and rests from then on
	w.note("queue", "notes", "send", 201, nil)
	refused(w, "orders")
	is(w, false, "the last 3 writes to the queue orders failed")
	w = known("orders", "refunds")
	for range failedWrites {
		w.note("queue", "orders", "send", 503, nil) // which no role explains
	}
	is(w, true, "")
	w = known()
	refused(w, "orders")
	is(w, true, "")
	w = known("orders")
	for i := range 2 * maxQueues {
		w.note("queue", fmt.Sprint("made-up-", i), "send", 403, nil)
	}
	if n := len(w.queues); n != maxQueues {
		t.Errorf("%d queues are remembered", n)
	}
	refused(w, "orders") // for which there is always room
	is(w, true, "")
}

// A queue counts as one of several for ten minutes.
func TestAQueueThatNothingIsDoneWithAnyMoreIsNotOneOfSeveral(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, rests := range []time.Duration{knownFor - time.Second, knownFor} {
			w := &writes{}
			w.note("queue", "old", "send", 201, nil)
			time.Sleep(rests)
			w.note("queue", "orders", "receive", 200, nil)
			for range failedWrites {
				w.note("queue", "orders", "renew", 403, nil)
			}
			if err := w.fault(t.Context()); (err != nil) != (rests == knownFor) {
				t.Errorf("after %s: %v", rests, err)
			}
		}
	})
}

// Where nothing is written, as under a host that can't bring anything, storage is away all the same.
func TestStorageThatGivesNoAnswerIsAway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := &writes{}
		noAnswer := errors.New("no answer")
		for range failedWrites {
			if err := w.fault(t.Context()); err != nil {
				t.Errorf("too early: %v", err)
			}
			w.note("table", "", "query", 0, context.Canceled) // our own doing
			w.note("table", "", "query", 0, noAnswer)
			w.note("queue", "orders", "receive", 200, nil)
		}
		if err := w.fault(t.Context()); err == nil || !strings.Contains(err.Error(), "requests to the table service had no answer") {
			t.Errorf("the fault is %v", err)
		}
		w.note("table", "", "query", 404, nil)
		if err := w.fault(t.Context()); err != nil {
			t.Errorf("after an answer: %v", err)
		}
		for range failedWrites - 1 {
			w.note("table", "", "query", 0, noAnswer)
		}
		if err := w.fault(t.Context()); err != nil {
			t.Errorf("counted from before the answer: %v", err)
		}
		w.note("table", "", "query", 0, noAnswer)
		time.Sleep(failedWriteAge)
		if err := w.fault(t.Context()); err != nil {
			t.Errorf("long after: %v", err)
		}
	})
}

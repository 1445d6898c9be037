package registry

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/pushlease/pushlease/tables"
)

// damaged is a registration that can't be read, or that nothing can be sent by, since another
// program has changed it. The webhook is registered all the same.
type damaged struct {
	tables.RowError
	// known: it was read before, and stays in force as it was then.
	known bool
}

// inForce takes out registrations that nothing can be sent by, and puts in what was known of each
// that can't be read.
func (r *Registry) inForce(all []tables.Registration, rowErrs []tables.RowError) ([]tables.Registration, map[string]damaged) {
	rowErrs = slices.Clone(rowErrs)
	good := slices.DeleteFunc(slices.Clone(all), func(reg tables.Registration) bool {
		err := usable(&reg)
		if err != nil {
			rowErrs = append(rowErrs, tables.RowError{ID: reg.ID, Queue: reg.Queue, Err: err})
		}
		return err != nil
	})
	if len(rowErrs) == 0 {
		return good, nil
	}
	known := map[string]tables.Registration{}
	r.mu.RLock()
	for _, regs := range r.byQueue {
		for _, reg := range regs {
			known[reg.ID] = reg
		}
	}
	r.mu.RUnlock()
	unread := map[string]damaged{}
	for _, e := range rowErrs {
		reg, ok := known[e.ID]
		if ok {
			good = append(good, reg)
			e.Queue = reg.Queue
		}
		unread[e.ID] = damaged{RowError: e, known: ok}
	}
	return good, unread
}

// usable is an error where a registration would have each message given up, tried without a
// pause, or sent nowhere.
func usable(reg *tables.Registration) error {
	var field string
	p := &reg.Policy
	switch {
	case reg.Queue == "":
		field = "queue"
	case reg.Timeout <= 0:
		field = "timeout"
	case p.MaxAttempts < 1:
		field = "policy.max_attempts"
	case p.MaxAge <= 0:
		field = "policy.max_age"
	case p.MaxAttempts > 1 && len(p.Backoff.Delays) == 0 && p.Backoff.Initial <= 0:
		field = "policy.backoff"
	default:
		return nil
	}
	return fmt.Errorf("%w: its %s is missing, or is no value that it may have", tables.ErrDamaged, field)
}

// Unreadable says which registrations can't be read; nil when all can.
func (r *Registry) Unreadable() error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(r.damaged)) {
		goesOn := "the messages of its queue wait for it"
		if r.damaged[id].known {
			goesOn = "it goes on as it was known, until this process ends"
		}
		errs = append(errs, fmt.Errorf("webhook %s: %w: %s", id, r.damaged[id].Err, goesOn))
	}
	return errors.Join(errs...)
}

// Unknown names the webhooks that may be of the queue and of which nothing is known, since
// they can't be read.
func (r *Registry) Unknown(queueName string) (ids []string) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for id, d := range r.damaged {
		if !d.known && (d.Queue == queueName || d.Queue == "") {
			ids = append(ids, id)
		}
	}
	return ids
}

// hasUnknown reports whether a webhook of which nothing is known is surely one of the queue. r.mu is held.
func (r *Registry) hasUnknown(queueName string) bool {
	for _, d := range r.damaged {
		if !d.known && d.Queue == queueName {
			return true
		}
	}
	return false
}

package sim

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"time"
)

// register registers a webhook through some instance, until one answers; of steps that do so at a time
// one does it.
func (w *world) register(spec Webhook) {
	if !w.begins(spec.Name) {
		return
	}
	defer w.began(spec.Name)
	filter := ""
	if spec.Picky {
		filter = `,"filter":{"types":["nothing.has.this.type"]}`
	}
	body := fmt.Appendf(nil, `{"queue":%q,"url":"http://%s.example/hook","name":%q,"timeout":%q,
		"policy":{"preset":"standard","max_attempts":%d,"backoff":{"initial":"2s","factor":2,"max":"30s"}},
		"flow":{"auto_disable_after":"never","breaker":{"probe_max":"1m"}}%s}`, spec.Queue, spec.Name, spec.Name, spec.Timeout, spec.Attempts, filter)
	for {
		w.mu.Lock()
		there := w.webhooks[spec.Name]
		registered := there != nil && !there.deleted
		w.mu.Unlock()
		if registered { // another step did it
			return
		}
		if i := w.somebody(); i != nil {
			if w.registeredAlready(i, spec.Name) {
				return
			}
			method, path := http.MethodPost, "/api/v1/webhooks"
			if spec.ID != "" {
				method, path = http.MethodPut, path+"/"+spec.ID
			}
			status, answer := i.ask(method, path, body)
			var created struct{ ID string }
			switch {
			case status/100 == 2 && json.Unmarshal(answer, &created) == nil:
				w.registered(spec.Name, created.ID, i)
				w.note("operator", "registered "+spec.Name+" as "+created.ID)
				return
			case status >= 400 && status < 500:
				w.violate("plan", fmt.Sprintf("registering %s: %d %s", spec.Name, status, answer))
				return
			}
		}
		if !w.pause(time.Second) {
			return
		}
	}
}

// begins is whether nobody registers a webhook of that name now.
func (w *world) begins(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.registering[name] {
		return false
	}
	w.registering[name] = true
	return true
}

func (w *world) began(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.registering, name)
}

// registeredAlready finds out whether an unanswered registration took effect.
func (w *world) registeredAlready(i *instance, name string) bool {
	status, answer := i.ask(http.MethodGet, "/api/v1/webhooks?limit=500", nil)
	var list struct{ Data []struct{ ID, Name string } }
	if status != http.StatusOK || json.Unmarshal(answer, &list) != nil {
		return false
	}
	for _, r := range list.Data {
		w.mu.Lock()
		known := w.webhooks[name]
		w.mu.Unlock()
		if r.Name == name && !known.had(r.ID) {
			w.registered(name, r.ID, nil)
			return true
		}
	}
	return false
}

// registered notes that a webhook is there, under an id, and which instance said so to whoever registered it.
func (w *world) registered(name, id string, by *instance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.webhooks[name] = &registered{id: id, at: w.now(), by: by, before: w.webhooks[name]}
}

// had is whether a webhook is, or was, registered under an id.
func (r *registered) had(id string) bool {
	return r != nil && (r.id == id || r.before.had(id))
}

// registerAll registers some of the plan's webhooks.
func (w *world) registerAll(which func(Webhook) bool) {
	for _, spec := range w.plan.Webhooks {
		if which(spec) {
			w.register(spec)
		}
	}
}

// sweep deletes the webhooks of a queue, and then the queue with all that is on it.
func (w *world) sweep(name string) {
	for _, spec := range w.plan.Webhooks {
		if spec.Queue == name {
			w.change(&change{webhook: spec.Name, what: doDelete}, "")
		}
	}
	s := &sweep{span{from: w.now()}, name, 0}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		s.until = w.now()
		w.sweeps = append(w.sweeps, s)
	}()
	for {
		if i := w.somebody(); i != nil {
			status, answer := i.ask(http.MethodDelete, "/api/v1/queues/"+name+"?force=true", nil)
			w.note("operator", fmt.Sprintf("deletes %s and what is on it: %d %.200s", name, status, answer))
			var went struct{ Messages int }
			switch {
			case status == http.StatusOK && json.Unmarshal(answer, &went) == nil:
				s.messages += went.Messages
				return
			case status == http.StatusNotFound:
				return
			case status/100 == 4:
				w.violate("plan", fmt.Sprintf("deleting %s: %d %s", name, status, answer))
				return
			}
			s.messages = math.MaxInt32
		}
		if !w.pause(time.Second) {
			return
		}
	}
}

// somebody is an instance that is up, or nil.
func (w *world) somebody() *instance {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, i := range w.slots {
		if i != nil && i.up() {
			return i
		}
	}
	return nil
}

// pause is false when the run is over.
func (w *world) pause(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-w.over:
		return false
	}
}

// change does something to a webhook, until it is answered: with is what a PATCH changes. Whether it took effect is
// not known while it is under way.
func (w *world) change(c *change, with string) {
	c.span = span{from: w.now(), until: 1 << 62}
	w.mu.Lock()
	r := w.webhooks[c.webhook]
	if r != nil {
		w.changes = append(w.changes, c)
	}
	if r != nil && c.what == doDelete && r.deleting == 0 {
		r.deleting = c.from
	}
	w.mu.Unlock()
	if r == nil {
		return
	}
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		c.until = w.now()
	}()
	method, path := http.MethodPatch, "/api/v1/webhooks/"+r.id
	switch c.what {
	case doDelete:
		method = http.MethodDelete
	case doDisable, doEnable:
		method, path = http.MethodPost, path+"/"+c.what
	}
	for {
		if i := w.somebody(); i != nil {
			status, _ := i.ask(method, path, []byte(with), "Content-Type", "application/merge-patch+json")
			if status > 0 && status < 500 {
				w.note("operator", fmt.Sprintf("%s %s: %d", c.what, c.webhook, status))
				if c.what == doDelete {
					w.mu.Lock()
					r.deleted = true
					w.mu.Unlock()
				}
				return
			}
		}
		if !w.pause(time.Second) {
			return
		}
	}
}

// move gives a webhook another URL, and its policy one attempt more.
func (w *world) move(spec Webhook, id string) {
	host := spec.Name + "." + id + ".example"
	w.change(&change{webhook: spec.Name, what: doMove, host: host}, fmt.Sprintf(`{"url":"http://%s/hook","policy":{"max_attempts":%d}}`, host, spec.Attempts+1))
}

// filter has a webhook take nothing for a while.
func (w *world) filter(s Step) {
	c := &change{webhook: s.Webhook, what: doFilter, ended: 1 << 62}
	w.change(c, `{"filter":{"types":["nothing.has.this.type"]}}`)
	w.pause(s.For)
	w.mu.Lock()
	c.ended = w.now()
	w.mu.Unlock()
	w.change(&change{webhook: s.Webhook, what: doUnfilter}, `{"filter":null}`)
}

// replayAll replays every dead letter that waits.
func (w *world) replayAll() {
	i := w.somebody()
	if i == nil {
		return
	}
	status, answer := i.ask(http.MethodPost, "/api/v1/replays", []byte(`{"status":"waiting","all":true,"rate":50}`))
	w.note("operator", fmt.Sprintf("replays what waits: %d %.200s", status, answer))
	if status >= 400 && status < 500 {
		w.violate("plan", fmt.Sprintf("replaying what waits: %d %s", status, answer))
	}
}

// endReplays deletes the dead letters that are being replayed for a webhook that is not registered
// any more: nobody else gets them.
func (w *world) endReplays() {
	i := w.somebody()
	if i == nil {
		return
	}
	from := w.now()
	listed, ok := w.listDeadLetters(i)
	if !ok {
		return
	}
	var ended []deadLetter
	for _, d := range listed {
		if d.Status != "replaying" || w.isRegistered(d.WebhookID) {
			continue
		}
		status, answer := i.ask(http.MethodDelete, "/api/v1/dead-letters/"+url.PathEscape(d.ID), nil)
		w.note("operator", fmt.Sprintf("deletes the dead letter %s: %d %.200s", d.ID, status, answer))
		if status >= 300 && status < 500 { // it was delivered, or given up, in the meantime
			continue
		}
		d.Status = "deleted"
		ended = append(ended, d)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.purges = append(w.purges, purge{span{from, w.now()}, ended})
}

func (w *world) isRegistered(id string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.webhooks {
		if r.id == id {
			return !r.deleted
		}
	}
	return false
}

// purgeAll deletes every dead letter but those that are being replayed.
func (w *world) purgeAll() {
	i := w.somebody()
	if i == nil {
		return
	}
	from := w.now()
	listed, ok := w.listDeadLetters(i)
	if !ok {
		return
	}
	status, answer := i.ask(http.MethodPost, "/api/v1/dead-letters/purge", []byte(`{"all":true,"dry_run":false}`))
	w.note("operator", fmt.Sprintf("purges the %d dead letters: %d %.200s", len(listed), status, answer))
	if status >= 400 && status < 500 {
		w.violate("plan", fmt.Sprintf("purging: %d %s", status, answer))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.purges = append(w.purges, purge{span{from, w.now()}, listed})
}

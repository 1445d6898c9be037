package webhook

import "sync"

// maxKept bounds what is kept of one kind; there is one for each webhook, unless webhooks
// come and go.
const maxKept = 4096

// kept holds what was made of a text, so that it is made once and not with each POST. Safe
// for concurrent use.
type kept[V any] struct {
	make func(text string) (V, error)

	mu   sync.RWMutex
	made map[string]V
}

func newKept[V any](make func(text string) (V, error)) *kept[V] {
	return &kept[V]{make: make, made: map[string]V{}}
}

// of gives what was made of text, or why it can't be made. What it gives is shared.
func (k *kept[V]) of(text string) (V, error) {
	k.mu.RLock()
	v, ok := k.made[text]
	k.mu.RUnlock()
	if ok {
		return v, nil
	}
	v, err := k.make(text)
	if err != nil {
		return v, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.made) >= maxKept { // secrets that were rotated away are forgotten, too
		clear(k.made)
	}
	k.made[text] = v
	return v, nil
}

package webhook

import (
	"errors"
	"strconv"
	"testing"
)

// What is made of a text is made once; what can't be made is tried again, and what is kept
// is bounded.
func TestKeptIsMadeOnceAndBounded(t *testing.T) {
	made := 0
	k := newKept(func(text string) (int, error) {
		made++
		if text == "bad" {
			return 0, errors.New("no")
		}
		return made, nil
	})
	for range 2 {
		if v, err := k.of("a"); v != 1 || err != nil {
			t.Errorf("of a: %v, %v; want the first one made", v, err)
		}
	}
	for i := range 2 {
		if _, err := k.of("bad"); err == nil || made != 2+i {
			t.Errorf("of what can't be made: error %v after %d made; want an error, made anew", err, made)
		}
	}
	for i := range maxKept {
		_, _ = k.of(strconv.Itoa(i))
	}
	if len(k.made) > maxKept {
		t.Errorf("%d are kept, want at most %d", len(k.made), maxKept)
	}
}

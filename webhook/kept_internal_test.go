package webhook

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
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

// POSTs to one webhook are signed at the same time, each for itself.
func TestPostsAreSignedSideBySide(t *testing.T) {
	s, err := newSigner(NewSecret(time.Now()).Key)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1_700_000_000, 0)
	sign := func(id string) string { return s.sign(id, at, []byte(strings.Repeat(id, 1000))) }
	want := map[string]string{}
	for i := range 8 {
		id := strings.Repeat(strconv.Itoa(i), 5+i)
		want[id] = sign(id)
	}
	var all sync.WaitGroup
	for id, signature := range want {
		all.Go(func() {
			for range 200 {
				if got := sign(id); got != signature {
					t.Errorf("signed %s, by itself %s", got, signature)
				}
			}
		})
	}
	all.Wait()
}

package transport

import (
	"slices"
	"testing"
	"time"

	"github.com/pushlease/pushlease/internal/bubble"
)

// A receiver whose answers over HTTP/2 can never be read gets what is under way on a new connection twice: ever more rarely.
func TestHTTP2ThatFailsAnewIsOfferedEverMoreRarely(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		tr := New(Config{})
		defer tr.Close()
		h := tr.hostOf(origin{scheme: "https", address: "receiver.example:443"})
		offered := func() bool { return slices.Contains(tr.protocols(h), "h2") }
		for n, want := range []time.Duration{10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440} {
			for range 8 { // as many as were under way on the connection
				tr.speakPlainly(h)
			}
			time.Sleep(want*time.Minute - time.Second)
			if offered() {
				t.Errorf("time %d: HTTP/2 is offered within %d minutes", n, want)
			}
			time.Sleep(time.Second)
			if !offered() {
				t.Errorf("time %d: HTTP/2 is not offered after %d minutes", n, want)
			}
			if h.forgettable(time.Now()) {
				t.Errorf("time %d: it is forgotten how long HTTP/1.1 was spoken", n)
			}
		}
		time.Sleep(plainMax)
		if !h.forgettable(time.Now()) {
			t.Error("a host of which nothing was heard for two days is not forgotten")
		}
	})
}

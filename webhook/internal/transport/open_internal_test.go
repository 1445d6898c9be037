package transport

import "testing"

// Who waits for a connection to a host that is forgotten meanwhile opens one at once: what is opened for it is shared with nobody.
func TestAForgottenHostHasNoConnectionForAll(t *testing.T) {
	transport := New(Config{})
	defer transport.Close()
	identity := &Identity{}
	h := transport.hostOf(origin{scheme: "https", address: "a.example:443", identity: identity})
	if f, mine := transport.board(h, false); f == nil || !mine {
		t.Error("the first one does not open a connection for all")
	}
	if f, mine := transport.board(h, false); f == nil || mine {
		t.Error("the second one does not wait for it")
	}
	transport.Forget(identity)
	if f, mine := transport.board(h, false); f != nil || !mine {
		t.Error("it waits for what is shared with nobody")
	}
}

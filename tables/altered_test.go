package tables

import (
	"testing"
	"time"

	"github.com/pushlease/pushlease/policy"
)

// The hash is that of the body where the text could be read, and of the text where not.
func TestADeadLetterIsKnownByItsHashAndItsSize(t *testing.T) {
	const body, text = `{"n":1}`, "eyJuIjoxfQ=="
	letter := func(size int, of string) DeadLetter {
		d := DeadLetter{Text: []byte(text), Size: size}
		if of != "" {
			d.BodyHash = BodyHash([]byte(of))
		}
		return d
	}
	undecodable := letter(len(text), text)
	undecodable.Reason = policy.Undecodable
	for name, one := range map[string]struct {
		d    DeadLetter
		body []byte
		want string
	}{
		"as it was received":           {letter(len(body), body), []byte(body), ""},
		"given up as a whole":          {letter(len(text), body), []byte(body), ""},
		"can't be read":                {letter(len(text), text), nil, ""},
		"couldn't be read, and can be": {undecodable, []byte(body), ""},
		"empty":                        {DeadLetter{BodyHash: BodyHash(nil)}, []byte{}, ""},
		"of before there was a hash":   {letter(len(body), ""), []byte(body), ""},
		"read by another setting":      {letter(len(body), body), []byte(text), "Text, Encoding, BodyHash"},
		"a hash of the text only":      {letter(len(body), text), []byte(body), "Text, Encoding, BodyHash"},
		"another size":                 {letter(3, body), []byte(body), "Text, Size"},
		"no hash, another size":        {letter(3, ""), []byte(body), "Text, Size"},
		"no text":                      {DeadLetter{Size: 7, BodyHash: BodyHash([]byte(body))}, nil, "Text"},
		"no text and no hash":          {DeadLetter{Size: 7}, []byte{}, "Text, Size"},
	} {
		if got := one.d.Altered(one.body); got != one.want {
			t.Errorf("%s: %q, want %q", name, got, one.want)
		}
	}
}

func TestWhoseDeadLetterItIsIsInItsID(t *testing.T) {
	d := DeadLetter{MessageKey: MessageKey{Queue: "orders", MessageID: "m"}, WebhookID: "w", Generation: 1}
	d.ID = DeadLetterID(d.MessageKey, d.WebhookID, d.Generation, time.Now())
	if d.Misnamed() {
		t.Error("as it was written it is another's")
	}
	for name, change := range map[string]func(*DeadLetter){
		"queue": func(d *DeadLetter) { d.Queue = "other" }, "message": func(d *DeadLetter) { d.MessageID = "" },
		"webhook": func(d *DeadLetter) { d.WebhookID = "" }, "generation": func(d *DeadLetter) { d.Generation++ },
	} {
		other := d
		if change(&other); !other.Misnamed() {
			t.Errorf("another %s is not seen", name)
		}
	}
}

package content

import (
	"strings"
	"testing"
)

// A body is validated when somebody asks for what is in it, and once.
func TestABodyIsReadAsJSONWhenSomebodyAsks(t *testing.T) {
	c := Read([]byte(`{"a":{"b":1}}`), "application/json")
	if c.document.read {
		t.Error("a body that nobody asked about was read")
	}
	ok, why := (Condition{Field: "a.b", Op: OpExists, Value: []byte("true")}).holds(c.document)
	if !ok || !c.document.read {
		t.Errorf("the condition does not hold: %s", why)
	}
	for body, event := range map[string]bool{
		`{"specversion":"1.0","id":"1","source":"s","type":"t"}`: true,
		`{"specversion":"1.0","id":"1","source":"s","type":"t"`:  false,
	} {
		c := Read([]byte(body), "application/json")
		if !c.document.read || (c.Event != nil) != event {
			t.Errorf("%s is read: %v, and an event: %v", body, c.document.read, c.Event != nil)
		}
	}
	if ok, why := (Condition{Field: "a", Op: OpExists}).holds(Read([]byte("{"), "").document); ok || !strings.Contains(why, "not JSON") {
		t.Errorf("a body that is no JSON: %v, %s", ok, why)
	}
}

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

// What one filter has asked about a body is found again for others without reading it, and so is what stands beside that (C78).
func TestABodyIsReadOnceForTheFiltersOfAllWebhooks(t *testing.T) {
	body := []byte(`{"a":{"b":1},"c":1}`)
	c := Read(body, "application/json")
	for n := range 50 {
		f := Filter{Fields: []Condition{{Field: "a.b", Op: OpEqual, Value: []byte("1")}}}
		if n > 25 {
			f.Fields = append(f.Fields, Condition{Field: "c", Op: OpEqual, Value: []byte("1")})
		}
		if ok, why := f.Match(c); !ok {
			t.Fatalf("filter %d: %s", n, why)
		}
		for i := range body { // whoever reads it from now on finds no JSON
			if body[i] != '1' {
				body[i] = 'x'
			}
		}
	}
}

package content

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Filter says which messages of its queue a webhook takes. All parts that are there
// must hold; within a list one entry is enough. The zero Filter takes every message.
type Filter struct {
	// Types, Sources and Subjects are about the message as a CloudEvents event, or one in
	// Event Grid's own schema (eventType, topic and subject): each entry is a value, or a
	// pattern in which * stands for any characters, such as com.example.*. A message that
	// is no event does not pass.
	Types    []string `json:"types,omitempty"`
	Sources  []string `json:"sources,omitempty"`
	Subjects []string `json:"subjects,omitempty"`
	// Fields are about the body as JSON; all must hold.
	Fields []Condition `json:"fields,omitempty"`
}

// Condition is about one field of a JSON body.
type Condition struct {
	// Field is the path to it: names joined by dots, such as data.items.0.sku, or a JSON
	// Pointer (RFC 6901) where a name holds a dot, such as /data/items/0/sku. A
	// number finds an element of an array, counted from 0. Where a name is there twice
	// the last one counts, as it does for nearly every reader of JSON.
	Field string `json:"field"`
	// Op is how the field is compared with Value.
	Op Op `json:"op"`
	// Value is a text, number, true, false or null for eq, ne and contains; a number
	// or a text for gt, gte, lt and lte; a list for in and not_in; a text for prefix
	// and suffix; true (the default) or false for exists.
	Value json.RawMessage `json:"value,omitempty"`
}

// Op is how a field is compared.
type Op string

// The operators. Values of different kinds are never equal and have no order. Numbers
// are compared exactly, texts byte by byte.
const (
	OpEqual          Op = "eq"
	OpNotEqual       Op = "ne" // not eq: true, too, where there is no such field
	OpGreater        Op = "gt"
	OpGreaterOrEqual Op = "gte"
	OpLess           Op = "lt"
	OpLessOrEqual    Op = "lte"
	OpIn             Op = "in"
	OpNotIn          Op = "not_in" // not in: true, too, where there is no such field
	OpExists         Op = "exists" // a field that is null is there
	OpPrefix         Op = "prefix"
	OpSuffix         Op = "suffix"
	OpContains       Op = "contains" // a text within a text, or an element of an array
)

// Ops lists every Op.
func Ops() []Op {
	return []Op{OpEqual, OpNotEqual, OpGreater, OpGreaterOrEqual, OpLess, OpLessOrEqual, OpIn, OpNotIn, OpExists, OpPrefix, OpSuffix, OpContains}
}

// IsZero is whether the filter takes every message.
func (f Filter) IsZero() bool {
	return len(f.Types)+len(f.Sources)+len(f.Subjects)+len(f.Fields) == 0
}

// Match is whether the filter takes a message, and a sentence that says why. The sentence
// holds nothing of the message and none of the filter's values.
//
// A condition that can't be understood (written by a newer version, say) counts as
// holding: a message too many can be told apart by its receiver, one too few is lost.
func (f Filter) Match(c Content) (bool, string) {
	if f.IsZero() {
		return true, "there is no filter"
	}
	for _, part := range []struct {
		name     string
		patterns []string
		value    func(*Event) string
	}{
		{"types", f.Types, func(e *Event) string { return e.Type }},
		{"sources", f.Sources, func(e *Event) string { return e.Source }},
		{"subjects", f.Subjects, func(e *Event) string { return e.Subject }},
	} {
		switch {
		case len(part.patterns) == 0:
		case c.named() == nil:
			return false, part.name + ": the message is no event in JSON, neither of CloudEvents 1.0 nor of Event Grid"
		case !matchesAny(part.patterns, part.value(c.named())):
			return false, fmt.Sprintf("%s: the event's %s is none of them", part.name, strings.TrimSuffix(part.name, "s"))
		}
	}
	for i, condition := range f.Fields {
		if ok, why := condition.holds(c.document); !ok {
			return false, fmt.Sprintf("fields[%d] (%s %s): %s", i, condition.Field, condition.Op, why)
		}
	}
	return true, "every condition holds"
}

func matchesAny(patterns []string, value string) bool {
	for _, p := range patterns {
		if matchesPattern(p, value) {
			return true
		}
	}
	return false
}

// matchesPattern takes, for each part between two stars, the first place where it fits,
// which is right since nothing after it can want an earlier one.
func matchesPattern(pattern, value string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == value
	}
	value, ok := strings.CutPrefix(value, first)
	if !ok {
		return false
	}
	for {
		part, next, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(value, part)
		}
		_, value, ok = strings.Cut(value, part)
		if !ok {
			return false
		}
		rest = next
	}
}

// holds compares the field in document.
func (c Condition) holds(document *document) (bool, string) {
	if document.json() == nil {
		return false, "the body is not JSON"
	}
	path, err := splitPath(c.Field)
	want := jsonDocument(c.Value)
	if err != nil || want == nil && c.Op != OpExists || !slices.Contains(Ops(), c.Op) {
		return true, ""
	}
	got := document.find(path)
	switch c.Op {
	case OpExists:
		if wanted := string(want) != "false"; wanted != (got != nil) {
			if wanted {
				return false, "the field is not there"
			}
			return false, "the field is there"
		}
		return true, ""
	case OpNotEqual:
		return got == nil || !equal(got, want), "the field has the value"
	case OpNotIn:
		return got == nil || !among(got, want), "the field has one of the values"
	}
	if got == nil {
		return false, "the field is not there"
	}
	switch c.Op {
	case OpEqual:
		return equal(got, want), "the field has another value"
	case OpIn:
		return among(got, want), "the field has none of the values"
	case OpGreater, OpGreaterOrEqual, OpLess, OpLessOrEqual:
		return c.Op.ordered(got, want)
	}
	return c.Op.within(got, want)
}

// ordered is about gt, gte, lt and lte.
func (op Op) ordered(got, want []byte) (bool, string) {
	order, ok := compare(got, want)
	if !ok {
		return false, "the field is of another kind than the value"
	}
	switch op {
	case OpGreater:
		return order > 0, "the field is not greater"
	case OpGreaterOrEqual:
		return order >= 0, "the field is less"
	case OpLess:
		return order < 0, "the field is not less"
	}
	return order <= 0, "the field is greater"
}

// within is about prefix, suffix and contains.
func (op Op) within(got, want []byte) (bool, string) {
	if op == OpContains && got[0] == '[' {
		return among(want, got), "no element of the field has the value"
	}
	text, isText := Unquote(got)
	part, ok := Unquote(want)
	switch {
	case !isText || !ok:
		return false, "the field is not a text"
	case op == OpPrefix:
		return strings.HasPrefix(text, part), "the field begins with something else"
	case op == OpSuffix:
		return strings.HasSuffix(text, part), "the field ends with something else"
	}
	return strings.Contains(text, part), "the text is not in the field"
}

// among is whether one of the elements of list equals value.
func among(value, list []byte) bool {
	for element := range elements(list) {
		if equal(value, element) {
			return true
		}
	}
	return false
}

// equal compares two values that are neither objects nor arrays.
func equal(a, b []byte) bool {
	if order, ok := compare(a, b); ok {
		return order == 0
	}
	return isWord(a) && string(a) == string(b)
}

// compare orders two numbers or two texts.
func compare(a, b []byte) (int, bool) {
	if isNumber(a) && isNumber(b) {
		return parseDecimal(string(a)).compare(parseDecimal(string(b))), true
	}
	x, isText := Unquote(a)
	if !isText {
		return 0, false
	}
	y, isText := Unquote(b)
	return strings.Compare(x, y), isText
}

func isNumber(value []byte) bool { return value[0] == '-' || '0' <= value[0] && value[0] <= '9' }

// isWord is whether a value is true, false or null.
func isWord(value []byte) bool { return value[0] == 't' || value[0] == 'f' || value[0] == 'n' }

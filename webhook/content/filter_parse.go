package content

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The limits of a Filter.
const (
	MaxConditions   = 50  // fields, and entries of each list
	MaxPattern      = 512 // bytes of a type, source or subject
	MaxPath         = 512 // bytes of a path
	MaxPathDepth    = 16
	MaxFilterText   = 1024 // bytes of a text to compare with
	MaxFilterValues = 100  // entries of in and not_in
	MaxFilterNumber = 64   // bytes of a number to compare with
	MaxFilterSize   = 16 << 10
	maxNumberPower  = 9999
)

// OverlayFilter lays a JSON object over base, the way that the API creates and changes
// filters: a list that the patch does not name stays, null takes one away, any other
// replaces it whole; null for the patch is the zero Filter. It is strict: no unknown
// field, none twice, nothing of a wrong type, and all that Validate asks for. The Field
// of a problem is the path within the filter, empty when it is the whole; the Filter is
// base then.
func OverlayFilter(base Filter, patch []byte) (Filter, []FieldError) {
	document := jsonDocument(patch)
	var p filterProblems
	switch {
	case document == nil:
		p.add("", "is not JSON", `give an object, such as {"types":["com.example.*"]}`)
	case string(document) == "null":
		return Filter{}, nil
	case document[0] != '{':
		p.add("", "is not an object", `give an object, such as {"types":["com.example.*"]}`)
	default:
		f := p.filter(base, document)
		p.addOthers(f.Validate())
		if len(p) == 0 {
			return f, nil
		}
	}
	return base, p
}

// Validate returns everything that is wrong with the filter. The Field of a problem is
// the path within it, such as fields[2].value.
func (f Filter) Validate() []FieldError {
	var p filterProblems
	p.patterns("types", f.Types)
	p.patterns("sources", f.Sources)
	p.patterns("subjects", f.Subjects)
	if len(f.Fields) > MaxConditions {
		p.add("fields", fmt.Sprintf("has %d conditions", len(f.Fields)), fmt.Sprintf("keep at most %d", MaxConditions))
		return p
	}
	for i, c := range f.Fields {
		p.condition(fmt.Sprintf("fields[%d]", i), c)
	}
	if text, err := json.Marshal(f); len(p) == 0 && (err != nil || len(text) > MaxFilterSize) {
		p.add("", fmt.Sprintf("has %d bytes", len(text)), fmt.Sprintf("keep it within %d; spread it over several webhooks", MaxFilterSize))
	}
	return p
}

type filterProblems []FieldError

func (p *filterProblems) add(field, problem, cure string) {
	*p = append(*p, FieldError{Field: field, Problem: problem, Cure: cure})
}

// addOthers adds those about fields that nothing is said about yet.
func (p *filterProblems) addOthers(more []FieldError) {
	known := *p
	for _, m := range more {
		if !slices.ContainsFunc(known, func(k FieldError) bool { return strings.HasPrefix(m.Field, k.Field) }) {
			*p = append(*p, m)
		}
	}
}

// object splits an object into the fields that it may have.
func (p *filterProblems) object(at string, object []byte, known ...string) map[string][]byte {
	fields := map[string][]byte{}
	for rawName, value := range members(object) {
		name, ok := Unquote(rawName)
		field := join(at, name)
		switch {
		case !ok || !slices.Contains(known, name):
			p.add(join(at, shownField(name)), "is not known here", "use "+listOf(known))
		case fields[name] != nil:
			p.add(field, "is there twice", "keep one of them")
		default:
			fields[name] = value
		}
	}
	return fields
}

func (p *filterProblems) filter(f Filter, document []byte) Filter {
	fields := p.object("", document, "types", "sources", "subjects", "fields")
	lists := map[string]*[]string{"types": &f.Types, "sources": &f.Sources, "subjects": &f.Subjects}
	for _, name := range slices.Sorted(maps.Keys(lists)) {
		value, ok := fields[name]
		if !ok {
			continue
		}
		*lists[name] = nil // never write into what base shares
		if json.Unmarshal(value, lists[name]) != nil {
			p.add(name, "is not a list of texts", `give a list, such as ["com.example.order.*"]`)
		}
	}
	if value, ok := fields["fields"]; ok {
		f.Fields = nil
		if value[0] != '[' && string(value) != "null" {
			p.add("fields", "is not a list", `give a list, such as [{"field":"data.amount","op":"gte","value":100}]`)
		}
		for element := range elements(value) {
			f.Fields = append(f.Fields, p.parseCondition(fmt.Sprintf("fields[%d]", len(f.Fields)), element))
			if len(f.Fields) > MaxConditions {
				break
			}
		}
	}
	return f
}

func (p *filterProblems) parseCondition(at string, value []byte) Condition {
	var c Condition
	if value[0] != '{' {
		p.add(at, "is not an object", `give an object, such as {"field":"data.amount","op":"gte","value":100}`)
		return c
	}
	fields := p.object(at, value, "field", "op", "value")
	c.Field = p.name(at+".field", fields["field"])
	c.Op = Op(p.name(at+".op", fields["op"]))
	if raw, ok := fields["value"]; ok {
		c.Value = compacted(raw)
	}
	return c
}

// name reads a text; none is left to Validate.
func (p *filterProblems) name(at string, value []byte) string {
	if value == nil {
		return ""
	}
	text, ok := Unquote(value)
	if !ok {
		p.add(at, "is not a text", "give a text")
	}
	return text
}

func (p *filterProblems) patterns(field string, patterns []string) {
	if len(patterns) > MaxConditions {
		p.add(field, fmt.Sprintf("has %d entries", len(patterns)), fmt.Sprintf("keep at most %d; a pattern such as com.example.* stands for many", MaxConditions))
		return
	}
	for i, pattern := range patterns {
		at := fmt.Sprintf("%s[%d]", field, i)
		switch {
		case pattern == "":
			p.add(at, "is empty", "give a value or a pattern, or leave it out")
		case len(pattern) > MaxPattern:
			p.add(at, fmt.Sprintf("has %d bytes", len(pattern)), fmt.Sprintf("keep it within %d; a * at its end stands for the rest", MaxPattern))
		case !utf8.ValidString(pattern) || strings.ContainsFunc(pattern, unicode.IsControl):
			p.add(at, "has characters that are no text", "take control characters out")
		}
	}
}

func (p *filterProblems) condition(at string, c Condition) {
	if _, err := splitPath(c.Field); err != nil {
		p.add(at+".field", err.Error(), "give a path such as data.amount or data.items.0.sku; where a name holds a dot, write /data/a.b")
	}
	value := jsonDocument(c.Value)
	if len(c.Value) > 0 && value == nil {
		p.add(at+".value", "is not JSON", "give a text, a number, true, false, null or a list")
		return
	}
	switch c.Op {
	case OpEqual, OpNotEqual:
		p.scalar(at+".value", value)
	case OpGreater, OpGreaterOrEqual, OpLess, OpLessOrEqual:
		if p.scalar(at+".value", value) && isWord(value) {
			p.add(at+".value", "has no order", "give a number or a text")
		}
	case OpIn, OpNotIn:
		p.list(at+".value", value)
	case OpExists:
		if value != nil && string(value) != "true" && string(value) != "false" {
			p.add(at+".value", "is neither true nor false", "leave it out for true")
		}
	case OpPrefix, OpSuffix:
		p.text(at+".value", value)
	case OpContains:
		if value != nil && value[0] == '"' {
			p.text(at+".value", value)
			return
		}
		p.scalar(at+".value", value)
	default:
		p.add(at+".op", "is not an operator", "use one of "+listOf(Ops()))
	}
}

// scalar wants a value that is neither an object nor an array.
func (p *filterProblems) scalar(at string, value []byte) bool {
	const cure = "give a text, a number, true, false or null"
	switch {
	case value == nil:
		p.add(at, "is missing", cure)
	case value[0] == '{' || value[0] == '[':
		p.add(at, "is an object or a list", cure+"; a list is for in and not_in")
	case value[0] == '"':
		return p.shortText(at, value)
	case isNumber(value) && !validNumber(string(value)):
		p.add(at, "is a number that is too long or too large", fmt.Sprintf("keep it within %d characters and powers of ten within %d", MaxFilterNumber, maxNumberPower))
	default:
		return true
	}
	return false
}

func (p *filterProblems) shortText(at string, value []byte) bool {
	text, ok := Unquote(value)
	switch {
	case !ok:
		p.add(at, "is a text that is not Unicode", "give whole characters")
	case len(text) > MaxFilterText:
		p.add(at, fmt.Sprintf("has %d bytes", len(text)), fmt.Sprintf("keep it within %d", MaxFilterText))
	default:
		return true
	}
	return false
}

// text wants a text that says something.
func (p *filterProblems) text(at string, value []byte) {
	switch {
	case value == nil || value[0] != '"':
		p.add(at, "is not a text", "give a text")
	case string(value) == `""`:
		p.add(at, "is empty and would hold for every text", "give a text, or use exists")
	default:
		p.shortText(at, value)
	}
}

func (p *filterProblems) list(at string, value []byte) {
	if value == nil || value[0] != '[' {
		p.add(at, "is not a list", `give a list, such as ["eu","us"]`)
		return
	}
	n := 0
	for element := range elements(value) {
		if n++; n > MaxFilterValues {
			p.add(at, "is too long", fmt.Sprintf("keep at most %d values", MaxFilterValues))
			return
		}
		p.scalar(fmt.Sprintf("%s[%d]", at, n-1), element)
	}
	if n == 0 {
		p.add(at, "is an empty list", "give at least one value")
	}
}

// validNumber keeps a filter's numbers well inside what decimal can compare.
func validNumber(text string) bool {
	d := parseDecimal(text)
	return len(text) <= MaxFilterNumber && max(d.exponent, -d.exponent) <= maxNumberPower
}

// splitPath reads a path in either form.
func splitPath(path string) ([]string, error) {
	if len(path) > MaxPath || !utf8.ValidString(path) {
		return nil, fmt.Errorf("is not a text of at most %d bytes", MaxPath)
	}
	pointer, isPointer := strings.CutPrefix(path, "/")
	separator := "."
	if isPointer {
		path, separator = pointer, "/"
	}
	names := strings.Split(path, separator)
	if len(names) > MaxPathDepth {
		return nil, fmt.Errorf("has %d names", len(names))
	}
	for i, name := range names {
		switch {
		case isPointer:
			if strings.Contains(strings.NewReplacer("~0", "", "~1", "").Replace(name), "~") {
				return nil, errors.New("has a ~ that is followed by neither 0 nor 1")
			}
			names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		case name == "":
			return nil, errors.New("is empty or has an empty name")
		}
	}
	return names, nil
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// shownField keeps what is repeated of a foreign name short and printable.
func shownField(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, name)
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "") + "…"
	}
	return name
}

func listOf[T ~string](names []T) string {
	texts := make([]string, len(names))
	for i, n := range names {
		texts[i] = string(n)
	}
	return strings.Join(texts[:len(texts)-1], ", ") + " or " + texts[len(texts)-1]
}

// compacted is a value without the blanks that do not matter.
func compacted(value []byte) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, value); err != nil {
		return bytes.Clone(value) // does not happen to valid JSON
	}
	return b.Bytes()
}

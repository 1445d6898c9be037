package azurestandin

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
)

// filter is a list of comparisons that must all hold.
type filter []comparison

type comparison struct {
	property, operator string
	text               string // the literal, without quotes
	quoted             bool
	number             float64
	numeric            bool
}

// oneComparison is "name op literal"; a quote within a text is doubled.
var oneComparison = regexp.MustCompile(`^\(?\s*([A-Za-z_][A-Za-z0-9_]*) (eq|ne|gt|ge|lt|le) (?:'((?:[^']|'')*)'|(true|false|-?[0-9.]+L?))\s*\)?(?: and |$)`)

func parseFilter(text string) (filter, error) {
	var f filter
	for text != "" {
		m := oneComparison.FindStringSubmatch(text)
		if m == nil {
			return nil, errNotSupported
		}
		c := comparison{property: m[1], operator: m[2], quoted: m[4] == "", text: m[4]}
		if c.quoted {
			c.text = strings.ReplaceAll(m[3], "''", "'")
		} else if n, err := strconv.ParseFloat(strings.TrimSuffix(m[4], "L"), 64); err == nil {
			c.number, c.numeric = n, true
		}
		f = append(f, c)
		text = text[len(m[0]):]
	}
	return f, nil
}

func holds(operator string, order int) bool {
	switch operator {
	case "eq":
		return order == 0
	case "ne":
		return order != 0
	case "gt":
		return order > 0
	case "ge":
		return order >= 0
	case "lt":
		return order < 0
	}
	return order <= 0
}

// allows reports whether a key passes all comparisons about it.
func (f filter) allows(property, key string) bool {
	for _, c := range f {
		if c.property == property && !holds(c.operator, strings.Compare(key, c.text)) {
			return false
		}
	}
	return true
}

// least is the smallest key that can pass.
func (f filter) least(property string) string {
	least := ""
	for _, c := range f {
		if c.property == property && (c.operator == "eq" || c.operator == "ge" || c.operator == "gt") && c.text > least {
			least = c.text
		}
	}
	return least
}

// past reports whether neither key nor any greater one can pass.
func (f filter) past(property, key string) bool {
	for _, c := range f {
		if c.property != property {
			continue
		}
		order := strings.Compare(key, c.text)
		if order > 0 && (c.operator == "eq" || c.operator == "le") || order >= 0 && c.operator == "lt" {
			return true
		}
	}
	return false
}

// takes reports whether a row passes. A property that it does not have passes nothing.
func (f filter) takes(e *entity) bool {
	for _, c := range f {
		switch c.property {
		case "PartitionKey":
			if !holds(c.operator, strings.Compare(e.pk, c.text)) {
				return false
			}
		case "RowKey":
			if !holds(c.operator, strings.Compare(e.rk, c.text)) {
				return false
			}
		default:
			if !c.takes(e.value(c.property)) {
				return false
			}
		}
	}
	return true
}

func (e *entity) value(property string) any {
	if e.values == nil {
		values, err := decode(e.json)
		if err != nil {
			values = map[string]any{}
		}
		e.values = values
	}
	return e.values[property]
}

func (c comparison) takes(value any) bool {
	switch v := value.(type) {
	case string:
		if !c.quoted { // an Int64 travels as text
			n, err := strconv.ParseFloat(v, 64)
			return err == nil && c.numeric && holds(c.operator, order(n, c.number))
		}
		return holds(c.operator, strings.Compare(v, c.text))
	case json.Number:
		n, err := v.Float64()
		return err == nil && c.numeric && holds(c.operator, order(n, c.number))
	case bool:
		return !c.quoted && holds(c.operator, strings.Compare(strconv.FormatBool(v), c.text))
	}
	return false
}

func order(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

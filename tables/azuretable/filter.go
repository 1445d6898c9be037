package azuretable

import (
	"fmt"
	"strings"
)

// filter is an OData filter: comparisons joined by "and". It has no "or": the
// service would read the whole table for it.
type filter []string

func (f filter) String() string { return strings.Join(f, " and ") }

// where compares a text column. Quotes are doubled, so that no value can end
// the literal.
func (f filter) where(column, operator, value string) filter {
	return append(f[:len(f):len(f)], fmt.Sprintf("%s %s '%s'", column, operator, strings.ReplaceAll(value, "'", "''")))
}

func (f filter) whereNumber(column, operator string, value int) filter {
	return append(f[:len(f):len(f)], fmt.Sprintf("%s %s %d", column, operator, value))
}

func (f filter) partition(pk string) filter { return f.where("PartitionKey", "eq", pk) }

// prefix selects the keys of column that begin with prefix, which ends with the
// separator.
func (f filter) prefix(column, prefix string) filter {
	return f.where(column, "ge", prefix).where(column, "lt", prefix+separator+separator)
}

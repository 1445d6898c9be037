package content

import (
	"cmp"
	"strings"
)

// decimal is a JSON number, exactly: 0.digits × 10^exponent. Neither 64-bit integers
// nor amounts lose anything, and a number such as 1e999999999 costs nothing.
type decimal struct {
	negative bool
	digits   string // without zeros at either end; empty for zero
	exponent int64
}

// maxExponent stands for every exponent beyond it. That of a filter's own number is far
// below (see validNumber), so that a comparison with it comes out right.
const maxExponent = 1 << 40

// parseDecimal reads a number that is valid JSON.
func parseDecimal(text string) decimal {
	var d decimal
	text, d.negative = strings.CutPrefix(text, "-")
	mantissa, exponent := text, ""
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		mantissa, exponent = text[:i], text[i+1:]
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole, "0")
	point := int64(len(digits))
	if digits == "" {
		trimmed := strings.TrimLeft(fraction, "0")
		point = int64(len(trimmed) - len(fraction))
		digits = trimmed
	} else {
		digits += fraction
	}
	d.digits = strings.TrimRight(digits, "0")
	if d.digits == "" {
		return decimal{}
	}
	d.exponent = point + parseExponent(exponent)
	return d
}

func parseExponent(text string) int64 {
	text, negative := strings.CutPrefix(text, "-")
	var n int64
	for _, c := range strings.TrimPrefix(text, "+") {
		n = min(n*10+int64(c-'0'), maxExponent)
	}
	if negative {
		return -n
	}
	return n
}

// compare is negative, zero or positive as d is less than, equal to or greater than o.
func (d decimal) compare(o decimal) int {
	if d.sign() != o.sign() {
		return cmp.Compare(d.sign(), o.sign())
	}
	size := cmp.Or(cmp.Compare(d.exponent, o.exponent), strings.Compare(d.digits, o.digits))
	return size * d.sign()
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

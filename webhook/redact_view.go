package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"strings"
	"unicode/utf8"
)

// view is a text as it is compared with what must not be in it: its escapes undone, in
// lower case, followed by what its base64 and hex stand for. Each byte of it knows which
// part of the text it stands for.
type view struct {
	original string
	folded   []byte
	from, to []int32
	// hidden counts, at each byte of the original, the hidden parts that begin there, less
	// those that end.
	hidden []int32
}

// newView is false when the text is escaped so often that nobody can tell what it holds.
func newView(text string) (*view, bool) {
	v := &view{original: text, hidden: make([]int32, len(text)+1), folded: []byte(text), from: make([]int32, len(text)), to: make([]int32, len(text))}
	for i := range text {
		for j := i; j < len(text) && (j == i || !utf8.RuneStart(text[j])); j++ {
			v.from[j], v.to[j] = int32(i), int32(j+1)
		}
	}
	return v, v.unescape()
}

// maxEscapes is how often a text is taken to be escaped, and escapes begin one.
const (
	maxEscapes = 3
	escapes    = `\%&`
)

// unescape undoes the escapes in place; false when there are more than maxEscapes of them on
// top of each other.
func (v *view) unescape() bool {
	for range maxEscapes {
		if !bytes.ContainsAny(v.folded, escapes) {
			return true
		}
		n, changed := 0, false
		for i := 0; i < len(v.folded); {
			plain, size := undone(v.folded[i:])
			from, to := v.from[i], v.to[i+size-1]
			changed = changed || size > 1
			for _, c := range plain { // never longer than what it stands for
				v.folded[n], v.from[n], v.to[n] = c, from, to
				n++
			}
			i += size
		}
		v.folded, v.from, v.to = v.folded[:n], v.from[:n], v.to[:n]
		if !changed {
			return true
		}
	}
	for i := range v.folded {
		if _, size := undone(v.folded[i:]); size > 1 {
			return false
		}
	}
	return true
}

// undoneAll is s with its escapes undone.
func undoneAll(s []byte) []byte {
	for range maxEscapes {
		if !bytes.ContainsAny(s, escapes) {
			return s
		}
		plainer, changed := make([]byte, 0, len(s)), false
		for i := 0; i < len(s); {
			plain, size := undone(s[i:])
			changed = changed || size > 1
			plainer = append(plainer, plain...)
			i += size
		}
		s = plainer
		if !changed {
			break
		}
	}
	return s
}

// undone undoes the escape at the beginning of s and returns how long it was; 1 where there
// is none.
func undone(s []byte) (plain []byte, size int) {
	switch s[0] {
	case '\\':
		return undoneBackslash(s)
	case '%':
		if len(s) >= 3 {
			if c, err := strconv.ParseUint(string(s[1:3]), 16, 8); err == nil {
				return []byte{byte(c)}, 3
			}
		}
	case '&':
		return undoneEntity(s)
	}
	return s[:1], 1
}

func undoneBackslash(s []byte) (plain []byte, size int) {
	if len(s) < 2 {
		return s[:1], 1
	}
	switch c := s[1]; c {
	case 'n', 'r', 't', 'b', 'f':
		return []byte{"\n\r\t\b\f"[strings.IndexByte("nrtbf", c)]}, 2
	case '"', '\\', '/', '\'':
		return s[1:2], 2
	case 'x':
		if len(s) >= 4 {
			if c, err := strconv.ParseUint(string(s[2:4]), 16, 8); err == nil {
				return []byte{byte(c)}, 4
			}
		}
	case 'u':
		if len(s) >= 6 {
			if r, err := strconv.ParseUint(string(s[2:6]), 16, 16); err == nil {
				return utf8.AppendRune(nil, rune(r)), 6
			}
		}
	}
	return s[:1], 1
}

var entities = map[string]string{"amp": "&", "lt": "<", "gt": ">", "quot": `"`, "apos": "'", "plus": "+", "sol": "/", "equals": "=", "colon": ":", "nbsp": " ", "lowbar": "_"}

func undoneEntity(s []byte) (plain []byte, size int) {
	end := bytes.IndexByte(s[:min(len(s), 10)], ';')
	if end < 2 {
		return s[:1], 1
	}
	name := string(s[1:end])
	if number, ok := strings.CutPrefix(name, "#"); ok {
		base := 10
		if digits, ok := strings.CutPrefix(strings.ToLower(number), "x"); ok {
			number, base = digits, 16
		}
		if r, err := strconv.ParseUint(number, base, 21); err == nil {
			return utf8.AppendRune(nil, rune(r)), end + 1
		}
	} else if text, ok := entities[name]; ok {
		return []byte(text), end + 1
	}
	return s[:1], 1
}

// lowered folds a copy of s: the letters' case, and the two ways to write a blank in a URL.
func lowered(s []byte) []byte {
	lower := make([]byte, len(s))
	for i, c := range s {
		lower[i] = foldedBytes[c]
	}
	return lower
}

var foldedBytes = func() (to [256]byte) {
	for i := range to {
		switch c := byte(i); {
		case 'A' <= c && c <= 'Z':
			to[i] = c | 0x20
		case c == '+':
			to[i] = ' '
		default:
			to[i] = c
		}
	}
	return to
}()

// wrapped is the least length of a line of base64 that goes on in the next one.
const wrapped = 60

// addDecoded appends what the text's base64 and hex stand for, and folds the view.
func (v *view) addDecoded() {
	plain := v.folded
	for i := 0; i < len(plain); {
		var run []byte
		end, line := i, i
		for ; end < len(plain); end++ {
			switch c := plain[end]; {
			case isBase64(c):
				run = append(run, c)
				continue
			case end-line >= wrapped && bytes.HasPrefix(plain[end:], []byte("\r\n")):
				end++
				line = end + 1
				continue
			case end-line >= wrapped && c == '\n':
				line = end + 1
				continue
			}
			break
		}
		if len(run) >= piece*4/3 {
			for _, decoded := range decodings(run) {
				v.append(decoded, v.from[i], v.to[end-1])
			}
		}
		i = end + 1
	}
	v.folded = lowered(v.folded)
}

func (v *view) append(decoded []byte, from, to int32) {
	v.folded = append(v.folded, 0) // no piece goes over the end of what stands together
	v.folded = append(v.folded, undoneAll(decoded)...)
	for len(v.from) < len(v.folded) {
		v.from, v.to = append(v.from, from), append(v.to, to)
	}
}

func isBase64(c byte) bool { return isAlphanumeric(c) || c == '+' || c == '/' || c == '-' || c == '_' }

// decodings are what a run of letters may stand for: in either alphabet of base64, from each
// place where a group may begin, and in hex.
func decodings(run []byte) (all [][]byte) {
	standard := bytes.Map(func(r rune) rune {
		switch r {
		case '-':
			return '+'
		case '_':
			return '/'
		}
		return r
	}, run)
	for offset := range min(4, len(run)) {
		group := standard[offset:]
		if len(group)%4 == 1 {
			group = group[:len(group)-1]
		}
		if decoded, err := base64.RawStdEncoding.AppendDecode(nil, group); err == nil {
			all = append(all, decoded)
		}
		if offset < 2 {
			digits := run[offset:]
			if decoded, err := hex.AppendDecode(nil, digits[:len(digits)/2*2]); err == nil {
				all = append(all, decoded)
			}
		}
	}
	return all
}

// hide marks what the view has from i to j.
func (v *view) hide(i, j int) {
	for k := i; k < j; k++ {
		v.hidden[v.from[k]]++
		v.hidden[v.to[k]]--
	}
}

// hideAll hides each place where the view has all of s.
func (v *view) hideAll(s []byte) {
	for at := 0; ; {
		i := bytes.Index(v.folded[at:], s)
		if i < 0 {
			return
		}
		v.hide(at+i, at+i+len(s))
		at += i + len(s)
	}
}

// text is the original with a mark in place of each part that is hidden.
func (v *view) text() string {
	var kept strings.Builder
	hiding, was := int32(0), false
	for i := range len(v.original) {
		hiding += v.hidden[i]
		switch {
		case hiding == 0:
			kept.WriteByte(v.original[i])
		case !was:
			kept.WriteString(redactedMark)
		}
		was = hiding > 0
	}
	return kept.String()
}

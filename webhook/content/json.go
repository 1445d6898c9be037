package content

import (
	"encoding/json"
	"iter"
	"unicode/utf16"
	"unicode/utf8"
)

// The scanning below reads JSON in place: nothing is decoded but the few names and
// texts that are asked for, and the document stays as it is. All of it wants a document
// that jsonDocument has passed.

const byteOrderMark = "\xef\xbb\xbf"

// jsonDocument returns the one JSON value that body is, without the byte order mark and
// blanks around it; nil when body is not JSON.
func jsonDocument(body []byte) []byte {
	if len(body) >= len(byteOrderMark) && string(body[:len(byteOrderMark)]) == byteOrderMark {
		body = body[len(byteOrderMark):]
	}
	if !json.Valid(body) {
		return nil
	}
	from := skipSpace(body, 0)
	return body[from:skipValue(body, from)]
}

// members yields the names (as they are written, quotes included) and values of an
// object, duplicates and all; nothing when the value is not an object.
func members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		if object[0] != '{' {
			return
		}
		for i := skipSpace(object, 1); object[i] != '}'; {
			end := skipString(object, i)
			name := object[i:end]
			i = skipSpace(object, skipSpace(object, end)+1) // past the colon
			end = skipValue(object, i)
			if !yield(name, object[i:end]) {
				return
			}
			if i = skipSpace(object, end); object[i] == ',' {
				i = skipSpace(object, i+1)
			}
		}
	}
}

// elements yields the values of an array; nothing when the value is not an array.
func elements(array []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		if array[0] != '[' {
			return
		}
		for i := skipSpace(array, 1); array[i] != ']'; {
			end := skipValue(array, i)
			if !yield(array[i:end]) {
				return
			}
			if i = skipSpace(array, end); array[i] == ',' {
				i = skipSpace(array, i+1)
			}
		}
	}
}

func skipSpace(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\t' || doc[i] == '\n' || doc[i] == '\r') {
		i++
	}
	return i
}

// skipValue returns where the value that begins at i ends. It does not recurse, however
// deep the value is.
func skipValue(doc []byte, i int) int {
	for depth := 0; i < len(doc); {
		switch doc[i] {
		case '"':
			i = skipString(doc, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ' ', '\t', '\n', '\r', ',', ':':
			i++
			continue
		default:
			for i < len(doc) && !endsLiteral(doc[i]) {
				i++
			}
		}
		if depth == 0 {
			return i
		}
	}
	return i
}

func endsLiteral(c byte) bool {
	switch c {
	case ' ', '\t', '\n', '\r', ',', ':', '}', ']':
		return true
	}
	return false
}

func skipString(doc []byte, i int) int {
	for i++; doc[i] != '"'; i++ {
		if doc[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// Unquote returns the text that a JSON string stands for. It is false when raw is no
// string, or stands for no text: bytes that are not UTF-8, or half a surrogate pair.
func Unquote(raw []byte) (string, bool) {
	if raw[0] != '"' || !utf8.Valid(raw) {
		return "", false
	}
	raw = raw[1 : len(raw)-1]
	text := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			text = append(text, raw[i])
			continue
		}
		i++
		switch c := raw[i]; c {
		case 'b':
			text = append(text, '\b')
		case 'f':
			text = append(text, '\f')
		case 'n':
			text = append(text, '\n')
		case 'r':
			text = append(text, '\r')
		case 't':
			text = append(text, '\t')
		case 'u':
			r := hexRune(raw[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				if len(raw) < i+7 || raw[i+1] != '\\' || raw[i+2] != 'u' {
					return "", false
				}
				if r = utf16.DecodeRune(r, hexRune(raw[i+3:])); r == utf8.RuneError {
					return "", false
				}
				i += 6
			}
			text = utf8.AppendRune(text, r)
		default: // a quote, a backslash or a slash
			text = append(text, c)
		}
	}
	return string(text), true
}

// hexRune reads four hexadecimal digits.
func hexRune(digits []byte) rune {
	var r rune
	for _, c := range digits[:4] {
		r <<= 4
		switch {
		case c <= '9':
			r |= rune(c - '0')
		default:
			r |= rune(c|0x20-'a') + 10
		}
	}
	return r
}

// appendQuoted appends the JSON string for text, which must be valid UTF-8.
func appendQuoted(to []byte, text string) []byte {
	quoted, err := json.Marshal(text)
	if err != nil {
		return append(to, `""`...) // does not happen to a string
	}
	return append(to, quoted...)
}

package webhook

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxID is the longest webhook-id that is sent, in bytes.
const maxID = 128

// EscapeID gives the value of the header webhook-id for a message id. It is the
// same for the same id for ever, has no dot (Standard Webhooks signs
// id.timestamp.body, so a dot would make that ambiguous), and different ids
// give different values. Letters, digits, - and _ stay as they are; every other
// byte becomes ~ and two hexadecimal digits. What would be longer than 128
// bytes becomes ~~ and the SHA-256 of the id.
func EscapeID(messageID string) string {
	const hexDigits = "0123456789ABCDEF"
	if messageID != "" && len(messageID) <= maxID && !strings.ContainsFunc(messageID, escaped) {
		return messageID // nearly always
	}
	var b strings.Builder
	for i := 0; i < len(messageID) && b.Len() <= maxID; i++ {
		c := messageID[i]
		if !escaped(rune(c)) {
			b.WriteByte(c)
			continue
		}
		b.Write([]byte{'~', hexDigits[c>>4], hexDigits[c&15]})
	}
	switch {
	case messageID == "":
		return "~" // a header without a value would make every receiver refuse
	case b.Len() > maxID:
		sum := sha256.Sum256([]byte(messageID))
		return "~~" + hex.EncodeToString(sum[:])
	}
	return b.String()
}

// escaped reports whether a byte, or a rune that is not ASCII, does not stay as it is.
func escaped(r rune) bool { return r > 'z' || !isAlphanumeric(byte(r)) && r != '-' && r != '_' }

func isAlphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

package sqlite

import (
	"crypto/rand"
	"encoding/binary"
	"strconv"
	"strings"
)

// nobodys is the receipt of a message that was given back: it is hidden, and nobody holds it.
// So is one whose receipt is even; whoever gave it back can show it.
const nobodys = 0

// newReceipt returns the receipt of a lease, which nobody can guess or meet again.
func newReceipt() int64 { return randomNumber() | 1 }

// newHiddenReceipt returns the receipt of a message that was given back.
func newHiddenReceipt() int64 { return randomNumber()&^1 | 2 }

func randomNumber() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return int64(binary.BigEndian.Uint64(b[:]))
}

const hexDigits = "0123456789abcdef"

// A receipt names its row, so that settling needs no search.
func formatReceipt(seq, receipt int64) string {
	text := append(strconv.AppendInt(make([]byte, 0, 40), seq, 10), '.')
	for shift := 60; shift >= 0; shift -= 4 {
		text = append(text, hexDigits[uint64(receipt)>>shift&15])
	}
	return string(text)
}

func parseReceipt(s string) (seq, receipt int64, ok bool) {
	head, tail, _ := strings.Cut(s, ".")
	seq, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		return 0, 0, false
	}
	r, err := strconv.ParseUint(tail, 16, 64)
	return seq, int64(r), err == nil
}

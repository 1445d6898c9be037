package webhook

import (
	"bytes"
	"math/bits"
)

// parts finds what other texts have in common with a view: it knows all parts of the view
// that have one length. Each lookup takes the same time, whatever the texts repeat.
type parts struct {
	v      *view
	length int
	shift  int
	slots  []int32 // by hash, the first place of a part, counted from 1
	same   []int32 // by place, the next place of the same part, counted from 1
	hidden []bool  // by first place
}

// rolling is the base of the hash of a part, and spread what makes a slot of it.
const (
	rolling = 0x100000001b3
	spread  = 0x9e3779b97f4a7c15
)

func newParts(v *view, length int) *parts {
	size := bits.Len(uint(2 * len(v.folded)))
	p := &parts{v: v, length: length, shift: 64 - size, slots: make([]int32, 1<<size), same: make([]int32, len(v.folded)), hidden: make([]bool, len(v.folded))}
	eachPart(v.folded, length, func(at int, hash uint64) {
		slot := p.slot(v.folded[at:at+length], hash)
		p.same[at], p.slots[slot] = p.slots[slot], int32(at)+1
	})
	return p
}

// eachPart calls f with each part of s of that length, and a hash of it.
func eachPart(s []byte, length int, f func(at int, hash uint64)) {
	var hash, leaving uint64 = 0, 1
	for range length {
		leaving *= rolling
	}
	for i, c := range s {
		hash = hash*rolling + uint64(c) + 1
		if i >= length {
			hash -= leaving * (uint64(s[i-length]) + 1)
		}
		if i+1 >= length {
			f(i+1-length, hash)
		}
	}
}

// slot is where the part stands, or would.
func (p *parts) slot(part []byte, hash uint64) int {
	slot := int(hash * spread >> p.shift)
	for p.slots[slot] != 0 {
		if at := int(p.slots[slot]) - 1; bytes.Equal(p.v.folded[at:at+p.length], part) {
			break
		}
		slot = (slot + 1) & (len(p.slots) - 1)
	}
	return slot
}

// hide hides what the view has in common with s, in parts of the length and more.
func (p *parts) hide(s []byte) {
	eachPart(s, p.length, func(at int, hash uint64) {
		first := p.slots[p.slot(s[at:at+p.length], hash)]
		if first == 0 || p.hidden[first-1] {
			return
		}
		p.hidden[first-1] = true
		for place := first; place != 0; place = p.same[place-1] {
			p.v.hide(int(place)-1, int(place)-1+p.length)
		}
	})
}

// hold is whether the view has a part that begins like s.
func (p *parts) hold(s []byte) bool {
	found := false
	eachPart(s[:p.length], p.length, func(_ int, hash uint64) { found = p.slots[p.slot(s[:p.length], hash)] != 0 })
	return found
}

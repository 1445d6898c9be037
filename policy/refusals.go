package policy

// A webhook refuses everything when so many POSTs in a row were refused for good with one
// status, and of the last refusalsSeen at most one was not.
const (
	refusalsRow  = 10
	refusalsSeen = 20
)

// Refusals tells a webhook that refuses every message, by an answer that is the message's
// affair as a rule, from messages that deserve it. The zero Refusals is ready.
type Refusals struct {
	statuses [refusalsSeen]uint16 // 0: another answer
	seen     int
	row      int
}

// Report takes in the status by which a POST was refused for good; 0 for any other outcome. It
// tells whether the webhook refuses everything.
func (r *Refusals) Report(status int) (everything bool) {
	last := 0
	if r.seen > 0 {
		last = int(r.statuses[(r.seen-1)%refusalsSeen])
	}
	r.statuses[r.seen%refusalsSeen] = uint16(status)
	r.seen++
	switch status {
	case 0:
		r.row = 0
	case last:
		r.row++
	default:
		r.row = 1
	}
	if r.row < refusalsRow {
		return false
	}
	others := 0
	for _, s := range r.statuses[:min(r.seen, refusalsSeen)] {
		if int(s) != status {
			others++
		}
	}
	return others <= 1
}

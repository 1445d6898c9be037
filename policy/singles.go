package policy

// The numbers of Singles.
const (
	// singlesAgain is how many attempts of a message must have failed before for another
	// refusal to say something about the message.
	singlesAgain = 3
	// singlesSure is how many such refusals there must have been in a row, and how many first
	// attempts must have been taken meanwhile. A first attempt that was refused takes back
	// singlesBack of these, of which singlesMost are remembered.
	singlesSure = 5
	singlesBack = 2
	singlesMost = 10
)

// Singles tells a webhook that refuses single messages, each time that they come (the quota
// of one of its customers is used up), from one that has a limit: that takes a message that it has
// refused before as likely as another one. The zero Singles is ready.
type Singles struct {
	others, again int
	closed        bool // a first attempt was refused, and none has been taken since
	vain          int  // refusals of others since then
}

// Taken takes in a POST that was taken, of a message of which so many attempts had failed.
func (s *Singles) Taken(failed int) {
	switch {
	case failed == 0:
		s.others, s.closed = min(s.others+1, singlesMost), false
	case failed >= singlesAgain:
		*s = Singles{}
	}
}

// Refused takes in a POST that was refused over a limit, and tells whether that is because of its message.
func (s *Singles) Refused(failed int) bool {
	switch {
	case failed == 0:
		s.others, s.closed, s.vain = max(s.others-singlesBack, 0), true, 0
	case failed >= singlesAgain:
		s.again, s.vain = min(s.again+1, singlesMost), s.vain+1
		return s.again > singlesSure && s.others >= singlesSure && (!s.closed || s.vain == 1) // else it may be a limit that has closed
	}
	return false
}

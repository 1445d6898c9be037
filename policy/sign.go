package policy

import "time"

// Sign is what one POST says about its webhook; the zero Sign says nothing.
type Sign struct {
	// Delivered: it answered 2xx, or what completes a message by a rule or its own word.
	Delivered bool
	// Answered: it gave an HTTP answer of any kind, so it can be reached.
	Answered bool
	// Failed: the receiver failed: 5xx, 429, or no answer. Any other answer, a 400
	// for instance, is the message's affair.
	Failed bool
	// Overloaded: it is sent more than it can take, as far as one can tell: 429, 502,
	// 503, 504, a timeout, or a connection that fails.
	Overloaded bool
	// Limited: 429 or 503 without a wait, or what a rule of its policy calls throttled, or a final refusal, 403 for
	// instance, that names a wait all the same: it is sent more than its limit, or it is broken. A Pacer knows.
	Limited bool
	// TooMany: Limited, and no sign of a breakdown: not 503. It is there, and may take another message.
	TooMany bool
	// Waits: 429 or 503 with a wait. That is what a limit asks for, where others are taken, and no breakdown.
	Waits bool
	// Wait is that wait; 0 where Waits is not set.
	Wait time.Duration
	// Refused is the status by which it refused the message for good; 0 when it did not.
	Refused int
}

// Sign reads the sign of an answer as SignOf does, and by the policy's rules, what the webhook
// asked for, and whether a wait is named, that it may be limited. An answer that completes its
// message is a delivery, and a refusal that a rule or the webhook itself spoke of is no sign that the
// webhook refuses whatever it is sent (C69).
func (p *Policy) Sign(r Response, now time.Time) Sign {
	s := SignOf(r)
	r = r.settled()
	if s == (Sign{}) || s.Delivered || r.Class == ClassBlocked {
		return s
	}
	v, told := p.told(&r)
	if told && v.action == Complete && s.Answered {
		return Sign{Delivered: true, Answered: true}
	}
	if told {
		s.Refused = 0
	}
	asked, waits := p.askedWait(&r, now)
	switch {
	case waits && busy(r.Status):
		s.Waits, s.Wait = true, asked
		return s
	case v.throttled, !told && final(r.Status) && asked >= time.Second: // it pauses nothing, so the pace is the answer to it
		return Sign{Answered: s.Answered, Failed: true, Overloaded: true, Limited: true, TooMany: true}
	}
	s.Limited = busy(r.Status)
	s.TooMany = s.Limited && r.Status == 429
	return s
}

// SignOf reads the sign of an answer. What is no outcome on the wire gives none: an
// address of the URL that the guard refused, a request that could not be made, a POST that we
// cut short, a connection that may have died of itself. Which of our own faults look like the receiver's is for Outage.
func SignOf(r Response) Sign {
	r = r.settled()
	if r.StaleConn {
		return Sign{}
	}
	switch r.Class {
	case ClassTimeout, ClassConnect, ClassTLS, ClassReset:
		return Sign{Failed: true, Overloaded: true}
	case ClassDNS, ClassProtocol:
		return Sign{Failed: true}
	case ClassBlocked:
		return Sign{Failed: r.NameBlocked} // what a name leads to is looked up at each attempt
	case "":
	default:
		return Sign{}
	}
	switch class(r.Status) {
	case 0:
		return Sign{}
	case 2:
		return Sign{Delivered: true, Answered: true}
	}
	switch r.Status {
	case 429, 502, 503, 504:
		return Sign{Answered: true, Failed: true, Overloaded: true}
	}
	s := Sign{Answered: true, Failed: class(r.Status) == 5}
	if final(r.Status) {
		s.Refused = r.Status
	}
	return s
}

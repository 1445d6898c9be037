package queue

import (
	"errors"
	"fmt"
)

// The errors of the contract. Adapters wrap them; test with errors.Is.
var (
	// ErrLeaseLost: the receipt is not valid any more, because the message was
	// received by someone else, was settled, or has expired. Definitive.
	ErrLeaseLost = errors.New("lease lost")
	// ErrQueueNotFound: the queue does not exist.
	ErrQueueNotFound = errors.New("queue not found")
	// ErrNotEmpty: the queue was to be deleted only if it had no messages, and has some.
	ErrNotEmpty = errors.New("queue is not empty")
	// ErrTooLarge: the text is over MaxTextBytes.
	ErrTooLarge = errors.New("message too large")
	// ErrUnsendable: the text has characters that this queue can't carry.
	ErrUnsendable = errors.New("text can't be stored in this queue")
	// ErrBusy: storage refused the call before it took effect (throttling,
	// queue being deleted, connection refused). Back off and try again.
	ErrBusy = errors.New("storage is busy")
	// ErrLocked is the ErrBusy of a file that another process keeps locked: it lasts until
	// that process lets go.
	ErrLocked = fmt.Errorf("%w: another process keeps it locked", ErrBusy)
	// ErrDenied: storage refused the credentials or their permissions.
	ErrDenied = errors.New("storage denied access")
	// ErrFull: storage has no room left, and kept nothing of the call.
	ErrFull = errors.New("storage is full")
	// ErrTakenAway: what storage keeps its data in was removed or replaced while it was in
	// use. The call was refused, and further ones will be until an operator has acted.
	ErrTakenAway = errors.New("storage was taken away")
)

// Ambiguous reports whether a call that failed with err may nevertheless have
// taken effect: everything but a definitive answer is ambiguous.
func Ambiguous(err error) bool {
	if err == nil {
		return false
	}
	for _, definitive := range []error{ErrLeaseLost, ErrQueueNotFound, ErrNotEmpty, ErrTooLarge, ErrUnsendable, ErrBusy, ErrDenied, ErrFull, ErrTakenAway} {
		if errors.Is(err, definitive) {
			return false
		}
	}
	return true
}

// ValidateName says why storage would refuse a queue name, with the cure; nil
// for a good name. Source: Azure "Naming queues and metadata".
func ValidateName(name string) error {
	switch {
	case len(name) < 3 || len(name) > 63:
		return fmt.Errorf("a queue name has 3 to 63 characters, this one has %d", len(name))
	case name[0] == '-' || name[len(name)-1] == '-':
		return errors.New("a queue name begins and ends with a letter or digit")
	}
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c == '-':
			if name[i-1] == '-' {
				return errors.New("a queue name has no two hyphens in a row")
			}
		case c >= 'A' && c <= 'Z':
			return errors.New("a queue name has lower-case letters only")
		default:
			return fmt.Errorf("a queue name has only a-z, 0-9 and '-', not %q", rune(c))
		}
	}
	return nil
}

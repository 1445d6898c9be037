package webhook

import (
	"errors"

	"github.com/pushlease/pushlease/webhook/content"
)

// ErrBlockedAddress is why no connection is opened to an address that the
// guard refuses.
var ErrBlockedAddress = errors.New("the address guard refused the address")

// invalid says what is wrong with a webhook that is being registered.
func invalid(problem, cure string) error { return &content.FieldError{Problem: problem, Cure: cure} }

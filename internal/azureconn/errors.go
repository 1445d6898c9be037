package azureconn

import "fmt"

// TokenRefusedError says that the token service answered, but gave no token, so that
// storage was not asked.
type TokenRefusedError struct {
	// Status is that of the token service's answer.
	Status int
}

func (e *TokenRefusedError) Error() string {
	return fmt.Sprintf("the token service answered status %d", e.Status)
}

package content

// FieldError says what is wrong with something that is being registered, and
// what to do about it. Its texts do not repeat a secret, a URL or a header's value.
type FieldError struct {
	// Field is the path within what was checked; empty when that is meant as a whole.
	Field   string
	Problem string
	Cure    string
}

func (e *FieldError) Error() string {
	if e.Field == "" {
		return e.Problem + ": " + e.Cure
	}
	return e.Field + " " + e.Problem + ": " + e.Cure
}

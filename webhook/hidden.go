package webhook

import "log/slog"

// Hidden is a text in confidence. It prints and logs as [secret]; only its JSON form, which
// is for the tables, holds it.
type Hidden string

// String hides the text from %v and %s.
func (Hidden) String() string { return "[secret]" }

// GoString hides the text from %#v.
func (Hidden) GoString() string { return "[secret]" }

// LogValue hides the text from slog.
func (Hidden) LogValue() slog.Value { return slog.StringValue("[secret]") }

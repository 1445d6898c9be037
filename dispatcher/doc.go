// Package dispatcher receives messages under a lease, delivers them, and settles them.
//
// A message walks downward and returns once: poller.go takes seats (internal/admission),
// receives, and starts a handler (handle.go). The lease is kept beside it (internal/lease) while
// the message is delivered (internal/delivery): what that came to is an Outcome, a plain value,
// which the completer (internal/settle) applies. It alone completes, abandons and dead-letters.
// docs/dispatcher.md has the picture, the goroutines and the locks.
//
// A message that the Functions host received takes the same path, with a lease that is held
// and not renewed (hosted.go).
package dispatcher

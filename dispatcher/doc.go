// Package dispatcher receives messages under a lease, delivers them, and settles them.
//
// A message walks downward and returns once: poller.go receives up to its free slots and starts
// a handler (handle.go); the lease is kept beside it (internal/lease) while deliver.go opens the
// message (open.go), finds out what was done before (claim.go) and which webhooks take it
// (targets.go), asks each whether it may be sent to (postpone.go, internal/flow), and POSTs
// (attempt.go). What that came to is an Outcome, a plain value, which the completer
// (internal/settle) applies: it alone completes, abandons and dead-letters. docs/dispatcher.md
// has the picture, the goroutines and the locks.
//
// Deliver neither renews nor settles. A message that the Functions host received takes the same
// path, with a lease that is held and not renewed (hosted.go).
package dispatcher

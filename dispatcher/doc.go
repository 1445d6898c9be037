// Package dispatcher receives messages under a lease, delivers them, and settles them.
//
// It joins its parts, each of which can be built and tested alone: receive (pollers and guards)
// hands each message to handle.go, which keeps the lease while delivery decides about it. What
// that comes to is an Outcome, which the completer (settle) applies: it completes, abandons and
// dead-letters. docs/dispatcher.md has the picture, a message's life, the
// goroutines and the locks.
//
// A message that the Functions host received takes the same path, once its lease is taken over
// (hosted.go).
package dispatcher

// Package dispatcher holds the lease, delivers, and settles.
//
// A message walks downward through these files and returns once: poller.go
// receives up to its free slots; lease.go keeps the lease beside deliver.go,
// which opens the message (open.go), finds out what was done before (claim.go)
// and which webhooks take it (targets.go), POSTs to each (attempt.go) and
// records what came of it (record.go); the one decision goes back up to
// settle.go, the only place that completes, abandons or dead-letters.
//
// Deliver neither renews nor settles. That seam is what lets the Functions host,
// which holds the lease itself, use the same code.
package dispatcher

package main

import "testing"

// The tests of this file, and the soak, take minutes, most of which they wait: what a kill has cut is kept for its process.
// What begins last ends last, so these begin first: go test takes files by their names, and a test with its parts
// on each store, as onStores has them, after all that have none. Each part is a test of its own here.

// Killed twice while it dead-letters, and twice in the middle of a replay by filter, the
// program makes one dead letter of each message and replays each once.
func TestKillsWhileDeadLettersAreMadeAndReplayed(t *testing.T) {
	t.Parallel()
	killWhileDeadLettersAreMadeAndReplayed(t, sqliteStore(t))
}

func TestKillsWhileDeadLettersOnAzureAreMadeAndReplayed(t *testing.T) {
	t.Parallel()
	killWhileDeadLettersAreMadeAndReplayed(t, azuriteStore(t))
}

// The receiver is mended and everything replayed by filter; the process is killed in
// the middle of it, and the next one goes on with the job.
func TestReplayByFilterOutlivesAKill(t *testing.T) {
	t.Parallel()
	killDuringAReplayByFilter(t, sqliteStore(t))
}

func TestReplayByFilterOnAzureOutlivesAKill(t *testing.T) {
	t.Parallel()
	killDuringAReplayByFilter(t, azuriteStore(t))
}

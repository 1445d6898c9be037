//go:build !unix

package main

// readInBackground has nothing to do: no system but those of Unix stops a job for it.
func readInBackground() {}

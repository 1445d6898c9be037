//go:build !unix

package npmtest

// lockFile does not lock here: two test binaries may install at the same time,
// and the first to rename its folder wins.
func lockFile(string) (unlock func(), err error) { return func() {}, nil }

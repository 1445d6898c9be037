// Package azuritetest gives tests a storage account to talk to: Azurite, the
// storage emulator, and a proxy in front of it that injects the faults which
// Azurite never has.
//
// # Azurite
//
// Start runs the queue and table services of one pinned Azurite in one Node
// process for all tests of a test binary. It is installed on first use into
// the user's cache folder from the package-lock.json in this folder, keeps its
// data in a temporary folder, listens on free loopback ports, and ends with
// the test binary. Tests share the account, so they use Name for everything
// that they create.
//
// Without Node the tests that need Azurite are skipped; with CI=true in the
// environment they fail instead.
package azuritetest

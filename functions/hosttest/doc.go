// Package hosttest is a fake of the Azure Functions host for tests: it starts the
// packaged app as the host does, and calls it as the host does, over Azurite. README.md
// says what is known about the host and what is inferred.
package hosttest

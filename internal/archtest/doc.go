// Package archtest holds the tests that guard the architecture: who may import
// whom, and how long a file or a function may be. It has no code of its own.
package archtest

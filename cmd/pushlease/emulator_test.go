package main

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pushlease/pushlease/internal/azuritetest"
)

// atOnce is how many tests use the emulator at once. It is one Node process: with more of
// them its answers take longer than the ten seconds that a client gives it.
const atOnce = 4

// emulating knows which tests use the emulator.
var emulating = struct {
	sync.Mutex
	ended *sync.Cond
	names []string
}{}

func init() { emulating.ended = sync.NewCond(&emulating.Mutex) }

// emulator gives a test the emulator that all tests of this package share, when few enough
// others use it. A test has it until it ends, its subtests included.
func emulator(t *testing.T) *azuritetest.Azurite {
	t.Helper()
	emulating.Lock()
	defer emulating.Unlock()
	if slices.ContainsFunc(emulating.names, func(name string) bool {
		return name == t.Name() || strings.HasPrefix(t.Name(), name+"/")
	}) {
		return azuritetest.Start(t)
	}
	for len(emulating.names) >= atOnce {
		emulating.ended.Wait()
	}
	emulating.names = append(emulating.names, t.Name())
	t.Cleanup(func() {
		emulating.Lock()
		defer emulating.Unlock()
		emulating.names = slices.DeleteFunc(emulating.names, func(name string) bool { return name == t.Name() })
		emulating.ended.Broadcast()
	})
	return azuritetest.Start(t)
}

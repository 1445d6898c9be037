package main

import (
	"strings"
	"sync"
	"testing"

	"github.com/pushlease/pushlease/internal/azuritetest"
)

// atOnce is how many tests use one emulator at once. It is one Node process: with more of
// them its answers take longer than the ten seconds that a client gives it.
const atOnce = 4

// emulating knows which test uses which emulator, by its name.
var emulating = struct {
	sync.Mutex
	ended *sync.Cond
	tests map[string]int
}{tests: map[string]int{}}

func init() { emulating.ended = sync.NewCond(&emulating.Mutex) }

// emulator gives a test one of the emulators that all tests of this package share, when few
// enough others use it. A test has it until it ends, its subtests included.
func emulator(t *testing.T) *azuritetest.Azurite {
	t.Helper()
	return azuritetest.StartOne(t, emulatorOf(t))
}

func emulatorOf(t *testing.T) int {
	emulating.Lock()
	defer emulating.Unlock()
	for name, number := range emulating.tests {
		if name == t.Name() || strings.HasPrefix(t.Name(), name+"/") {
			return number
		}
	}
	for {
		var users [azuritetest.Emulators]int
		for _, number := range emulating.tests {
			users[number]++
		}
		least := 0
		for number := range users {
			if users[number] < users[least] {
				least = number
			}
		}
		if users[least] < atOnce {
			emulating.tests[t.Name()] = least
			t.Cleanup(func() { leaveEmulator(t.Name()) })
			return least
		}
		emulating.ended.Wait()
	}
}

func leaveEmulator(name string) {
	emulating.Lock()
	defer emulating.Unlock()
	delete(emulating.tests, name)
	emulating.ended.Broadcast()
}

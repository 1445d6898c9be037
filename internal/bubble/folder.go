package bubble

import (
	"os"
	"testing"
)

// InMemory is a folder whose files are kept in memory, such as Linux has; empty where there is
// none. While a disk syncs, simulated time stands still, and what a disk does to a file is not
// what these tests are about.
func InMemory() string {
	const shared = "/dev/shm"
	if info, err := os.Stat(shared); err == nil && info.IsDir() {
		return shared
	}
	return ""
}

// Folder makes a folder for the files of a test, in memory if it can, and removes it at the end.
func Folder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp(InMemory(), "bubble")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(folder); err != nil {
			t.Error(err)
		}
	})
	return folder
}

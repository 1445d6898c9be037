package config

import (
	"bytes"
	"io/fs"
	"math"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// memoryOfOne is what a message in flight takes at most, with the nine POSTs that may go with it and a body of 64 kB for each: of that the
// half stands for everything else.
const memoryOfOne = 512 << 10

// Holds is how many messages may be in flight in so much memory; 0 where that is not known.
func Holds(memory int64) int { return int(memory / memoryOfOne) }

// Memory is what this process may have at most by what the files below root say: the limit of its control group, or of one above it,
// or else what the machine has, and no more than GOMEMLIMIT; 0 where nothing says it.
func Memory(root fs.FS) int64 {
	least := int64(math.MaxInt64)
	lower := func(n int64) {
		if n > 0 {
			least = min(least, n)
		}
	}
	groups, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(groups)) {
		mount, file := "sys/fs/cgroup", "memory.max"
		_, group, ok := strings.Cut(strings.TrimSpace(line), "::") // version 2
		if !ok {
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
			if _, group, ok = strings.Cut(strings.TrimSpace(line), ":memory:"); !ok {
				continue
			}
		}
		for dir := path.Clean("/" + group); ; dir = path.Dir(dir) { // in a container its own group is the root
			lower(number(root, path.Join(mount, dir, file)))
			if dir == "/" {
				break
			}
		}
	}
	info, _ := fs.ReadFile(root, "proc/meminfo")
	if _, total, ok := bytes.Cut(info, []byte("MemTotal:")); ok {
		if fields := bytes.Fields(total); len(fields) > 0 {
			kilobytes, _ := strconv.ParseInt(string(fields[0]), 10, 64)
			lower(kilobytes << 10)
		}
	}
	lower(debug.SetMemoryLimit(-1)) // a negative one changes nothing
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// number is what a file holds; 0 for none, and for "max".
func number(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n
}

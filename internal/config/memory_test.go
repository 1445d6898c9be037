package config

import (
	"testing"
	"testing/fstest"
)

// C79: the bound on what is in flight follows the memory that the process may have.
func TestTheMemoryOfAProcessIsTheLowestLimit(t *testing.T) {
	const meminfo = "MemTotal:        2097152 kB\nMemFree:         1000 kB\n"
	for name, tt := range map[string]struct {
		files  map[string]string
		memory int64
	}{
		"a container":              {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n", "proc/meminfo": meminfo}, 256 << 20},
		"a service of systemd":     {map[string]string{"proc/self/cgroup": "0::/system.slice/pushlease.service\n", "sys/fs/cgroup/system.slice/pushlease.service/memory.max": "max\n", "sys/fs/cgroup/system.slice/memory.max": "536870912\n", "proc/meminfo": meminfo}, 512 << 20},
		"version 1":                {map[string]string{"proc/self/cgroup": "9:cpu:/a\n4:memory:/docker/b\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "134217728\n", "proc/meminfo": meminfo}, 128 << 20},
		"version 1 without limits": {map[string]string{"proc/self/cgroup": "4:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "proc/meminfo": meminfo}, 2 << 30},
		"a machine":                {map[string]string{"proc/meminfo": meminfo}, 2 << 30},
		"nothing says it":          {nil, 0},
	} {
		root := fstest.MapFS{}
		for file, text := range tt.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := Memory(root); got != tt.memory {
			t.Errorf("%s: %d bytes, want %d", name, got, tt.memory)
		}
	}
}

func TestMaxInFlightIsWhatTheMemoryHolds(t *testing.T) { // C79
	for _, tt := range []struct {
		memory            int64
		concurrency, want int
	}{
		{0, 64, 1024},
		{16 << 30, 64, 1024},
		{512 << 20, 64, 1024},
		{256 << 20, 64, 512},
		{128 << 20, 64, 256},
		{16 << 20, 64, 64},
		{256 << 20, 2000, 2000}, // it is not below what is asked for of one queue
	} {
		c := Config{Concurrency: tt.concurrency}
		if fillUnset(&c, nil, tt.memory); c.MaxInFlight != tt.want {
			t.Errorf("%d MB and a concurrency of %d: %d, want %d", tt.memory>>20, tt.concurrency, c.MaxInFlight, tt.want)
		}
		c = Config{Concurrency: tt.concurrency, MaxInFlight: 3000}
		if fillUnset(&c, nil, tt.memory); c.MaxInFlight != 3000 {
			t.Errorf("what was set became %d", c.MaxInFlight)
		}
	}
}

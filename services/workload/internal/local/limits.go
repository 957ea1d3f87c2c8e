package local

import (
	"cmp"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// overlay fills in from below what limits leave open.
func overlay(limits, below driver.Limits) driver.Limits {
	return driver.Limits{
		MemoryBytes: cmp.Or(limits.MemoryBytes, below.MemoryBytes),
		CPUMillis:   cmp.Or(limits.CPUMillis, below.CPUMillis),
		Pids:        cmp.Or(limits.Pids, below.Pids),
		DiskBytes:   cmp.Or(limits.DiskBytes, below.DiskBytes),
	}
}

// hostMemory is all that this host has, in bytes; 0 where that isn't known.
func hostMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}

// tmpBytes is the size of /tmp and of the shared memory, each: what is in them
// counts as the sandbox's memory and can't be taken back, so both together leave
// half of it for processes. A full one is an error there, not the sandbox's end.
func tmpBytes(configured, memory int64) int64 {
	if memory == 0 {
		return configured
	}
	return min(configured, memory/4)
}

package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machine is where figures were taken.
type machine struct {
	cores     int
	cpu       string
	memoryGiB float64
	kernel    string
	goVersion string
	// load is what the kernel gave as the load of the last minute at the start: more
	// than a little says that others worked too.
	load string
}

func thisMachine() machine {
	m := machine{cores: runtime.GOMAXPROCS(0), goVersion: runtime.Version(), cpu: field("/proc/cpuinfo", "model name")}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		m.memoryGiB = float64(info.Totalram) * float64(info.Unit) / (1 << 30)
	}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.kernel = unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		m.load, _, _ = strings.Cut(string(b), " ")
	}
	return m
}

// field reads one "name : value" line of a file of /proc, "" where it isn't there.
func field(path, name string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, found := strings.Cut(lines.Text(), ":")
		if found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// String is the machine in one line.
func (m machine) String() string {
	return fmt.Sprintf("Machine: %d cores (%s), %.0f GiB, %s, %s; each append synced to the disk before its ack (sync_interval: always); load %s at the start",
		m.cores, m.cpu, m.memoryGiB, m.kernel, m.goVersion, m.load)
}

// residentBytes is how much of this process is in memory.
func residentBytes() float64 {
	raw, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseFloat(fields[1], 64)
	if err != nil {
		return 0
	}
	return pages * float64(os.Getpagesize())
}

package local

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// The ways in which limits are enforced.
const (
	limitsCgroup2 = "cgroup v2"
	limitsCgroup1 = "cgroup v1"
	limitsRlimits = "rlimits" // memory and pids of each process; cpu is not limited
)

// controllers are what a sandbox's limits need.
var controllers = []string{"memory", "cpu", "pids"}

// cgroups makes control groups for sandboxes below directories of its own.
type cgroups struct {
	kind string
	// base is one directory for v2, and one for each controller for v1.
	base map[string]string
}

// openCgroups finds where control groups can be made, v2 first. It returns nil
// where they can't: rlimits have to do.
func openCgroups(name string) *cgroups {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	v2, v1 := cgroupMounts(mounts)
	paths := ownCgroups(own)
	if v2 != "" {
		if dir := makeV2(v2, paths[""], name); dir != "" {
			return &cgroups{kind: limitsCgroup2, base: map[string]string{"": dir}}
		}
	}
	base := map[string]string{}
	for _, c := range controllers {
		root, ok := v1[c]
		if !ok {
			return nil
		}
		dir := filepath.Join(root, paths[c])
		if ok, err := exists(dir); err != nil || !ok {
			dir = root // our path is outside of what this mount shows
		}
		dir = filepath.Join(dir, name)
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return nil
		}
		base[c] = dir
	}
	return &cgroups{kind: limitsCgroup1, base: base}
}

// cgroupMounts reads the mount points of v2 and of each controller of v1 from
// a mountinfo file.
func cgroupMounts(mountinfo []byte) (v2 string, v1 map[string]string) {
	v1 = map[string]string{}
	for scan := bufio.NewScanner(bytes.NewReader(mountinfo)); scan.Scan(); {
		before, after, ok := strings.Cut(scan.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup2":
			v2 = left[4]
		case "cgroup":
			for option := range strings.SplitSeq(right[2], ",") {
				v1[option] = left[4]
			}
		}
	}
	return v2, v1
}

// ownCgroups reads this process's group by controller ("" for v2) from a
// /proc/<pid>/cgroup file.
func ownCgroups(file []byte) map[string]string {
	paths := map[string]string{}
	for line := range strings.Lines(string(file)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for c := range strings.SplitSeq(parts[1], ",") {
			paths[c] = parts[2]
		}
	}
	return paths
}

// makeV2 makes a group whose children can have limits, in the nearest place
// above our own that allows it: a group that has processes can't give its
// children controllers, so it is usually the parent.
func makeV2(root, own, name string) string {
	for dir := filepath.Join(root, own); ; dir = filepath.Dir(dir) {
		base := filepath.Join(dir, name)
		if enableControllers(dir) == nil && os.Mkdir(base, 0o750) == nil || dirExists(base) {
			if enableControllers(base) == nil {
				return base
			}
			// Best effort: an empty group of ours does no harm.
			_ = os.Remove(base)
		}
		if dir == root || dir == "/" || dir == "." {
			return ""
		}
	}
}

func dirExists(path string) bool {
	ok, err := exists(path)
	return err == nil && ok
}

// enableControllers gives dir's children the controllers that limits need.
func enableControllers(dir string) error {
	path := filepath.Join(dir, "cgroup.subtree_control")
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	have := strings.Fields(string(raw))
	for _, c := range controllers {
		if slices.Contains(have, c) {
			continue
		}
		if err := os.WriteFile(path, []byte("+"+c), 0); err != nil {
			return err
		}
	}
	return nil
}

// create makes the groups of one incarnation and sets its limits. It returns
// their directories, which addProcess and removeGroups take.
func (c *cgroups) create(id string, limits driver.Limits) ([]string, error) {
	if c == nil {
		return nil, nil
	}
	var dirs []string
	for controller, base := range c.base {
		dir := filepath.Join(base, id)
		dirs = append(dirs, dir)
		if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
			return dirs, fmt.Errorf("control group: %w", err)
		}
		for _, s := range limitFiles(c.kind, controller, limits) {
			err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.value), 0)
			if s.optional && errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return dirs, fmt.Errorf("control group: %w", err)
			}
		}
	}
	slices.Sort(dirs)
	return dirs, nil
}

// limitFile is one value to write into a control group.
type limitFile struct {
	file, value string
	// optional files don't exist on kernels without swap accounting.
	optional bool
}

// cpuPeriod is the window of the cpu limit, in microseconds: the kernel's default.
const cpuPeriod = 100_000

// limitFiles says what to write for limits: into the v2 group, or into the v1
// group of one controller.
func limitFiles(kind, controller string, l driver.Limits) []limitFile {
	var files []limitFile
	itoa := func(n int64) string { return strconv.FormatInt(n, 10) }
	v2 := kind == limitsCgroup2
	quota := itoa(l.CPUMillis * cpuPeriod / 1000)
	if v2 && l.MemoryBytes > 0 {
		files = append(files, limitFile{"memory.max", itoa(l.MemoryBytes), false}, limitFile{"memory.swap.max", "0", true})
	}
	if controller == "memory" && l.MemoryBytes > 0 {
		files = append(files, limitFile{"memory.limit_in_bytes", itoa(l.MemoryBytes), false},
			limitFile{"memory.memsw.limit_in_bytes", itoa(l.MemoryBytes), true})
	}
	if v2 && l.CPUMillis > 0 {
		files = append(files, limitFile{"cpu.max", quota + " " + itoa(cpuPeriod), false})
	}
	if controller == "cpu" && l.CPUMillis > 0 {
		files = append(files, limitFile{"cpu.cfs_period_us", itoa(cpuPeriod), false}, limitFile{"cpu.cfs_quota_us", quota, false})
	}
	if (v2 || controller == "pids") && l.Pids > 0 {
		files = append(files, limitFile{"pids.max", itoa(l.Pids), false})
	}
	return files
}

// addProcess moves a process, and with it all that it starts, into the groups.
func addProcess(groups []string, pid int) error {
	for _, dir := range groups {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			return fmt.Errorf("join control group: %w", err)
		}
	}
	return nil
}

// removeGroups kills what is left in the groups and removes them.
func removeGroups(groups []string) error {
	errs := make([]error, 0, len(groups))
	for _, dir := range groups {
		errs = append(errs, removeGroup(dir))
	}
	return errors.Join(errs...)
}

// removeGroup kills and removes one group, waiting for its processes to end.
func removeGroup(dir string) error {
	deadline := time.Now().Add(killWait)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := os.Remove(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("remove control group: %w", err)
		}
		if err := killMembers(dir); err != nil {
			return err
		}
		<-tick.C
	}
}

// killMembers kills the processes of a group.
func killMembers(dir string) error {
	raw, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return fmt.Errorf("processes of a control group: %w", err)
	}
	for field := range strings.FieldsSeq(string(raw)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 0 {
			continue
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill process %d: %w", pid, err)
		}
	}
	return nil
}

// close removes the directories that hold the groups; those that still have
// children stay for the next driver.
func (c *cgroups) close() {
	if c == nil {
		return
	}
	for _, dir := range c.base {
		_ = os.Remove(dir)
	}
}

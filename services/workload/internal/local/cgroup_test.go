package local

import (
	"maps"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

func TestCgroupFiles(t *testing.T) {
	const mountinfo = `22 1 0:20 / /sys/fs/cgroup ro,nosuid - tmpfs tmpfs ro,mode=755
23 22 0:21 / /sys/fs/cgroup/unified rw,nosuid shared:2 - cgroup2 cgroup2 rw
24 22 0:22 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:3 master:1 - cgroup cgroup rw,cpu,cpuacct
25 22 0:23 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
broken line
`
	v2, v1 := cgroupMounts([]byte(mountinfo))
	if v2 != "/sys/fs/cgroup/unified" || v1["cpu"] != "/sys/fs/cgroup/cpu,cpuacct" || v1["memory"] != "/sys/fs/cgroup/memory" || v1["pids"] != "" {
		t.Errorf("mounts = %q, %v", v2, v1)
	}
	own := ownCgroups([]byte("5:cpu,cpuacct:/a\n4:memory:/b:c\n0::/user.slice\nbroken\n"))
	if want := map[string]string{"cpu": "/a", "cpuacct": "/a", "memory": "/b:c", "": "/user.slice"}; !maps.Equal(own, want) {
		t.Errorf("own groups = %v, want %v", own, want)
	}
}

func TestLimitFiles(t *testing.T) {
	limits := driver.Limits{MemoryBytes: 1 << 30, CPUMillis: 1500, Pids: 64}
	tests := map[string]struct {
		kind, controller string
		limits           driver.Limits
		want             []limitFile
	}{
		"v2": {limitsCgroup2, "", limits, []limitFile{
			{"memory.max", "1073741824", false}, {"memory.swap.max", "0", true}, {"cpu.max", "150000 100000", false}, {"pids.max", "64", false},
		}},
		"v1 memory": {limitsCgroup1, "memory", limits, []limitFile{
			{"memory.limit_in_bytes", "1073741824", false}, {"memory.memsw.limit_in_bytes", "1073741824", true},
		}},
		"v1 cpu":       {limitsCgroup1, "cpu", limits, []limitFile{{"cpu.cfs_period_us", "100000", false}, {"cpu.cfs_quota_us", "150000", false}}},
		"v1 pids":      {limitsCgroup1, "pids", limits, []limitFile{{"pids.max", "64", false}}},
		"v2 no limits": {limitsCgroup2, "", driver.Limits{}, nil},
		"v1 no limits": {limitsCgroup1, "memory", driver.Limits{}, nil},
	}
	for name, tt := range tests {
		if got := limitFiles(tt.kind, tt.controller, tt.limits); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

package local

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// processID identifies a process beyond the reuse of its pid.
type processID struct {
	PID int `json:"pid"`
	// Start is in clock ticks since boot, and Boot the boot's id.
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// bootID returns the id of this boot of the host.
func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// procStat is what the driver reads of /proc/<pid>/stat.
type procStat struct {
	state   byte
	parent  int
	session int
	start   uint64
}

// readStat reads the state of a process.
func readStat(pid int) (procStat, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return procStat{}, err
	}
	// The name is in parentheses and may contain anything; fields go on behind it.
	end := bytes.LastIndexByte(raw, ')')
	fields := strings.Fields(string(raw[end+1:]))
	const stateField, parentField, sessionField, startField = 0, 1, 3, 19
	if end < 0 || len(fields) <= startField {
		return procStat{}, fmt.Errorf("stat of process %d: %q", pid, raw)
	}
	parent, err := strconv.Atoi(fields[parentField])
	if err != nil {
		return procStat{}, fmt.Errorf("stat of process %d: parent: %w", pid, err)
	}
	session, err := strconv.Atoi(fields[sessionField])
	if err != nil {
		return procStat{}, fmt.Errorf("stat of process %d: session: %w", pid, err)
	}
	start, err := strconv.ParseUint(fields[startField], 10, 64)
	if err != nil {
		return procStat{}, fmt.Errorf("stat of process %d: start: %w", pid, err)
	}
	return procStat{state: fields[stateField][0], parent: parent, session: session, start: start}, nil
}

// identify returns the lasting identity of a running process.
func identify(pid int, boot string) (*processID, error) {
	st, err := readStat(pid)
	if err != nil {
		return nil, fmt.Errorf("identify process: %w", err)
	}
	return &processID{PID: pid, Start: st.start, Boot: boot}, nil
}

// killWait is how long the kernel gets to end a killed process.
const killWait = 10 * time.Second

// killIdentified kills exactly the process p, if it still lives, and waits for
// its end. It reports whether there was one.
func killIdentified(p processID, boot string) (bool, error) {
	if p.Boot != boot {
		return false, nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	// The descriptor holds on to the process, so the check below stays true.
	st, err := readStat(p.PID)
	if err != nil || st.start != p.Start || st.state == 'Z' {
		return false, nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return true, fmt.Errorf("kill process %d: %w", p.PID, err)
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	deadline := time.Now().Add(killWait)
	for {
		n, err := unix.Poll(fds, int(time.Until(deadline).Milliseconds()))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return true, fmt.Errorf("wait for process %d: %w", p.PID, err)
		case n == 0:
			return true, fmt.Errorf("process %d does not end", p.PID)
		}
		return true, nil
	}
}

// killSession kills every process of a session (setsid) whose leader was p:
// what an agent without isolation leaves behind. It reports how many it killed.
func killSession(p processID, boot string) (int, error) {
	if p.Boot != boot {
		return 0, nil
	}
	// The number of a dead leader isn't given away while its session has members;
	// if a process has it that started later, the session was over before.
	if st, err := readStat(p.PID); err == nil && st.start != p.Start {
		return 0, nil
	}
	killed := map[int]bool{}
	deadline := time.Now().Add(killWait)
	for tick := time.NewTicker(5 * time.Millisecond); ; <-tick.C {
		members, err := sessionMembers(p)
		if err != nil {
			return len(killed), err
		}
		if len(members) == 0 {
			tick.Stop()
			return len(killed), nil
		}
		if time.Now().After(deadline) {
			tick.Stop()
			return len(killed), fmt.Errorf("processes %v do not end", members)
		}
		for _, pid := range members {
			killed[pid] = true
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
				return len(killed), fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
	}
}

// sessionMembers lists the living processes of p's session.
func sessionMembers(p processID) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A process that ended meanwhile can't be read, and isn't a member.
		st, err := readStat(pid)
		if err == nil && st.session == p.PID && st.start >= p.Start && st.state != 'Z' && st.state != 'X' {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

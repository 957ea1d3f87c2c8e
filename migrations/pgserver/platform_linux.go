package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
)

// inherited is the path of a child's first extra descriptor.
const inherited = "/proc/self/fd/3"

// dieWithParent has the kernel send sig to the child when the thread that
// started it ends.
func dieWithParent(attr *syscall.SysProcAttr, sig syscall.Signal) { attr.Pdeathsig = sig }

// servesFolder reports whether process pid is a PostgreSQL server that works
// in data: every process of a server has its cluster as working directory.
func servesFolder(pid int, data string) bool {
	there, err := os.Stat(fmt.Sprintf("/proc/%d/cwd", pid))
	if errors.Is(err, fs.ErrPermission) {
		// Root in a container may not look into another user's processes. The
		// name it may read, and taking a server for alive is the safe mistake.
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		return err == nil && strings.TrimSpace(string(name)) == "postgres"
	}
	if err != nil {
		return false
	}
	here, err := os.Stat(data)
	return err == nil && os.SameFile(there, here)
}

// Package parent ends a program together with whoever started it. A test that is
// killed stops nothing any more, and an API server that nobody stops keeps half a
// gigabyte of memory.
package parent

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Env names the environment variable that asks for it: the process id of the
// program's parent. Without it a program outlives its parent, as usual.
const Env = "HOLDFAST_KUBE_PARENT"

// init runs on the process's main thread: the kernel keeps the wish with the thread
// that uttered it, and the main thread is the one that stays.
func init() {
	pid, err := strconv.Atoi(os.Getenv(Env))
	if err != nil {
		return
	}
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil || os.Getppid() != pid {
		os.Exit(1) // it has ended already
	}
}

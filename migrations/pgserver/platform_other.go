//go:build unix && !linux

package pgserver

import "syscall"

// inherited is the path of a child's first extra descriptor.
const inherited = "/dev/fd/3"

// dieWithParent does nothing: only Linux tells a child of its parent's death.
// Elsewhere a SIGKILL of this process leaves the server, which the next Start
// names.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

// servesFolder takes any live process for the server: the safe mistake where
// nothing more can be known.
func servesFolder(pid int, _ string) bool { return syscall.Kill(pid, 0) == nil }

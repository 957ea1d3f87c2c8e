// Package jail puts processes into a sandbox of Linux namespaces. It is the
// code that runs inside the new namespaces, in two stages:
//
//	driver ──clone(user, mount, pid, net, ipc, uts, cgroup)──▶ jail-init ──exec──▶ sandboxd supervise
//	sandboxd ──clone(user, mount, pid)──▶ jail-agent ──fork──▶ the agent's argv
//
// [Init] is the outer stage: process 1 of the sandbox. It builds a root file
// system of its own from read-only parts of the host, leaves the host's behind,
// brings the loopback up and becomes `sandboxd supervise`.
//
// [Agent] is the inner stage. The agent is not sandboxd's equal: it lives in a
// nested user, mount and pid namespace in which sandboxd's sockets, spool and
// processes don't exist, without capabilities, without a way to new ones, and
// under Landlock and seccomp. The stage itself stays as process 1 of that
// namespace, under the same restrictions, to reap orphans and to forward
// signals, so that an agent needs not be written to be an init.
//
// Whatever cannot be had fails the start; nothing is left out silently. The
// exit codes [ExitSetup] and [ExitExec] tell that from the agent's own end.
//
// Linux 5.13 or newer is needed (Landlock, mount_setattr).
package jail

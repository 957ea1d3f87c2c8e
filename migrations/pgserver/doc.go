// Package pgserver runs one PostgreSQL server from the programs installed on
// this machine, for `holdfast dev` and for tests. No download, no container, no
// port: the server listens on a unix socket only.
//
// # States
//
//	          Start                    exits by itself
//	(folder) ───────▶ running ────────────────────────────▶ exited, Err() ≠ nil
//	                     │ Stop                                  │ Stop
//	                     ▼                                       ▼
//	                 stopping ──▶ stopped, Err() = nil       released
//	                 SIGINT, then SIGQUIT, then SIGKILL
//
// # How nothing is left behind
//
// The server is our direct child and dies with the thread that started it
// (PR_SET_PDEATHSIG, SIGQUIT: an immediate shutdown), which therefore is locked
// to one goroutine for the server's whole life. So a SIGKILL of this process
// takes the server with it. It is in a process group of its own, so that a
// Ctrl-C at the terminal reaches only us and the shutdown stays orderly.
//
// The folder is held by flock for as long as this process uses it; the kernel
// lets go of it however the process ends. A server that is still shutting down
// when the next Start comes is waited for; a postmaster.pid that names nobody
// (or a process that is no server of this folder) is removed.
//
// # As root
//
// PostgreSQL refuses to run as root. Then it runs as the owner of existing
// data, else as the user postgres, else nobody (initdb needs a user that the
// passwd file knows). The server reaches its folder through an inherited
// descriptor, /proc/self/fd/3, so the folders above may be closed to that user,
// as /root is.
//
// # The folder
//
//	data/   the cluster
//	run/    the socket; a link to a short folder elsewhere when the path would
//	        exceed what a socket address holds (107 bytes), or when the server's
//	        user could not reach it
//	lock    flock, with the holder's process id
package pgserver

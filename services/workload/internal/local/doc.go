// Package local runs sandboxes as processes of this host: the driver of
// `holdfast dev` and of small installations. Linux only.
//
// # Isolation
//
// With isolation "namespaces" each sandbox is a sandboxd in user, mount, pid,
// network, ipc, uts and cgroup namespaces of its own, with a root file system made of
// read-only parts of the host, no network but its loopback, and an agent that
// sandboxd confines further (see services/sandboxd/internal/jail). As root every
// sandbox has an unprivileged uid that no other has; as an ordinary user it is
// the user's own. What can't be had is refused, with the way out. With "none"
// sandboxd and the agent are plain processes with the rights of this one.
//
// # On disk
//
//	<DataDir>/local/
//	  lock                          held while a driver runs
//	  bin/sandboxd                  the copy that sandboxes run
//	  sandboxes/<sandboxUid>/       one sandbox, warm or a session's
//	    record.json                 what it is; replaced by rename, synced
//	    spool/                      sandboxd's, of the current incarnation
//	    workspace/                  of a warm sandbox, or without a volume
//	  sessions/<tenant>/<session>/
//	    intent                      the newest released intent
//	    workspace/                  the session's volume
//	    outgrown                    there if that is, or was, beyond its limit
//
// A warm sandbox is handed out only after its record names the session, so a
// crash at any point leaves it unbound or the session's, never both. Its
// workspace is then renamed into the session's place; the bind mount inside
// follows. The owner of a workspace is the uid of its session's sandboxes.
//
// # Death
//
// Nothing outlives the driver: sandboxd dies with its parent (a death signal in
// namespaces, the end of its control channel without) and the kernel ends a pid
// namespace with its first process. The next driver takes what it finds on disk:
// it ends processes that are still there (known by pid, start time and boot),
// removes their control groups and sockets, removes warm sandboxes, and keeps
// the running ones' records as lost.
package local

package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// stopwatch times the layers of a start.
type stopwatch struct {
	last   time.Time
	layers []driver.Layer
}

func startWatch() *stopwatch { return &stopwatch{last: time.Now()} }

func (w *stopwatch) lap(name string) {
	now := time.Now()
	w.layers = append(w.layers, driver.Layer{Name: name, Took: now.Sub(w.last)})
	w.last = now
}

// start starts a new incarnation of r, whose workspace exists, and returns it
// with the record that describes it, which it has saved. On failure nothing of
// the incarnation is left.
func (d *Driver) start(ctx context.Context, r record, spec driver.RuntimeSpec, watch *stopwatch) (p *process, _ record, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.StartTimeout)
	defer cancel()
	program, err := d.code(spec)
	if err != nil {
		return nil, r, err
	}
	spec.Limits = overlay(spec.Limits, d.cfg.Limits)
	r.PodUID = newUID()
	r.Socket = filepath.Join(d.runDir, shortHash(r.PodUID)+".sock")
	if err := d.admitToDisk(); err != nil {
		return nil, r, err
	}
	if err := remakeOwned(d.paths.spool(r.SandboxUID), r.UID); err != nil {
		return nil, r, fmt.Errorf("%w: spool: %w", driver.ErrStart, err)
	}
	if r.Cgroups, err = d.cgroups.create(r.PodUID, spec.Limits); err != nil {
		return nil, r, errors.Join(fmt.Errorf("%w: %w", driver.ErrStart, err), removeGroups(r.Cgroups))
	}
	p, err = d.spawn(ctx, r, spec, program.mounts)
	if err != nil {
		return nil, r, errors.Join(fmt.Errorf("%w: %w", driver.ErrStart, err), removeGroups(r.Cgroups))
	}
	watch.lap("spawn")
	r.Process = &p.id
	if err = d.paths.save(r); err == nil {
		err = p.boot(ctx, d.bootMessage(r, spec, program, p.disk.limit.bytes))
	}
	if err != nil {
		return nil, r, errors.Join(err, p.stop(0))
	}
	watch.lap("boot")
	return p, r, nil
}

// spawn starts sandboxd for r; it waits for its boot message.
func (d *Driver) spawn(ctx context.Context, r record, spec driver.RuntimeSpec, code []sandboxapi.JailMount) (*process, error) {
	disk, err := d.limitDisk(ctx, r, spec.Limits)
	if err != nil {
		return nil, err
	}
	control, files, err := channels(r.Socket)
	if err != nil {
		return nil, err
	}
	defer closeAll(files)
	log := d.cfg.Log.With("sandbox", r.SandboxUID, "pod", r.PodUID)
	p := &process{
		podUID: r.PodUID, groups: r.Cgroups, socket: r.Socket, plain: d.plain(), log: log, granter: d.cfg.Granter,
		control: control, stderr: newTail(log), booted: make(chan struct{}), exited: make(chan struct{}),
		disk: diskAccount{limit: disk},
	}
	var opened []*os.File
	if d.plain() {
		p.cmd = plainCommand(d.binary, files)
	} else if p.cmd, opened, err = jailCommand(d.binary, r.UID, d.gid(r), d.jailSpec(r, spec, code), files); err != nil {
		return nil, errors.Join(err, control.Close(), os.Remove(r.Socket))
	}
	defer closeAll(opened)
	p.cmd.Stderr = p.stderr
	// A process that got hold of stderr must not keep us from seeing the end.
	p.cmd.WaitDelay = time.Second
	if err := d.spawner.start(p.cmd); err != nil {
		return nil, errors.Join(err, control.Close(), os.Remove(r.Socket))
	}
	p.watch()
	id, err := identify(p.cmd.Process.Pid, d.boot)
	if err == nil {
		p.id = *id
		err = addProcess(r.Cgroups, p.id.PID)
	}
	if err != nil {
		return nil, errors.Join(err, p.stop(0))
	}
	return p, nil
}

// gid is the host's group of a sandbox.
func (d *Driver) gid(r record) int {
	if os.Getuid() == 0 {
		return r.UID
	}
	return os.Getgid()
}

// jailSpec says what the sandbox's file system is made of.
func (d *Driver) jailSpec(r record, spec driver.RuntimeSpec, code []sandboxapi.JailMount) sandboxapi.JailSpec {
	mounts := append(make([]sandboxapi.JailMount, 0, 4+len(d.cfg.SharePaths)),
		sandboxapi.JailMount{Source: d.binary, Target: sandboxapi.JailBinary, ReadOnly: true, File: true},
		sandboxapi.JailMount{Source: d.paths.spool(r.SandboxUID), Target: sandboxapi.JailSpool},
		sandboxapi.JailMount{Source: filepath.Dir(d.cfg.AgentSocket), Target: sandboxapi.JailUpstream, ReadOnly: true},
	)
	mounts = append(mounts, runscMount(d.runsc)...)
	for _, p := range d.cfg.SharePaths {
		mounts = append(mounts, sandboxapi.JailMount{Source: p, Target: p, ReadOnly: true})
	}
	mounts = append(mounts, code...)
	mounts = append(mounts, sandboxapi.JailMount{Source: d.paths.workspace(r), Target: spec.WorkspacePath})
	return sandboxapi.JailSpec{Hostname: "sandbox", TmpBytes: tmpBytes(d.cfg.TmpBytes, spec.Limits.MemoryBytes), Mounts: mounts}
}

// bootMessage tells sandboxd what it is, in terms of what it sees; maxFile bounds
// each file that the agent writes.
func (d *Driver) bootMessage(r record, spec driver.RuntimeSpec, program code, maxFile int64) sandboxapi.Boot {
	b := sandboxapi.Boot{
		PodUID:    r.PodUID,
		Isolation: d.cfg.Isolation,
		Upstream:  "unix:" + filepath.Join(sandboxapi.JailUpstream, filepath.Base(d.cfg.AgentSocket)),
		Workspace: spec.WorkspacePath,
		SpoolDir:  sandboxapi.JailSpool,
		RelayAddr: "127.0.0.1:7777",
	}
	port := spec.Port
	if d.plain() {
		b.Upstream, b.Workspace, b.SpoolDir = "unix:"+d.cfg.AgentSocket, d.paths.workspace(r), d.paths.spool(r.SandboxUID)
		b.RelayAddr, port = "127.0.0.1:0", 0
	}
	if len(program.argv) == 0 {
		return b
	}
	b.Agent = &sandboxapi.AgentProcess{
		Argv: program.argv, Env: agentEnv(program.env, b.Workspace), Adapter: spec.Adapter,
		Port: port, ReadyPath: spec.ReadyPath, RunPath: spec.RunPath, MaxFileBytes: maxFile,
	}
	b.Agent.Serves = spec.Port != 0
	if d.cgroups == nil {
		b.Agent.MaxMemoryBytes, b.Agent.MaxProcs = spec.Limits.MemoryBytes, spec.Limits.Pids
	}
	return b
}

// agentEnv completes a runtime's environment with what programs rely on.
func agentEnv(env []string, home string) []string {
	defaults := []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + home, "LANG=C.UTF-8"}
	out := slices.Clone(env)
	for _, kv := range defaults {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, name+"=") }) {
			out = append(out, kv)
		}
	}
	return out
}

// isolationError words why a sandbox can't be started here at all.
func isolationError(err error, said string) *driver.IsolationError {
	missing := err.Error()
	if said != "" {
		missing = said
	}
	wayOut := "run with --isolation=none to start agents as plain processes, with all the rights of this user"
	switch {
	case errors.Is(err, unix.ENOSPC):
		missing = "user namespaces are used up or switched off"
		wayOut = "raise them (sysctl user.max_user_namespaces=65536), or " + wayOut
	case errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES):
		missing = "this user may not make user namespaces"
		wayOut = "allow them (sysctl kernel.unprivileged_userns_clone=1 or kernel.apparmor_restrict_unprivileged_userns=0), or " + wayOut
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS):
		missing = "the kernel has no user namespaces"
	}
	return &driver.IsolationError{Missing: missing, WayOut: wayOut}
}

// Report says what a host can do for sandboxes.
type Report struct {
	// Isolation is the best grade that can be had: "namespaces" or "none".
	Isolation string
	// Missing and WayOut say why it isn't "namespaces", and what to do.
	Missing, WayOut string
	// Limits is how they are enforced: "cgroup v2", "cgroup v1" or "rlimits".
	Limits string
	// OwnUIDs says that each sandbox has a uid of its own (as root).
	OwnUIDs bool
	// GVisor is the runsc in the PATH; empty where there is none. Where it doesn't run in
	// a sandbox, GVisorMissing and GVisorWayOut say why, and what to do. It is looked for
	// only where Isolation is "namespaces", within which gVisor runs.
	GVisor, GVisorMissing, GVisorWayOut string
}

// Probe finds out what this host can do by trying it: it starts a sandbox down
// to a confined process that does nothing. sandboxd is the binary to use.
func Probe(ctx context.Context, sandboxd string) Report {
	report := Report{Isolation: sandboxapi.IsolationNone, Limits: limitsRlimits, OwnUIDs: os.Getuid() == 0}
	if c := openCgroups("holdfast-probe"); c != nil {
		report.Limits = c.kind
		c.close()
	}
	if err := probeNamespaces(ctx, sandboxd, "", probeUID); err != nil {
		report.Missing, report.WayOut = err.Missing, err.WayOut
		return report
	}
	report.Isolation = sandboxapi.IsolationNamespaces
	runsc, err := findRunsc("")
	if err != nil {
		return report
	}
	report.GVisor = runsc
	if err := probeNamespaces(ctx, sandboxd, runsc, probeUID); err != nil {
		report.GVisorMissing, report.GVisorWayOut = err.Missing, gvisorWayOut(runsc)
	}
	return report
}

// probeTimeout bounds the probe, which takes some 50 ms, and probeUID is the user that
// it runs as where nobody says.
const (
	probeTimeout = 10 * time.Second
	probeUID     = 0x70000000
)

// probeNamespaces proves that a sandbox can be had here, with gVisor where runsc is
// named. uid is used as root.
func probeNamespaces(ctx context.Context, sandboxd, runsc string, uid int) *driver.IsolationError {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	gid := uid
	if os.Getuid() != 0 {
		uid, gid = os.Getuid(), os.Getgid()
	}
	spec := sandboxapi.JailSpec{
		Hostname: "probe", TmpBytes: 1 << 20, Probe: true, Isolation: sandboxapi.IsolationNamespaces,
		Mounts: append(runscMount(runsc), sandboxapi.JailMount{Source: sandboxd, Target: sandboxapi.JailBinary, ReadOnly: true, File: true}),
	}
	if runsc != "" {
		spec.Isolation = sandboxapi.IsolationGVisor
	}
	made, opened, err := jailCommand(sandboxd, uid, gid, spec, nil)
	if err != nil {
		return isolationError(err, err.Error())
	}
	defer closeAll(opened)
	var said strings.Builder
	cmd := exec.CommandContext(ctx, made.Path)
	cmd.Args, cmd.Env, cmd.Dir, cmd.ExtraFiles, cmd.SysProcAttr = made.Args, made.Env, made.Dir, made.ExtraFiles, made.SysProcAttr
	// The parent's thread may end before the probe does.
	cmd.SysProcAttr.Pdeathsig = 0
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return isolationError(err, strings.TrimSpace(said.String()))
	}
	return nil
}

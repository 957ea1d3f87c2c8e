package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/holdfast-io/holdfast/services/internal/dirlock"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Driver runs sandboxes on this host. It implements driver.Driver.
type Driver struct {
	cfg     Config
	paths   layout
	binary  string // what sandboxes run
	runsc   string // gVisor, where the isolation is its
	runDir  string // for sockets
	boot    string // id of this boot of the host
	lock    *os.File
	cgroups *cgroups // nil: rlimits
	spawner *spawner
	quotas  *quotas // nil: workspaces are measured
	events  *driver.Queue
	locks   driver.Locks

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup // pool and watchers
	refill chan struct{}
	closed sync.Once
	ended  error // of Close

	// mu guards what follows, and the fields of every *sandbox. It is never held
	// during I/O.
	mu        sync.Mutex
	sandboxes map[driver.Ref]*sandbox
	warm      map[string]*sandbox // by SandboxUID
	pools     map[string]pool     // by runtime name
	uids      map[int]bool        // in use as root
}

// sandbox is a record with its running incarnation.
type sandbox struct {
	record
	proc *process // nil unless running or warm
	path driver.Path
	// For warm ones: the revision that runs, and whether its entrypoint answers.
	spec  driver.RuntimeSpec
	ready bool
}

var _ driver.Driver = (*Driver)(nil)

// New opens the driver's data, cleans up after a driver that crashed, and
// starts. It is driver.ErrInUse while another driver has the data, and
// driver.ErrIsolationUnavailable where the isolation can't be had.
func New(ctx context.Context, cfg Config) (*Driver, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Driver{
		cfg: cfg, paths: layout{filepath.Join(cfg.DataDir, "local")}, refill: make(chan struct{}, 1),
		sandboxes: map[driver.Ref]*sandbox{}, warm: map[string]*sandbox{}, pools: map[string]pool{}, uids: map[int]bool{},
	}
	for _, dir := range []string{d.paths.sandboxes(), d.paths.sessions()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("local driver: %w", err)
		}
	}
	if d.lock, err = lockFile(d.paths.lock()); err != nil {
		return nil, err
	}
	if err := d.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("local driver: %w", err), d.lock.Close())
	}
	return d, nil
}

// open does what needs the lock.
func (d *Driver) open(ctx context.Context) (err error) {
	if d.boot, err = bootID(); err != nil {
		return err
	}
	if d.runDir, err = runtimeDir(d.paths.root); err != nil {
		return err
	}
	if d.binary, err = installBinary(d.cfg.SandboxdPath, d.paths.bin()); err != nil {
		return fmt.Errorf("install sandboxd: %w", err)
	}
	// Sandboxes mount the directory; the gateway may come later.
	if err := os.MkdirAll(filepath.Dir(d.cfg.AgentSocket), 0o711); err != nil { //nolint:gosec // other uids pass through it
		return err
	}
	if d.cfg.Isolation == sandboxapi.IsolationGVisor {
		if d.runsc, err = findRunsc(d.cfg.RunscPath); err != nil {
			return err
		}
	}
	if !d.plain() {
		if err := probeNamespaces(ctx, d.binary, d.runsc, d.cfg.UIDBase); err != nil {
			if d.runsc != "" {
				err.WayOut = gvisorWayOut(d.runsc)
			}
			return err
		}
	}
	d.cgroups = openCgroups("holdfast-" + shortHash(d.paths.root))
	lost, err := d.recover()
	if err != nil {
		return err
	}
	d.quotas = openQuotas(d.paths.root, d.cfg.UIDBase-1)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.spawner = newSpawner()
	d.events = driver.NewQueue()
	for _, e := range lost {
		d.events.Put(e)
	}
	d.tasks.Go(d.keepPools)
	d.tasks.Go(d.watchDisk)
	d.cfg.Log.Info("local driver started", "isolation", d.cfg.Isolation, "limits", d.Limits(), "quotas", d.quotas != nil, "lost", len(lost))
	return nil
}

// lockFile takes the lock of a data directory for this process's life.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("local driver: %w", err)
	}
	err = dirlock.Lock(f)
	if errors.Is(err, dirlock.ErrHeld) {
		return nil, errors.Join(fmt.Errorf("local driver: %w: %s", driver.ErrInUse, path), f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("local driver: %w", err), f.Close())
	}
	return f, nil
}

// Close ends every sandbox and the driver. Sandboxes of sessions are found as
// lost by the next driver; their volumes stay.
func (d *Driver) Close() error {
	d.closed.Do(func() {
		d.cancel()
		// New operations fail at their lock; those under way hold theirs until done.
		d.locks.Drain()
		d.tasks.Wait()
		d.ended = d.endAll("the driver was closed")
		d.spawner.close()
		d.events.Close()
		d.cgroups.close()
		d.ended = errors.Join(d.ended, d.quotas.close())
		// Empty by now; one outside of the data would be left for ever.
		if err := os.Remove(d.runDir); err != nil && !errors.Is(err, os.ErrNotExist) {
			d.ended = errors.Join(d.ended, fmt.Errorf("local driver: %w", err))
		}
		d.ended = errors.Join(d.ended, d.lock.Close())
	})
	return d.ended
}

// endAll stops every process, and records the loss of those that sessions have.
func (d *Driver) endAll(cause string) error {
	d.mu.Lock()
	all := make([]*sandbox, 0, len(d.sandboxes)+len(d.warm))
	for _, sb := range d.sandboxes {
		all = append(all, sb)
	}
	for _, sb := range d.warm {
		all = append(all, sb)
	}
	d.mu.Unlock()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, sb := range all {
		wg.Go(func() { errs[i] = d.end(sb, cause) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// end is endAll for one sandbox.
func (d *Driver) end(sb *sandbox, cause string) error {
	r, p := d.peek(sb)
	if p == nil {
		return nil
	}
	if r.State == stateWarm {
		return d.removeWarm(sb)
	}
	err := p.stop(d.cfg.StopGrace)
	return errors.Join(err, d.update(sb, nil, func(r *record) { r.State, r.Cause = driver.StateLost, cause }))
}

// Isolation is the grade in force.
func (d *Driver) Isolation() string { return d.cfg.Isolation }

// Limits says how limits are enforced: "cgroup v2", "cgroup v1" or "rlimits".
func (d *Driver) Limits() string {
	if d.cgroups == nil {
		return limitsRlimits
	}
	return d.cgroups.kind
}

// Events tells of sandboxes that ended by themselves or with an earlier driver.
func (d *Driver) Events() <-chan driver.Event { return d.events.Out() }

// List returns every sandbox that a session has, in the order of their names.
func (d *Driver) List(context.Context) ([]driver.Found, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	found := make([]driver.Found, 0, len(d.sandboxes))
	for _, sb := range d.sandboxes {
		found = append(found, driver.Found{
			Ref: sb.Ref, SandboxUID: sb.SandboxUID, PodUID: sb.PodUID, Intent: sb.Intent, Epoch: sb.Epoch, State: sb.State, Cause: sb.Cause,
			Since: sb.Since,
		})
	}
	slices.SortFunc(found, func(a, b driver.Found) int { return a.Compare(b.Ref) })
	return found, nil
}

// Locate says where a running sandbox is reached.
func (d *Driver) Locate(_ context.Context, ref driver.Ref) (driver.Endpoint, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	sb, ok := d.sandboxes[ref]
	if !ok {
		return driver.Endpoint{}, fmt.Errorf("session %s, generation %d: %w", ref.Session, ref.Generation, driver.ErrNotFound)
	}
	if sb.State != driver.StateRunning {
		return driver.Endpoint{}, fmt.Errorf("session %s, generation %d: %w: %s", ref.Session, ref.Generation, driver.ErrNotRunning, sb.State)
	}
	return driver.Endpoint{URL: "unix:" + sb.Socket, PodUID: sb.PodUID}, nil
}

// Bind hands the signed bind to the sandbox.
func (d *Driver) Bind(ctx context.Context, ref driver.Ref, bind string) (sandboxapi.Health, error) {
	ep, err := d.Locate(ctx, ref)
	if err != nil {
		return sandboxapi.Health{}, err
	}
	return driver.Bind(ctx, ep.URL, bind)
}

// Ready waits until the sandbox's entrypoint answers.
func (d *Driver) Ready(ctx context.Context, ref driver.Ref, bound sandboxapi.Health) (sandboxapi.Health, error) {
	ep, err := d.Locate(ctx, ref)
	if err != nil {
		return sandboxapi.Health{}, err
	}
	return driver.Ready(ctx, ep.URL, bound)
}

// plain says that sandboxes aren't isolated.
func (d *Driver) plain() bool { return d.cfg.Isolation == sandboxapi.IsolationNone }

// peek returns a consistent copy of a sandbox's record, and its process.
func (d *Driver) peek(sb *sandbox) (record, *process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return sb.record, sb.proc
}

// update changes a sandbox's record, on disk first, and sets its process. The
// caller holds the session's lock.
func (d *Driver) update(sb *sandbox, proc *process, change func(*record)) error {
	r, _ := d.peek(sb)
	change(&r)
	if proc == nil {
		r.Process, r.Cgroups, r.Socket = nil, nil, ""
	}
	if err := d.paths.save(r); err != nil {
		return fmt.Errorf("sandbox %s: %w", r.SandboxUID, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	sb.record, sb.proc = r, proc
	return nil
}

// newUID returns an identity that is never used again.
func newUID() string { return uuid.NewString() }

// shortHash is a name for s of 16 characters.
func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

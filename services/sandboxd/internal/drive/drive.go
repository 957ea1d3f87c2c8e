// Package drive runs the turns of an agent that lives beside sandboxd: it hands it
// the input in the way of its adapter ([Called], [Exec], [Push]), holds what it says to
// the protocol, and spools it. A run belongs to nobody who watches; it ends by its own
// terminal event, by a cancel, or by a fault that sandboxd then reports in the agent's
// place:
//
//	            ┌─ terminal event of the agent ────────────▶ success | interrupt | cancelled | error
//	started ──▶ ├─ Cancel: the agent is told, grace ───────▶ cancelled (RUN_FINISHED made here)
//	            └─ died, broke off, broke the protocol,
//	               too large, never ready, sandbox stops ──▶ error (RUN_ERROR made here)
//
// Whatever the way, the spool's events are a well-formed AG-UI run.
package drive

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/spool"
)

var (
	// ErrBusy refuses a run while another is open.
	ErrBusy = errors.New("another run is open")
	// ErrInvalid refuses a request that makes no sense.
	ErrInvalid = errors.New("invalid run")
	// ErrUnknown says that there was never such a run here.
	ErrUnknown = errors.New("unknown run")
	// ErrGone says that a run is over and its spool is kept no longer, or could not
	// be written to its end.
	ErrGone = errors.New("the spool is gone")
	// ErrStopping refuses runs when the sandbox is about to end.
	ErrStopping = errors.New("the sandbox is stopping")
)

// errCancelled is the cause by which Cancel ends the conversation.
var errCancelled = errors.New("the run was cancelled")

// runID is what may name a run, and so a file.
var runID = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// keptSpools is how many spools of finished runs stay readable. A run starts
// only after the one before was recorded, so that even one would do.
const keptSpools = 8

// Agent is an adapter: a way to have a run done.
type Agent interface {
	// Converse hands the turn's input over and has the turn say what comes back. It
	// returns when [Turn.Say] has said that the turn is over, or with why it isn't: a
	// fault, or an error that becomes one. When ctx ends it has the agent stop, and
	// returns once that is done or has been waited for long enough.
	Converse(ctx context.Context, t *Turn) error
}

// Config says how to drive. All fields but Log are required.
type Config struct {
	// Dir holds the spools; it must exist.
	Dir string
	// Agent does the runs.
	Agent Agent
	// MaxEvent and MaxSpool bound one event and all of a run, in bytes.
	MaxEvent int
	MaxSpool int64
	// Log tells of runs that end in a fault.
	Log *slog.Logger
}

// Bounds of production, for [Config].
const (
	DefaultMaxEvent = 16 << 20
	DefaultMaxSpool = 64 << 20
)

// Driver drives one run at a time. It is safe for concurrent use.
type Driver struct {
	cfg  Config
	ctx  context.Context
	stop context.CancelCauseFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	spools   map[string]*spool.Spool
	finished []string // oldest first
	open     *Turn
	stopped  bool
}

// New makes a driver and takes up the spools that an earlier sandboxd of this
// sandbox left. A run that was open then is over: its agent died with it.
func New(cfg Config) (*Driver, error) {
	d := &Driver{cfg: cfg, spools: make(map[string]*spool.Spool)}
	d.ctx, d.stop = context.WithCancelCause(context.Background())
	paths, err := filepath.Glob(filepath.Join(cfg.Dir, "*"+spoolSuffix))
	if err != nil {
		return nil, fmt.Errorf("look for spools: %w", err)
	}
	for _, path := range paths {
		s, err := spool.Open(path)
		if err != nil {
			return nil, err
		}
		if !s.Ended() {
			f := faultf(codeLost, "the sandbox ended before the run did")
			if _, err := s.Finish(agui.OutcomeError, f.Error(), agui.RunError(f.code, f.reason)); err != nil {
				// Its readers get ErrGone, which is an end too.
				cfg.Log.Error("end of a lost run not spooled", "path", path, "err", errors.Join(err, s.Close()))
			}
		}
		id := filepath.Base(path)
		id = id[:len(id)-len(spoolSuffix)]
		d.spools[id] = s
		d.finished = append(d.finished, id)
	}
	return d, nil
}

const (
	// spoolSuffix is a spool's file, goneSuffix what stays of one that isn't kept.
	spoolSuffix = ".ndjson"
	goneSuffix  = ".gone"
)

// Start starts a run. started is false when the run is known already. It fails
// with [ErrInvalid], [ErrBusy] or [ErrStopping].
func (d *Driver) Start(req sandboxapi.RunRequest) (started bool, err error) {
	input, err := check(req)
	if err != nil {
		return false, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known, err := d.known(req.RunID)
	switch {
	case err != nil || known:
		return false, err
	case d.stopped:
		return false, ErrStopping
	case d.open != nil:
		return false, fmt.Errorf("%w: %s", ErrBusy, d.open.ID)
	}
	s, err := spool.Create(d.path(req.RunID, spoolSuffix))
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithCancelCause(d.ctx)
	t := newTurn(req, input, s, d.cfg.MaxEvent, d.cfg.MaxSpool)
	t.cancel = cancel
	d.spools[t.ID], d.open = s, t
	d.wg.Go(func() {
		defer cancel(nil)
		err := d.cfg.Agent.Converse(ctx, t)
		d.finish(t, t.close(err), context.Cause(ctx))
	})
	return true, nil
}

// check reads what the request must agree on with itself.
func check(req sandboxapi.RunRequest) (agui.RunInput, error) {
	var input agui.RunInput
	if !runID.MatchString(req.RunID) {
		return input, fmt.Errorf("%w: runId %.64q: want %s", ErrInvalid, req.RunID, runID)
	}
	if err := json.Unmarshal(req.Input, &input); err != nil {
		return input, fmt.Errorf("%w: input: %w", ErrInvalid, err)
	}
	if input.RunID != req.RunID || input.ThreadID == "" {
		return input, fmt.Errorf("%w: input needs a threadId and the same runId", ErrInvalid)
	}
	return input, nil
}

func (d *Driver) path(id, suffix string) string { return filepath.Join(d.cfg.Dir, id+suffix) }

// known says whether a run was ever started here.
func (d *Driver) known(id string) (bool, error) {
	if d.spools[id] != nil {
		return true, nil
	}
	_, err := os.Stat(d.path(id, goneSuffix))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Cancel has the agent stop; the run ends within the adapter's grace.
// It changes nothing on a run that is over. It fails with [ErrUnknown].
func (d *Driver) Cancel(id string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open != nil && d.open.ID == id {
		d.open.cancel(errCancelled)
		return nil
	}
	switch known, err := d.known(id); {
	case err != nil:
		return err
	case !known:
		return ErrUnknown
	}
	return nil
}

// Spool finds a run's spool. It fails with [ErrUnknown] or [ErrGone].
func (d *Driver) Spool(id string) (*spool.Spool, error) {
	if !runID.MatchString(id) {
		return nil, ErrUnknown
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.spools[id]; s != nil {
		// Whoever waited for its end would wait for ever.
		if err := s.Broken(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrGone, err)
		}
		return s, nil
	}
	switch known, err := d.known(id); {
	case err != nil:
		return nil, err
	case known:
		return nil, ErrGone
	}
	return nil, ErrUnknown
}

// OpenRun names the run that is being driven, or is empty.
func (d *Driver) OpenRun() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open == nil {
		return ""
	}
	return d.open.ID
}

// Stop ends the open run with an error and refuses others. It may be called again.
func (d *Driver) Stop() {
	d.mu.Lock()
	d.stopped = true
	d.mu.Unlock()
	d.stop(ErrStopping)
	d.wg.Wait()
}

// retire lets go of the oldest spools. Their ids stay known by an empty file.
func (d *Driver) retire(id string) error {
	d.finished = append(d.finished, id)
	for len(d.finished) > keptSpools {
		old := d.finished[0]
		d.finished = d.finished[1:]
		delete(d.spools, old)
		if err := os.WriteFile(d.path(old, goneSuffix), nil, 0o600); err != nil {
			return fmt.Errorf("retire spool: %w", err)
		}
		if err := os.Remove(d.path(old, spoolSuffix)); err != nil {
			return fmt.Errorf("retire spool: %w", err)
		}
	}
	return nil
}

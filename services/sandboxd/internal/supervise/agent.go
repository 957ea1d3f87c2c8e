package supervise

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/services/sandboxd/internal/drive"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/entrypoint"
)

// The adapters; see docs/agents.md.
const (
	AdapterAGUI = "agui"
	AdapterExec = "exec"
	AdapterPush = "push"
	AdapterNone = "none"
)

// DefaultRunPath is where an agent of agui takes its input unless it says otherwise.
const DefaultRunPath = "/run"

const (
	// readyWait is how long a run waits for its agent, and for it to fetch the input.
	readyWait = 30 * time.Second
	// cancelGrace is left to an agent that was told that its run is cancelled.
	cancelGrace = 500 * time.Millisecond
)

// Agent says how a sandbox's agent works.
type Agent struct {
	// Adapter is the runtime's; RunPath is of agui, and may be empty.
	Adapter, RunPath string
	// Exec does the runs of the adapter exec, which has no entrypoint.
	Exec drive.Agent
	// Entry makes the entrypoint, which starts or is watched from then on. asks is how an
	// agent that serves nothing says that it is ready, else nil. Entry is nil where there is
	// no entrypoint.
	Entry func(asks Answers) Entrypoint
	// Serves says that an agent of push has a port to be ready on.
	Serves bool
}

// Answers waits until an agent is ready; false means that the context ended first.
type Answers = func(context.Context) bool

// Entrypoint is the agent's process, through all its lives.
type Entrypoint interface {
	// Status tells the state, and gives a channel that is closed at its next change.
	Status() (entrypoint.Status, <-chan struct{})
	// WaitReady waits for an incarnation that answers. It fails with entrypoint.ErrFailed,
	// entrypoint.ErrStopped or the context's cause.
	WaitReady(ctx context.Context) (*entrypoint.Incarnation, error)
	// Stop ends it, within the grace where it is ours to end.
	Stop(grace time.Duration) error
}

// startAgent starts what the adapter needs: the agent's process, but for exec, and what
// drives it, but for none. push is set for an agent that calls us.
func (s *Sandbox) startAgent(a Agent) (push *drive.Push, err error) {
	var runs drive.Agent
	switch a.Adapter {
	case AdapterAGUI:
		path := a.RunPath
		if path == "" {
			path = DefaultRunPath
		}
		runs = drive.Called{
			WaitReady: s.target, ReadyWait: readyWait, RunPath: path, CancelGrace: cancelGrace, MaxEvent: drive.DefaultMaxEvent,
		}
	case AdapterExec:
		runs = a.Exec
	case AdapterPush:
		push = drive.NewPush(drive.PushConfig{WaitReady: s.target, ReadyWait: readyWait, CancelGrace: cancelGrace})
		runs = push
	case AdapterNone:
	default:
		return nil, fmt.Errorf("unknown adapter %.64q", a.Adapter)
	}
	if runs != nil {
		s.runs, err = drive.New(drive.Config{
			Dir: s.cfg.SpoolDir, Agent: runs, MaxEvent: drive.DefaultMaxEvent, MaxSpool: drive.DefaultMaxSpool, Log: s.cfg.Log,
		})
		if err != nil {
			return nil, err
		}
	}
	if a.Entry != nil {
		var asks Answers
		if push != nil && !a.Serves {
			asks = push.AwaitAgent
		}
		s.entry = a.Entry(asks)
	}
	return push, nil
}

// target gives the driver an agent that answers.
func (s *Sandbox) target(ctx context.Context) (drive.Target, error) {
	inc, err := s.entry.WaitReady(ctx)
	if err != nil {
		return drive.Target{}, err
	}
	return drive.Target{URL: inc.URL, Done: inc.Done, Exit: inc.Exit}, nil
}

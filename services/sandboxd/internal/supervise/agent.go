package supervise

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/drive"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/entrypoint"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/jail"
)

// The adapters; see docs/agents.md.
const (
	adapterAGUI = "agui"
	adapterExec = "exec"
	adapterPush = "push"
	adapterNone = "none"
)

const (
	// defaultRunPath is where an agent of agui takes its input unless it says otherwise.
	defaultRunPath = "/run"
	// readyWait is how long a run waits for its agent, and for it to fetch the input.
	readyWait = 30 * time.Second
	// cancelGrace is left to an agent that was told that its run is cancelled.
	cancelGrace = 500 * time.Millisecond
)

// startAgent starts what the runtime's adapter needs: the agent's process, but for exec,
// and what drives it, but for none. push is set for an agent that calls us.
func (s *sandbox) startAgent(boot *sandboxapi.Boot, agentURL string) (push *drive.Push, err error) {
	agent := boot.Agent
	if len(agent.Argv) == 0 {
		return nil, errors.New("boot: an agent without a command")
	}
	var runs drive.Agent
	switch agent.Adapter {
	case adapterAGUI:
		path := agent.RunPath
		if path == "" {
			path = defaultRunPath
		}
		runs = drive.Called{
			WaitReady: s.target, ReadyWait: readyWait, RunPath: path, CancelGrace: cancelGrace, MaxEvent: drive.DefaultMaxEvent,
		}
	case adapterExec:
		runs = drive.Exec{
			Command: func(env []string) *exec.Cmd {
				return command(boot, slices.Concat(agent.Env, []string{sandboxapi.EnvAgentURL + "=" + agentURL}, env))
			},
			Reaper: s.reaper, Grace: drive.DefaultGrace, MaxEvent: drive.DefaultMaxEvent,
		}
	case adapterPush:
		push = drive.NewPush(drive.PushConfig{WaitReady: s.target, ReadyWait: readyWait, CancelGrace: cancelGrace})
		runs = push
	case adapterNone:
	default:
		return nil, fmt.Errorf("boot: unknown adapter %.64q", agent.Adapter)
	}
	if runs != nil {
		s.runs, err = drive.New(drive.Config{
			Dir: boot.SpoolDir, Agent: runs, MaxEvent: drive.DefaultMaxEvent, MaxSpool: drive.DefaultMaxSpool, Log: s.log,
		})
		if err != nil {
			return nil, err
		}
	}
	if agent.Adapter == adapterExec {
		return nil, nil
	}
	cfg := entrypoint.Config{
		Process:  *agent,
		Host:     "127.0.0.1",
		AgentURL: agentURL,
		Command:  func(env []string) *exec.Cmd { return command(boot, env) },
		Reaper:   s.reaper,
		Log:      s.log,
	}
	if push != nil && !agent.Serves {
		cfg.Answers = push.AwaitAgent
	}
	s.entry = entrypoint.Start(cfg)
	return push, nil
}

// command puts one incarnation of the agent into its jail.
func command(boot *sandboxapi.Boot, env []string) *exec.Cmd {
	return jail.AgentCommand(jail.AgentSpec{
		Isolation:      boot.Isolation,
		Argv:           boot.Agent.Argv,
		Env:            env,
		Workspace:      boot.Workspace,
		MaxMemoryBytes: boot.Agent.MaxMemoryBytes,
		MaxProcs:       boot.Agent.MaxProcs,
		MaxFileBytes:   boot.Agent.MaxFileBytes,
	})
}

// target gives the driver an agent that answers.
func (s *sandbox) target(ctx context.Context) (drive.Target, error) {
	inc, err := s.entry.WaitReady(ctx)
	if err != nil {
		return drive.Target{}, err
	}
	return drive.Target{URL: inc.URL, Done: inc.Done, Exit: inc.Exit}, nil
}

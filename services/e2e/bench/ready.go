package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

// coldRuntime is dev's own runtime without a pool.
const (
	warmRuntime = "shell"
	coldRuntime = "shell-cold"
)

// ready measures sessions from their creation to a sandbox whose agent answers.
type readiness struct {
	*program

	sandboxd string
	sessions *eventlog.Store[*session.State]
	off      int // sessions that came by another path than was measured
}

// measureReady compares it with starting the bare process of the same agent.
func measureReady(ctx context.Context, l *lab) (f finding, err error) {
	r := &readiness{}
	if r.program, err = l.newProgram(ctx, "namespaces"); err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	dir, err := l.folder("bare")
	if err != nil {
		return f, err
	}
	if r.sandboxd, err = dev.FindSandboxd(ctx, dir); err != nil {
		return f, err
	}
	r.sessions = eventlog.NewStore(eventlog.Config[*session.State]{Log: r.log, New: session.New})
	if err := r.applyCold(ctx); err != nil {
		return f, err
	}
	f = finding{
		title:    "Create → ready on the local driver, with namespaces",
		baseline: "starting the same agent as a bare process, until it answers",
		notes: []string{
			"Ready means: claimed, bound by a signed bind that was redeemed, and the agent's own health answered, with each step an event on the disk; a cold one also builds its namespaces, mounts, seccomp filter and limits.",
		},
	}
	pairs, count := l.size(20, 2), l.size(5, 1)
	for _, path := range []struct{ name, runtime string }{{"warm", warmRuntime}, {"cold", coldRuntime}} {
		all, err := inTurns(ctx, 2, count, pairs, r.create(path.runtime, path.name), timed(r.bare))
		if err != nil {
			return f, err
		}
		f.figures = append(f.figures, latency(path.name, all, 0.5, aim{}), latency(path.name, all, 0.99, aim{}))
	}
	f.samples = fmt.Sprintf("%d rounds of %d pairs each; %d sessions of another path than was measured were left out", count, pairs, r.off)
	return f, nil
}

func (r *readiness) applyCold(ctx context.Context) error {
	got, err := r.client.GetRuntimeWithResponse(ctx, warmRuntime, nil)
	if err != nil {
		return err
	}
	spec := got.JSON200.Spec
	spec.Name, spec.WarmPool.Size = coldRuntime, 0
	return r.apply(ctx, coldRuntime, spec)
}

// create makes a session, waits until it is ready, and ends it, which doesn't count.
// One that came by another path than wanted is tried again after a moment: a pool
// fills by itself.
func (r *readiness) create(runtime, wanted string) operation {
	return func(ctx context.Context) (took time.Duration, err error) {
		err = eventually(ctx, func() error {
			var path string
			if took, path, err = r.createOnce(ctx, runtime); err != nil {
				return err
			}
			if path != wanted {
				r.off++
				return fmt.Errorf("the session's path was %s, not %s", path, wanted)
			}
			return nil
		})
		return took, err
	}
}

func (r *readiness) createOnce(ctx context.Context, runtime string) (took time.Duration, path string, err error) {
	prefer := "wait=30"
	begin := time.Now()
	made, err := r.client.CreateSessionWithResponse(ctx, &api.CreateSessionParams{Prefer: &prefer}, api.CreateSession{Runtime: runtime})
	took = time.Since(begin)
	if err != nil {
		return took, "", err
	}
	if made.JSON201 == nil || made.JSON201.Phase != api.SessionPhaseReady {
		return took, "", fmt.Errorf("not ready: %s", made.Body)
	}
	id := made.JSON201.ID
	if _, err := r.client.TerminateSessionWithResponse(ctx, id, nil, api.TerminateSession{}); err != nil {
		return took, "", err
	}
	subject, err := events.SessionSubject(dev.Tenant, id)
	if err != nil {
		return took, "", err
	}
	err = eventually(ctx, func() error {
		return r.sessions.Read(ctx, subject, func(got eventlog.Snapshot[*session.State]) error {
			if path = got.State.Workload.Path; got.State.Phase() != session.PhaseEnded {
				return errors.New("it has not ended")
			}
			return nil
		})
	})
	return took, path, err
}

// bare starts the agent's program by itself and waits until it answers.
func (r *readiness) bare(ctx context.Context) error {
	port, err := freePort(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, r.sandboxd, "shell-agent")
	cmd.Env = []string{"PORT=" + strconv.Itoa(port), "PATH=/usr/bin:/bin", "HOLDFAST_URL=http://127.0.0.1:1"}
	if err := cmd.Start(); err != nil {
		cancel()
		return err
	}
	defer func() { cancel(); _ = cmd.Wait() }() // killed: that is how it ends
	return eventually(ctx, func() error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/health", port), nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

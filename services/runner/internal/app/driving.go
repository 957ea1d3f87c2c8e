package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/agentinput"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/runner/internal/decider"
	"github.com/holdfast-io/holdfast/services/runner/internal/drive"
)

// Background answers other instances' pings and, at the end, waits for the
// drivers to stop. Runs go on in their sandboxes; another runner takes them over.
func (a *App) Background(ctx context.Context) error {
	sub, err := a.cfg.NC.Subscribe(pingSubject(a.instance), respond(a.cfg.Logger))
	if err != nil {
		return fmt.Errorf("answer pings: %w", err)
	}
	a.base = ctx
	close(a.started)
	<-ctx.Done()
	a.wg.Wait()
	return sub.Unsubscribe()
}

// startDriving starts a driver for the run unless there is one.
func (a *App) startDriving(key reactor.Key, open *session.Run) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := a.drivers[key]; d != nil {
		if d.run == open.ID {
			return
		}
		d.cancel() // an older run's: it is over
	}
	if a.base.Err() != nil {
		return // stopping: another runner takes the run over
	}
	ctx, cancel := context.WithCancel(a.base)
	d := &driving{run: open.ID, cancel: cancel}
	a.drivers[key] = d
	a.wg.Go(func() {
		defer cancel()
		a.drive(ctx, key, open)
		a.mu.Lock()
		if a.drivers[key] == d {
			delete(a.drivers, key)
		}
		a.mu.Unlock()
		a.requeue.Enqueue(key) // what comes after the run
	})
}

func (a *App) stopDriving(key reactor.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := a.drivers[key]; d != nil {
		d.cancel()
	}
}

// drive drives until the run's end is in the log. Whatever fails on the way is
// tried again: only a lost sandbox fails a run, and the workload service says when
// that is so.
func (a *App) drive(ctx context.Context, key reactor.Key, open *session.Run) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := a.attempt(ctx, key, open)
		if err == nil || ctx.Err() != nil || errors.Is(err, decider.ErrNotMine) {
			return
		}
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "run not driven, trying again",
			slog.String("session", key.Session), slog.String("run", open.ID), slog.Any("error", err))
		a.requeue.Enqueue(key) // its sandbox may be gone
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

func (a *App) attempt(ctx context.Context, key reactor.Key, open *session.Run) error {
	run, err := a.brief(ctx, key, open.ID)
	if err != nil {
		return err
	}
	box, err := a.sandbox(ctx, key, open)
	if err != nil {
		return err
	}
	defer box.Close()
	return a.driver.Drive(ctx, box, run)
}

// brief is all that a driver needs to know of the run, or decider.ErrNotMine. It is
// made when a driver starts, not at each look: the conversation is in it.
func (a *App) brief(ctx context.Context, key reactor.Key, id string) (drive.Run, error) {
	run := drive.Run{Tenant: key.Tenant, Session: key.Session, ID: id, Instance: a.instance}
	err := a.read(ctx, key, func(t eventlog.Snapshot[*agentinput.Thread]) (err error) {
		if open := t.State.Run; open == nil || open.ID != id || open.Instance != a.instance {
			return decider.ErrNotMine
		}
		run.N, run.State = t.N, t.State.History.AgentState
		for _, tool := range t.State.Run.Tools {
			run.Tools = append(run.Tools, tool.Name)
		}
		run.Input, err = agentinput.Build(t.State)
		return err
	})
	return run, err
}

// sandbox finds where the run's sandbox answers. The address is never in the log.
func (a *App) sandbox(ctx context.Context, key reactor.Key, run *session.Run) (*sandboxapi.Client, error) {
	body, err := json.Marshal(verbs.LocateBody{Generation: run.Generation})
	if err != nil {
		return nil, err
	}
	reply, err := a.commands.Do(ctx, events.ServiceWorkload, key.Tenant, verbs.Locate, command.Request{
		Actor: system, Session: key.Session, Body: body,
	})
	if err != nil {
		return nil, fmt.Errorf("locate the sandbox: %w", err)
	}
	var at verbs.LocateResult
	if err := json.Unmarshal(reply.Result, &at); err != nil {
		return nil, fmt.Errorf("locate the sandbox: %w", err)
	}
	if at.PodUID != run.PodUID {
		return nil, fmt.Errorf("the sandbox of run %s is gone: pod %s is now %s", run.ID, run.PodUID, at.PodUID)
	}
	return sandboxapi.NewClientAt(sandboxapi.Endpoint{URL: at.Endpoint, Access: at.Access}, key.Session, run.Generation)
}

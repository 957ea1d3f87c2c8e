//go:build failpoint

package faults

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestKilledAsleep kills dev while a session that waits for a person is put away,
// while the answer brings it back, and while it is taken apart at its end.
func TestKilledAsleep(t *testing.T) {
	for _, failpoint := range []string{
		"command.session.suspend.before-reply",   // wanted, and nothing done yet
		"workload-put-away",                      // the processes are gone, the log doesn't know
		"workload-resumed",                       // they are back, the log doesn't know
		"command.session.terminate.before-reply", // its end is wanted
		"workload-removed",                       // nothing is left of it, the log doesn't know
	} {
		t.Run(failpoint, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.start(failpoint)
			j := &journey{w: w, key: "asleep-" + strings.ReplaceAll(failpoint, ".", "-")}
			if j.asleep() {
				t.Fatalf("%s was never reached", failpoint)
			}
			w.died(failpoint)
			w.start("")
			if !j.asleep() {
				t.Fatalf("not finished after the restart: %s", w.said())
			}
		})
	}
}

// asleep goes on until the session has slept, was answered, ran and ended (true), or
// the program died (false).
func (j *journey) asleep() bool {
	for _, step := range []func(context.Context) bool{j.create, j.question, j.suspend, j.answer, j.end, j.terminate} {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		ok := step(ctx)
		cancel()
		if !ok {
			return false
		}
	}
	return true
}

// question waits until a person is asked, or the run is over without.
func (j *journey) question(ctx context.Context) bool {
	for j.alive() && ctx.Err() == nil {
		if s, err := j.look(ctx); err == nil && (s.approval != nil || s.over()) {
			return true
		}
		breathe()
	}
	return false
}

// suspend wants the session put away and waits until it is; one that was answered
// or lost meanwhile needs none.
func (j *journey) suspend(ctx context.Context) bool {
	for j.alive() && ctx.Err() == nil {
		_, err := j.w.client("alice").SuspendSessionWithResponse(ctx, j.id, &api.SuspendSessionParams{IdempotencyKey: &j.key})
		var refused *api.Error
		if errors.As(err, &refused) && refused.Problem.Status >= 500 {
			breathe()
			continue
		}
		got, err := j.w.client("alice").GetSessionWithResponse(ctx, j.id, nil)
		if err == nil && got.JSON200.Phase != api.SessionPhaseSuspending && got.JSON200.Phase != api.SessionPhaseReady {
			return true
		}
		if s, err := j.look(ctx); err == nil && s.pending == nil {
			return true
		}
		breathe()
	}
	return false
}

// terminate ends the session and waits until nothing is left of it.
func (j *journey) terminate(ctx context.Context) bool {
	for j.alive() && ctx.Err() == nil {
		_, _ = j.w.client("alice").TerminateSessionWithResponse(ctx, j.id, nil, api.TerminateSession{}) // again until it has ended
		got, err := j.w.client("alice").GetSessionWithResponse(ctx, j.id, nil)
		if err == nil && got.JSON200.Phase == api.SessionPhaseEnded {
			return true
		}
		breathe()
	}
	return false
}

//go:build failpoint

package faults

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestKilledAt kills dev at each place of a session's way from its create to the
// end of a run that had to ask, starts it again, and wants the same end each time:
// one run that ran to its end, or failed because its sandbox died with the process,
// and every command done at most once.
func TestKilledAt(t *testing.T) {
	for _, failpoint := range []string{
		"command.session.create.before-reply",   // the append and before its reply
		"workload-claimed",                      // the claim and before ready
		"run-settled",                           // run.started and before the sandbox knows
		"run-delivered",                         // the sandbox knows and before the first output
		"command.policy.propose.before-reply",   // a question is asked (the first is allowed)
		"command.policy.propose.before-reply#2", // … the second waits for a person
		"command.policy.start.before-reply",     // start and before the result
		"output-published",                      // in the middle of output
		"output-published#3",                    // …
		"message-recorded",                      // a message is in the log, the run goes on
		"command.policy.answer.before-reply",    // the answer and before the continuation
		"run-settled#2",                         // the continuation is started
		"command.policy.start.before-reply#2",   // the approved call, before its result
		"message-recorded#4",                    // …
	} {
		t.Run(failpoint, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.start(failpoint)
			j := &journey{w: w, key: "journey-" + strings.NewReplacer("#", "-", ".", "-").Replace(failpoint)}
			finished := j.attempt()
			if !finished {
				w.died(failpoint)
				w.start("")
				j.attemptOrFail()
			} else {
				t.Fatalf("%s was never reached", failpoint)
			}
			j.verify()
		})
	}
}

// journey is what a patient client does: it repeats each request under its key
// until there is an answer.
type journey struct {
	w   *world
	key string
	id  string
}

// lines: one that the policy allows, one that a person is asked about and that
// leaves a mark each time it runs.
const lines = "echo first\necho once >> marks && cat marks"

// attempt goes on until the journey is over (true) or the program died (false).
func (j *journey) attempt() bool {
	for _, step := range []func(context.Context) bool{j.create, j.answer, j.end} {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		ok := step(ctx)
		cancel()
		if !ok {
			return false
		}
	}
	return true
}

func (j *journey) attemptOrFail() {
	j.w.t.Helper()
	if !j.attempt() {
		j.w.t.Fatalf("not finished after the restart: %s", j.w.said())
	}
}

// alive says whether the program still runs.
func (j *journey) alive() bool {
	select {
	case <-j.w.child.done:
		return false
	default:
		return true
	}
}

func (j *journey) create(ctx context.Context) bool {
	for j.alive() && ctx.Err() == nil {
		r, err := j.w.client("alice").CreateSessionWithResponse(ctx, &api.CreateSessionParams{IdempotencyKey: &j.key},
			api.CreateSession{Runtime: "shell", Message: lines})
		var refused *api.Error
		if errors.As(err, &refused) && refused.Problem.Status < 500 {
			j.w.t.Fatalf("create: %v", err)
		}
		if err == nil {
			created := r.JSON201
			if created == nil {
				created = r.JSON200
			}
			j.id = created.ID
			return true
		}
		breathe()
	}
	return false
}

// breathe lets a killed program be noticed.
func breathe() { <-time.After(20 * time.Millisecond) }

// state is what the log says of the journey.
type state struct {
	runs     []api.Run
	pending  *api.Approval
	approval *api.Approval
}

func (j *journey) look(ctx context.Context) (state, error) {
	c := j.w.client("admin")
	var s state
	runs, err := c.ListRunsWithResponse(ctx, j.id, nil)
	if err != nil {
		return s, err
	}
	s.runs = runs.JSON200.Items
	list, err := c.ListApprovalsWithResponse(ctx, &api.ListApprovalsParams{Session: &j.id, State: &[]api.CallState{
		api.CallStatePending, api.CallStateApproved, api.CallStateStarted, api.CallStateCompleted,
		api.CallStateLapsed, api.CallStateCancelled,
	}})
	if err != nil {
		return s, err
	}
	for _, a := range list.JSON200.Items {
		s.approval = &a
		if a.State == api.CallStatePending {
			s.pending = &a
		}
	}
	return s, nil
}

// over says that no run is open or waits: the last one came to its end.
func (s state) over() bool {
	if len(s.runs) == 0 || s.pending != nil {
		return false
	}
	last := s.runs[len(s.runs)-1].State
	return last == api.RunStateFinished || last == api.RunStateFailed || last == api.RunStateCancelled
}

// answer approves what is asked, unless the run ended without asking: its sandbox
// died with the program.
func (j *journey) answer(ctx context.Context) bool {
	for j.alive() && ctx.Err() == nil {
		s, err := j.look(ctx)
		switch {
		case err != nil:
		case s.over():
			return true
		case s.pending != nil:
			_, err = j.w.client("bob").DecideApprovalWithResponse(ctx, s.pending.ID, &api.DecideApprovalParams{IdempotencyKey: &j.key},
				api.DecideApproval{Decision: api.AnswerApprove, ArgsHash: s.pending.ArgsHash})
			if err == nil {
				return true
			}
		case s.approval != nil && s.approval.Decision.By != "":
			return true // answered before the program died
		}
		breathe()
	}
	return false
}

func (j *journey) end(ctx context.Context) bool {
	for j.alive() && ctx.Err() == nil {
		if s, err := j.look(ctx); err == nil && s.over() {
			return true
		}
		breathe()
	}
	return false
}

// verify proves that the asked command ran at most once, that the session still
// works, and that it ends.
func (j *journey) verify() {
	t := j.w.t
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*harness.Patience)
	defer cancel()
	s, err := j.look(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r, err := j.w.client("alice").SendMessageWithResponse(ctx, j.id, nil, api.SendMessage{Content: "cat marks"})
	if err != nil {
		t.Fatalf("the session is stuck: %v", err)
	}
	run := r.JSON202.RunID
	for ctx.Err() == nil && !ended(ctx, j, run) {
		breathe()
	}
	marks := strings.Count(output(ctx, t, j, run), "once\n")
	last := s.runs[len(s.runs)-1]
	switch {
	case marks > 1:
		t.Errorf("the asked command ran %d times", marks)
	case marks == 0 && last.State == api.RunStateFinished:
		t.Errorf("the run succeeded and the asked command never ran")
	}
	if _, err := j.w.client("alice").TerminateSessionWithResponse(ctx, j.id, nil, api.TerminateSession{}); err != nil {
		t.Fatalf("terminate: %v", err)
	}
	for ctx.Err() == nil {
		got, err := j.w.client("alice").GetSessionWithResponse(ctx, j.id, nil)
		if err == nil && got.JSON200.Phase == api.SessionPhaseEnded {
			return
		}
		breathe()
	}
	t.Errorf("the session does not end: %s", j.w.said())
}

func ended(ctx context.Context, j *journey, run string) bool {
	s, err := j.look(ctx)
	if err != nil {
		return false
	}
	for _, r := range s.runs {
		if r.ID == run {
			return r.State == api.RunStateFinished || r.State == api.RunStateFailed
		}
	}
	return false
}

// output is what the agent said in a run.
func output(ctx context.Context, t *testing.T, j *journey, run string) string {
	t.Helper()
	r, err := j.w.client("admin").ListMessagesWithResponse(ctx, j.id, nil)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for _, m := range r.JSON200.Items {
		if m.RunID == run && m.Role == "assistant" {
			said.WriteString(m.Content)
		}
	}
	return said.String()
}

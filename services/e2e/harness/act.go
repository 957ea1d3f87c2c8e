package harness

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

// Tenant is the one that dev has.
const Tenant = dev.Tenant

// Sessions is what people do with an installation, wherever that runs, and what its log
// says of it.
type Sessions struct {
	t testing.TB
	// clients is the API as somebody, log the log until it is closed.
	clients func(t testing.TB, name string) *apiclient.ClientWithResponses
	log     func(context.Context) (log eventlog.Log, closeLog func(), err error)
}

// SessionsOf are those of an installation that the harness didn't start.
func SessionsOf(
	t testing.TB, clients func(t testing.TB, name string) *apiclient.ClientWithResponses,
	log func(context.Context) (log eventlog.Log, closeLog func(), err error),
) Sessions {
	t.Helper()
	return Sessions{t: t, clients: clients, log: log}
}

// Client is the API as one of admin, alice and bob.
func (h *Sessions) Client(name string) *apiclient.ClientWithResponses {
	h.t.Helper()
	return h.clients(h.t, name)
}

// Context is bounded by Patience and the test.
func (h *Sessions) Context() context.Context { return Context(h.t) }

// Context is bounded by Patience and the test.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	t.Cleanup(cancel)
	return ctx
}

// Eventually polls a condition until it holds, for what has no signal to wait on;
// the test fails where it doesn't within Patience.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// Refused wants err to be a problem of a code and gives it.
func Refused(t testing.TB, err error, code api.Code) api.Problem {
	t.Helper()
	refused, ok := errors.AsType[*api.Error](err)
	if !ok {
		t.Fatalf("not refused with %s: %v", code, err)
	}
	if p := refused.Problem; p.Code != code || p.Status != code.Status() {
		t.Fatalf("refused with %s (%d) %q, want %s (%d)", p.Code, p.Status, p.Detail, code, code.Status())
	}
	return refused.Problem
}

// Create makes a session of runtime shell, with a first message unless it is
// empty, and waits until it is ready.
func (h *Sessions) Create(as, message string) *api.Session {
	h.t.Helper()
	return h.CreateOf(as, api.CreateSession{Runtime: "shell", Message: message})
}

// CreateOf makes a session and waits until it is ready, or is known not to be.
func (h *Sessions) CreateOf(as string, body api.CreateSession) *api.Session {
	h.t.Helper()
	prefer := "wait=30"
	r, err := h.Client(as).CreateSessionWithResponse(h.Context(), &api.CreateSessionParams{Prefer: &prefer}, body)
	if err != nil {
		h.t.Fatalf("create: %v", err)
	}
	if r.JSON201 == nil {
		h.t.Fatalf("create: %s", r.Status())
	}
	return r.JSON201
}

// Send sends a message and gives the run that answers it.
func (h *Sessions) Send(as, id, message string) string {
	h.t.Helper()
	r, err := h.Client(as).SendMessageWithResponse(h.Context(), id, nil, api.SendMessage{Content: message})
	if err != nil {
		h.t.Fatalf("send: %v", err)
	}
	return r.JSON202.RunID
}

// Session reads a session from the log.
func (h *Sessions) Session(id string) *api.Session {
	h.t.Helper()
	r, err := h.Client("admin").GetSessionWithResponse(h.Context(), id, nil)
	if err != nil {
		h.t.Fatalf("get the session: %v", err)
	}
	return r.JSON200
}

// Await waits until a session is as it should be.
func (h *Sessions) Await(id, what string, holds func(*api.Session) bool) *api.Session {
	h.t.Helper()
	var s *api.Session
	Eventually(h.t, what, func() bool {
		s = h.Session(id)
		return holds(s)
	})
	return s
}

// AwaitPhase waits until a session is in a phase.
func (h *Sessions) AwaitPhase(id string, phase api.SessionPhase) *api.Session {
	h.t.Helper()
	return h.Await(id, "session "+id+" is "+string(phase), func(s *api.Session) bool { return s.Phase == phase })
}

// AwaitFact waits until a session's log holds what it should.
func (h *Sessions) AwaitFact(id, what string, holds func([]Fact) bool) []Fact {
	h.t.Helper()
	var facts []Fact
	Eventually(h.t, what, func() bool {
		facts = h.Facts(id)
		return holds(facts)
	})
	return facts
}

// Runs lists a session's runs from the views, once they include what the log holds
// now.
func (h *Sessions) Runs(id string) []api.Run {
	h.t.Helper()
	r, err := h.Client("admin").ListRunsWithResponse(h.Context(), id, &api.ListRunsParams{MinSeq: &h.Session(id).Seq})
	if err != nil {
		h.t.Fatalf("list the runs: %v", err)
	}
	return r.JSON200.Items
}

// AwaitRun waits until a run is in a state.
func (h *Sessions) AwaitRun(id, run string, state api.RunState) api.Run {
	h.t.Helper()
	var is api.Run
	Eventually(h.t, "run "+run+" is "+string(state), func() bool {
		for _, is = range h.Runs(id) {
			if is.ID == run {
				return is.State == state
			}
		}
		return false
	})
	return is
}

// AwaitQuestion waits until a session asks and gives what it asks.
func (h *Sessions) AwaitQuestion(id string) api.Approval {
	h.t.Helper()
	var asked []api.Approval
	Eventually(h.t, "session "+id+" asks", func() bool {
		s := h.Session(id)
		if s.Waiting == 0 {
			return false
		}
		r, err := h.Client("admin").ListApprovalsWithResponse(h.Context(), &api.ListApprovalsParams{
			Session: &id, State: &[]api.CallState{api.CallStatePending}, MinSeq: &s.Seq,
		})
		if err != nil {
			h.t.Fatalf("list the approvals: %v", err)
		}
		asked = r.JSON200.Items
		return len(asked) > 0
	})
	return asked[0]
}

// Decide answers a question and gives the status: 201 for the answer that counts,
// 200 for its repetition.
func (h *Sessions) Decide(as string, a api.Approval, answer api.Answer, comment string) (status int, err error) {
	h.t.Helper()
	r, err := h.Client(as).DecideApprovalWithResponse(h.Context(), a.ID, nil, api.DecideApproval{
		Decision: answer, ArgsHash: a.ArgsHash, Comment: comment,
	})
	if err != nil {
		return 0, err
	}
	return r.StatusCode(), nil
}

// Approve answers a question with yes, and wants that to be the answer that counts.
func (h *Sessions) Approve(as string, a api.Approval) {
	h.t.Helper()
	if status, err := h.Decide(as, a, api.AnswerApprove, ""); err != nil || status != 201 {
		h.t.Fatalf("approve: %d, %v", status, err)
	}
}

// Runtime applies a runtime that is like "shell" but for what change does.
func (h *Sessions) Runtime(name string, change func(*api.RuntimeSpec)) {
	h.t.Helper()
	spec := api.RuntimeSpec{
		Name: name, Kind: api.RuntimeKindAgent,
		Adapter:     api.Adapter{Protocol: api.AdapterProtocolAgui, Entrypoint: "app", Path: "/run", Resume: "rerun"},
		Sandbox:     api.Sandbox{Command: []string{"/holdfast/sandboxd", "shell-agent"}},
		Workspace:   api.Workspace{Path: "/workspace"},
		Entrypoints: []api.Entrypoint{{Name: "app", PathPrefix: "/", Port: 8000, Protocol: "HTTP", Ready: "/health"}},
		Timeouts:    api.Timeouts{Claim: "60s", Idle: "15m", Max: "8h", SuspendWhileWaiting: "2m", DrainGrace: "30s"},
		OnIdle:      api.OnIdleSuspend, OnLoss: api.OnLossRestart, Policy: "default",
	}
	change(&spec)
	if _, err := h.Client("admin").ApplyRuntimeWithResponse(h.Context(), name, nil, spec); err != nil {
		h.t.Fatalf("apply runtime %s: %v", name, err)
	}
}

// Policy applies a policy.
func (h *Sessions) Policy(spec api.PolicySpec) {
	h.t.Helper()
	if _, err := h.Client("admin").ApplyPolicyWithResponse(h.Context(), spec.Name, nil, spec); err != nil {
		h.t.Fatalf("apply policy %s: %v", spec.Name, err)
	}
}

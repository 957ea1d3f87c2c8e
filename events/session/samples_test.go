package session_test

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

var at = time.Date(2026, 5, 4, 8, 0, 0, 123456789, time.UTC)

func raw(s string) json.RawMessage { return json.RawMessage(s) }

// samples has one payload of each type with every field set, as today's build
// writes it.
func samples() []session.Payload {
	idle, exit := events.Duration(20*time.Minute), 2
	maxAt := at.Add(9 * time.Hour)
	layers := map[string]int64{"bind": 3, "claim": 41, "entrypoint": 120}
	return []session.Payload{
		session.Created{
			Owner: "alice", Runtime: session.RuntimeRef{Name: "coder", Revision: 3},
			Terms: session.Terms{
				Kind: "agent", Adapter: "agui", Policy: "coder", OnIdle: "suspend", OnLoss: "restart", Suspends: true,
				Claim: events.Duration(time.Minute), Idle: events.Duration(15 * time.Minute), Max: events.Duration(8 * time.Hour),
				SuspendWhileWaiting: events.Duration(2 * time.Minute), DrainGrace: events.Duration(30 * time.Second),
				Redact: []string{"/password"},
			},
			Config: raw(`{"model":"small"}`), Labels: map[string]string{"team": "sre"}, Parent: "s-parent", BodyHash: "b0d1",
		},
		session.MessageReceived{
			MessageID: "m-1", RunID: "r-1", Content: raw(`"deploy <it> & tell"`), Requester: "alice", CancelOpen: true, BodyHash: "b0d2",
			Tools: []session.Tool{{Name: "pick", Description: "Pick a <colour>", Parameters: raw(`{"type":"object"}`)}},
		},
		session.ActivityNoted{Holder: "gateway-1", Until: at.Add(time.Minute)},
		session.SuspendRequested{Cause: "idle"},
		session.ResumeRequested{Cause: "answer"},
		session.Extended{MaxAt: &maxAt, Idle: &idle},
		session.Expired{MaxAt: maxAt},
		session.Terminated{Reason: "done with it"},
		session.EndRequested{Outcome: session.OutcomeFailed, Cause: "workload failed: claim-timeout"},
		session.Ended{Outcome: session.OutcomeFailed, Cause: "workload failed: claim-timeout"},

		session.ClaimRequested{Generation: 2, Deadline: at.Add(time.Minute)},
		session.Claimed{Generation: 2, SandboxUID: "sb-2", PodUID: "pod-2", Restarts: 1, Path: "warm", Isolation: "namespaces", LayersMs: layers},
		session.Ready{Generation: 2, SandboxUID: "sb-2", PodUID: "pod-2", Restarts: 1, Path: "warm", Isolation: "namespaces", LayersMs: layers},
		session.Suspended{Generation: 2},
		session.Resumed{Generation: 2, PodUID: "pod-3", Restarts: 1, Isolation: "namespaces", LayersMs: layers},
		session.Draining{Generation: 2, PodUID: "pod-3", Cause: "node-cordoned"},
		session.Stayed{Generation: 2, PodUID: "pod-3"},
		session.Lost{Generation: 2, PodUID: "pod-3", Cause: "sandbox-died", WorkspaceKept: true},
		session.Failed{Generation: 2, Cause: "claim-timeout", Detail: "not ready in 1m0s"},
		session.Released{Generation: 2},

		session.RunStarted{RunID: "r-2", ParentRunID: "r-1", Instance: "runner-1", Generation: 2, PodUID: "pod-2", Requester: "alice"},
		session.RunTakenOver{RunID: "r-2", Instance: "runner-2"},
		session.RunMessageRecorded{RunID: "r-2", MessageID: "m-2", Role: "assistant", Message: raw(`{"id":"m-2","role":"assistant","content":"<b>"}`), K: 7},
		session.RunCancelRequested{RunID: "r-2"},
		session.RunInterrupted{RunID: "r-2", LastK: 9, Calls: []string{"s-1.c-1"}, Interrupts: raw(`[{"id":"s-1.c-1"}]`), State: raw(`{"step":2}`)},
		session.RunFinished{RunID: "r-2", LastK: 12, Outcome: "success", State: raw(`{"step":3}`)},
		session.RunFailed{RunID: "r-2", LastK: 12, Cause: "agent-error", Detail: "exit status 1"},

		session.CallProposed{
			CallID: "s-1.c-1", AgentCallID: "a-1", RunID: "r-2", Tool: "shell", Args: raw(`{"command":"a > b && c"}`),
			ArgsHash: "ha5h", Requester: "alice", Modes: []string{"hold", "park"},
		},
		session.CallDecided{
			CallID: "s-1.c-1", Decision: "ask", Rule: "deploys", Policy: "coder", Revision: 4, Enforcement: "asked",
			Reason: "nobody needs this", ExecuteBy: at.Add(time.Hour),
		},
		session.CallHumanConfirmRequired{
			CallID: "s-1.c-1", Mode: "park", Approvers: []string{"group:sre", "user:bob"}, ExcludeRequester: true,
			Deadline: at.Add(30 * time.Minute), OnDeadline: "deny", ExecuteWithin: events.Duration(10 * time.Minute),
			Risk: "high", Message: "Deploy 1.2?", Isolation: "namespaces",
		},
		session.CallVoteCast{CallID: "s-1.c-1", By: "bob", Decision: "approve", Comment: "go", ArgsHash: "ha5h"},
		session.CallAnswerRefused{CallID: "s-1.c-1", By: "alice", Decision: "approve", ArgsHash: "ha5h", Code: "requester-excluded"},
		session.CallApproved{CallID: "s-1.c-1", By: "bob", ArgsHash: "ha5h", ExecuteBy: at.Add(time.Hour)},
		session.CallDenied{CallID: "s-1.c-1", By: "bob", Reason: "not on a Friday"},
		session.CallExpired{CallID: "s-1.c-1", Deadline: at.Add(30 * time.Minute)},
		session.CallCancelled{CallID: "s-1.c-1", Cause: "run is over"},
		session.CallSuperseded{CallID: "s-1.c-1", By: "s-1.c-2"},
		session.CallStarted{CallID: "s-1.c-1", RunID: "r-2", Nonce: "n-1", ArgsHash: "ha5h"},
		session.CallDelegated{CallID: "s-1.c-1", ToolCallID: "a-1", RunID: "r-2", Deadline: at.Add(time.Hour)},
		session.CallCompleted{
			CallID: "s-1.c-1", Nonce: "n-1", ExitCode: &exit, Output: "1 < 2", Truncated: true, Error: "exit status 2", Result: raw(`{"ok":false}`),
		},
		session.CallLapsed{CallID: "s-1.c-1", Kind: "unstarted", Cause: "not started in time"},
	}
}

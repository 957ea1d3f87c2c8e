package sessiontest

import (
	"maps"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// move is one thing that a service may append, and when.
type move struct {
	service events.Service
	enabled func(*session.State, time.Time) bool
	make    func(*walk) []session.Payload
}

type payloads = []session.Payload

func live(s *session.State) bool { return !s.Ending && !s.Ended && s.Phase() != session.PhaseEnding }

func status(s *session.State, of ...session.WorkloadStatus) bool {
	return slices.Contains(of, s.Workload.Status)
}

func runOpen(s *session.State, _ time.Time) bool { return s.Run != nil }

var moves = append(append(lifeMoves, workloadMoves...), append(runMoves, callMoves...)...)

var lifeMoves = []move{
	{events.ServiceSession, func(s *session.State, _ time.Time) bool { return live(s) && len(s.Queue) < 3 }, func(w *walk) payloads {
		ps := payloads{session.MessageReceived{MessageID: w.id("m"), RunID: w.id("r"), Content: []byte(`"do it"`), Requester: "alice"}}
		if !w.state.WantRunning {
			ps = append(ps, session.ResumeRequested{Cause: "message"})
		}
		return ps
	}},
	{events.ServiceSession, func(s *session.State, _ time.Time) bool { return s.Phase() == session.PhaseReady }, func(w *walk) payloads {
		until := w.now.Add(time.Duration(rapid.IntRange(1, 600).Draw(w.t, "until")) * time.Second)
		return payloads{session.ActivityNoted{Holder: rapid.SampledFrom([]string{"gw-1", "gw-2"}).Draw(w.t, "holder"), Until: until}}
	}},
	{events.ServiceSession, func(s *session.State, _ time.Time) bool { return len(s.Holders) > 0 && !s.Ended }, func(w *walk) payloads {
		held := slices.Sorted(maps.Keys(w.state.Holders))
		return payloads{session.ActivityNoted{Holder: held[0]}}
	}},
	{events.ServiceSession, func(s *session.State, now time.Time) bool {
		used, _ := s.InUse(now)
		return s.Phase() == session.PhaseReady && !used
	}, func(*walk) payloads { return payloads{session.SuspendRequested{Cause: "request"}} }},
	{
		events.ServiceSession, func(s *session.State, _ time.Time) bool {
			return live(s) && s.May(session.MoveResume) && !s.WantRunning
		},
		func(*walk) payloads { return payloads{session.ResumeRequested{Cause: "request"}} },
	},
	{events.ServiceSession, func(s *session.State, _ time.Time) bool { return live(s) }, func(w *walk) payloads {
		at := w.state.MaxAt.Add(time.Minute)
		return payloads{session.Extended{MaxAt: &at}}
	}},
	{
		events.ServiceSession, func(s *session.State, now time.Time) bool { return live(s) && !s.MaxAt.After(now) },
		func(w *walk) payloads { return payloads{session.Expired{MaxAt: w.state.MaxAt}} },
	},
	{
		events.ServiceSession, func(s *session.State, _ time.Time) bool { return live(s) && s.N > 30 },
		func(*walk) payloads { return payloads{session.Terminated{Reason: "enough"}} },
	},
	{
		events.ServiceSession, func(s *session.State, _ time.Time) bool { return !s.Ending && status(s, session.WorkloadFailed) },
		func(*walk) payloads {
			return payloads{session.EndRequested{Outcome: session.OutcomeFailed, Cause: "workload failed"}}
		},
	},
	{events.ServiceSession, func(s *session.State, _ time.Time) bool {
		return s.Ending && !s.Ended && status(s, session.WorkloadNone, session.WorkloadReleased) &&
			s.Run == nil && s.Interrupted == nil && len(s.Queue) == 0 && s.OpenCalls() == 0
	}, func(w *walk) payloads {
		return payloads{session.Ended{Outcome: w.state.EndOutcome, Cause: w.state.EndCause}}
	}},
}

var workloadMoves = []move{
	{events.ServiceWorkload, func(s *session.State, _ time.Time) bool {
		return live(s) && s.WantRunning && status(s, session.WorkloadNone, session.WorkloadLost, session.WorkloadReleased)
	}, func(w *walk) payloads {
		return payloads{session.ClaimRequested{Generation: w.state.Workload.Generation + 1, Deadline: w.now.Add(time.Minute)}}
	}},
	{events.ServiceWorkload, func(s *session.State, _ time.Time) bool { return !s.Ended && status(s, session.WorkloadRequested) }, func(w *walk) payloads {
		return payloads{session.Claimed{Generation: w.state.Workload.Generation, SandboxUID: w.id("sb"), PodUID: w.id("pod"), Path: "warm", Isolation: "namespaces"}}
	}},
	{events.ServiceWorkload, func(s *session.State, _ time.Time) bool { return !s.Ended && status(s, session.WorkloadClaimed) }, func(w *walk) payloads {
		k := w.state.Workload
		return payloads{session.Ready{Generation: k.Generation, SandboxUID: k.SandboxUID, PodUID: k.PodUID, Path: k.Path, Isolation: k.Isolation, LayersMs: map[string]int64{"bind": 3}}}
	}},
	{events.ServiceWorkload, func(s *session.State, _ time.Time) bool { return s.Suspending && status(s, session.WorkloadReady) }, func(w *walk) payloads {
		return payloads{session.Suspended{Generation: w.state.Workload.Generation}}
	}},
	{events.ServiceWorkload, func(s *session.State, _ time.Time) bool {
		return live(s) && s.WantRunning && status(s, session.WorkloadSuspended)
	}, func(w *walk) payloads {
		return payloads{session.Resumed{Generation: w.state.Workload.Generation, PodUID: w.id("pod"), Isolation: "namespaces"}}
	}},
	{events.ServiceWorkload, func(s *session.State, _ time.Time) bool {
		return live(s) && status(s, session.WorkloadReady)
	}, func(w *walk) payloads {
		k := w.state.Workload
		if k.DrainingAt.IsZero() {
			return payloads{session.Draining{Generation: k.Generation, PodUID: k.PodUID, Cause: "node-cordoned"}}
		}
		return payloads{session.Stayed{Generation: k.Generation, PodUID: k.PodUID}}
	}},
	{events.ServiceWorkload, func(s *session.State, _ time.Time) bool {
		return live(s) && (status(s, session.WorkloadReady, session.WorkloadSuspended) ||
			s.Workload.WasReady && status(s, session.WorkloadRequested, session.WorkloadClaimed))
	}, func(w *walk) payloads {
		return payloads{session.Lost{Generation: w.state.Workload.Generation, PodUID: w.state.Workload.PodUID, Cause: "sandbox-died"}}
	}},
	{events.ServiceWorkload, func(s *session.State, _ time.Time) bool {
		return live(s) && s.N > 20 && status(s, session.WorkloadRequested, session.WorkloadClaimed)
	}, func(w *walk) payloads {
		return payloads{session.Failed{Generation: w.state.Workload.Generation, Cause: "claim-timeout"}}
	}},
	{events.ServiceWorkload, func(s *session.State, _ time.Time) bool {
		return s.Ending && !s.Ended && !status(s, session.WorkloadNone, session.WorkloadReleased)
	}, func(w *walk) payloads { return payloads{session.Released{Generation: w.state.Workload.Generation}} }},
}

var runMoves = []move{
	{events.ServiceRunner, func(s *session.State, _ time.Time) bool { return s.RunDue() && s.Phase() == session.PhaseReady }, func(w *walk) payloads {
		k := w.state.Workload
		started := session.RunStarted{Instance: "runner-1", Generation: k.Generation, PodUID: k.PodUID, Requester: "alice"}
		if p := w.state.Interrupted; p != nil {
			started.RunID, started.ParentRunID = w.id("r"), p.RunID
		} else {
			started.RunID = w.state.Queue[0].RunID
		}
		return payloads{started}
	}},
	{events.ServiceRunner, runOpen, func(w *walk) payloads {
		return payloads{session.RunTakenOver{RunID: w.state.Run.ID, Instance: w.id("runner")}}
	}},
	{events.ServiceRunner, runOpen, func(w *walk) payloads {
		id := w.id("m")
		return payloads{session.RunMessageRecorded{RunID: w.state.Run.ID, MessageID: id, Role: "assistant", Message: []byte(`{"id":"` + id + `"}`), K: uint64(w.ids)}}
	}},
	{events.ServiceRunner, runOpen, func(w *walk) payloads { return payloads{session.RunCancelRequested{RunID: w.state.Run.ID}} }},
	{events.ServiceRunner, func(s *session.State, _ time.Time) bool {
		return s.Run != nil && len(callsIn(s, awaited...)) > 0
	}, func(w *walk) payloads {
		return payloads{session.RunInterrupted{RunID: w.state.Run.ID, LastK: uint64(w.ids + 1), Calls: callsIn(w.state, awaited...), State: []byte(`{"step":1}`)}}
	}},
	{events.ServiceRunner, runOpen, func(w *walk) payloads {
		outcome := rapid.SampledFrom([]string{"success", "cancelled"}).Draw(w.t, "outcome")
		return payloads{session.RunFinished{RunID: w.state.Run.ID, LastK: uint64(w.ids + 1), Outcome: outcome}}
	}},
	{events.ServiceRunner, runOpen, func(w *walk) payloads {
		return payloads{session.RunFailed{RunID: w.state.Run.ID, Cause: "workload-lost"}}
	}},
	{events.ServiceRunner, func(s *session.State, _ time.Time) bool { return len(s.Queue) > 0 }, func(w *walk) payloads {
		return payloads{session.RunFinished{RunID: w.state.Queue[0].RunID, Outcome: "cancelled"}}
	}},
	{events.ServiceRunner, func(s *session.State, _ time.Time) bool { return s.Interrupted != nil }, func(w *walk) payloads {
		return payloads{session.RunFinished{RunID: w.state.Interrupted.RunID, Outcome: "cancelled"}}
	}},
}

var callMoves = []move{
	{events.ServicePolicy, func(s *session.State, _ time.Time) bool { return s.Run != nil && !s.Ending }, propose},
	// Again, so that histories have several questions open at a time.
	{events.ServicePolicy, func(s *session.State, _ time.Time) bool { return s.Run != nil && !s.Ending }, propose},
	{events.ServicePolicy, func(s *session.State, now time.Time) bool { return !s.Ending && len(answerable(s, now)) > 0 }, answer},
	{events.ServicePolicy, func(s *session.State, _ time.Time) bool { return len(s.Calls) > 0 && !s.Ended }, func(w *walk) payloads {
		id := rapid.SampledFrom(w.state.CallOrder).Draw(w.t, "call")
		return payloads{session.CallAnswerRefused{CallID: id, By: "carol", Decision: "approve", Code: "not-an-approver"}}
	}},
	{events.ServicePolicy, func(s *session.State, now time.Time) bool { return len(overdue(s, now)) > 0 && !s.Ending }, func(w *walk) payloads {
		c := w.state.Calls[rapid.SampledFrom(overdue(w.state, w.now)).Draw(w.t, "call")]
		return payloads{session.CallExpired{CallID: c.ID, Deadline: c.Asked.Deadline}}
	}},
	{events.ServicePolicy, func(s *session.State, now time.Time) bool { return len(startable(s, now)) > 0 }, func(w *walk) payloads {
		c := w.state.Calls[rapid.SampledFrom(startable(w.state, w.now)).Draw(w.t, "call")]
		return payloads{session.CallStarted{CallID: c.ID, RunID: w.state.Run.ID, Nonce: w.id("nonce"), ArgsHash: c.ArgsHash}}
	}},
	{events.ServicePolicy, func(s *session.State, now time.Time) bool { return len(startable(s, now)) > 0 }, func(w *walk) payloads {
		c := w.state.Calls[rapid.SampledFrom(startable(w.state, w.now)).Draw(w.t, "call")]
		return payloads{session.CallDelegated{CallID: c.ID, ToolCallID: c.AgentCallID, RunID: c.RunID, Deadline: w.now.Add(time.Hour)}}
	}},
	{events.ServicePolicy, func(s *session.State, _ time.Time) bool { return len(callsIn(s, session.CallStateStarted)) > 0 }, func(w *walk) payloads {
		c := w.callIn(session.CallStateStarted)
		return payloads{session.CallCompleted{CallID: c.ID, Nonce: c.Nonce, Output: "done"}}
	}},
	{events.ServicePolicy, func(s *session.State, _ time.Time) bool { return len(callsIn(s, session.CallStateDelegated)) > 0 }, func(w *walk) payloads {
		return payloads{session.CallCompleted{CallID: w.callIn(session.CallStateDelegated).ID, Nonce: w.id("m"), Output: "blue"}}
	}},
	{events.ServicePolicy, func(s *session.State, _ time.Time) bool { return len(callsIn(s, session.CallStatePending)) > 0 }, func(w *walk) payloads {
		return payloads{session.CallCancelled{CallID: w.callIn(session.CallStatePending).ID, Cause: "run is over"}}
	}},
	{events.ServicePolicy, func(s *session.State, _ time.Time) bool { return len(callsIn(s, lapsing...)) > 0 }, func(w *walk) payloads {
		return payloads{session.CallLapsed{CallID: w.callIn(lapsing...).ID, Kind: "unstarted"}}
	}},
}

var (
	lapsing = []session.CallState{session.CallStateAllowed, session.CallStateApproved, session.CallStateStarted, session.CallStateDelegated}
	// awaited are what a run is parked on.
	awaited = []session.CallState{session.CallStatePending, session.CallStateDelegated}
)

func propose(w *walk) payloads {
	args, hash := w.args()
	agentCall := w.id("a")
	id := events.CallID(w.state.ID, agentCall, "shell", hash)
	decision := rapid.SampledFrom([]string{"allow", "deny", "ask", "ask"}).Draw(w.t, "decision")
	ps := payloads{
		session.CallProposed{CallID: id, AgentCallID: agentCall, RunID: w.state.Run.ID, Tool: "shell", Args: args, ArgsHash: hash, Requester: "alice"},
		session.CallDecided{CallID: id, Decision: decision, Rule: "a rule", Policy: "coder", Revision: 1, Enforcement: "asked"},
	}
	if decision == "ask" {
		q := session.CallHumanConfirmRequired{CallID: id, Mode: "park", OnDeadline: "deny", ExecuteWithin: events.Duration(time.Hour), ExcludeRequester: true}
		if rapid.Bool().Draw(w.t, "expires") {
			q.Deadline = w.now.Add(5 * time.Minute)
		}
		if open := callsIn(w.state, session.CallStatePending); len(open) > 0 && rapid.Bool().Draw(w.t, "supersedes") {
			ps = append(payloads{session.CallSuperseded{CallID: open[0], By: id}}, ps...)
		}
		ps = append(ps, q)
	}
	return ps
}

func answer(w *walk) payloads {
	c := w.state.Calls[rapid.SampledFrom(answerable(w.state, w.now)).Draw(w.t, "call")]
	vote := session.CallVoteCast{CallID: c.ID, By: "bob", Decision: "approve", ArgsHash: c.ArgsHash}
	if rapid.Bool().Draw(w.t, "denies") {
		vote.Decision = "deny"
		return payloads{vote, session.CallDenied{CallID: c.ID, By: "bob"}}
	}
	return payloads{vote, session.CallApproved{CallID: c.ID, By: "bob", ArgsHash: c.ArgsHash, ExecuteBy: w.now.Add(time.Hour)}}
}

func answerable(s *session.State, now time.Time) []string {
	var ids []string
	for _, id := range callsIn(s, session.CallStatePending) {
		if d := s.Calls[id].Asked.Deadline; d.IsZero() || now.Before(d) {
			ids = append(ids, id)
		}
	}
	return ids
}

func overdue(s *session.State, now time.Time) []string {
	var ids []string
	for _, id := range callsIn(s, session.CallStatePending) {
		if d := s.Calls[id].Asked.Deadline; !d.IsZero() && !now.Before(d) {
			ids = append(ids, id)
		}
	}
	return ids
}

// startable are the calls that the open run may start: of its own chain, allowed
// or approved, in time.
func startable(s *session.State, now time.Time) []string {
	if s.Run == nil || s.Ending {
		return nil
	}
	var ids []string
	for _, id := range callsIn(s, session.CallStateAllowed, session.CallStateApproved) {
		c := s.Calls[id]
		if c.Root == s.Run.Root && (c.ExecuteBy.IsZero() || now.Before(c.ExecuteBy)) {
			ids = append(ids, id)
		}
	}
	return ids
}

package invariants_test

import (
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/invariants"
	"github.com/holdfast-io/holdfast/events/session"
)

func (w *world) withAsked()   { w.running(); w.asked("q1") }
func (w *world) withAllowed() { w.running(); w.allowed("a1") }

func (w *world) withApproved() {
	w.withAsked()
	w.add(vote("q1", "bob", "approve"), approved("q1", w.now.Add(time.Minute)))
}

func (w *world) withStarted() { w.withAllowed(); w.add(start("a1", "r1")) }

// proposedOtherwise plants a proposal after changing it.
func proposedOtherwise(change func(*session.CallProposed)) func(*world) {
	return func(w *world) {
		p := proposed("q9")
		change(&p)
		w.add(p)
	}
}

var brokenCalls = append(brokenQuestions, brokenExecutions...)

var brokenQuestions = []brokenLog{
	{invariants.Calls, "proposed twice", (*world).withAsked, func(w *world) { w.add(proposed("q1")) }},
	{invariants.Calls, "proposed by a run that is not open", (*world).running, proposedOtherwise(func(p *session.CallProposed) { p.RunID = "r9" })},
	{invariants.Calls, "proposed under another hash", (*world).running, proposedOtherwise(func(p *session.CallProposed) { p.ArgsHash = "00" })},
	{invariants.Calls, "proposed with other arguments", (*world).running, proposedOtherwise(func(p *session.CallProposed) { p.Args = []byte(`{"command":"rm"}`) })},
	{invariants.Calls, "proposed while ending", func(w *world) { w.running(); w.add(session.Terminated{}) }, func(w *world) { w.add(proposed("q1")) }},
	{invariants.Calls, "decided but never proposed", (*world).running, adds(session.CallDecided{CallID: "q9", Decision: "allow"})},
	{invariants.Calls, "decided twice", (*world).withAllowed, adds(session.CallDecided{CallID: "a1", Decision: "deny"})},
	{invariants.Calls, "decided as nothing", func(w *world) { w.running(); w.add(proposed("q1")) }, adds(session.CallDecided{CallID: "q1", Decision: "maybe"})},
	{invariants.Calls, "asked though allowed", (*world).withAllowed, adds(session.CallHumanConfirmRequired{CallID: "a1"})},
	{invariants.Calls, "asked undecided", func(w *world) { w.running(); w.add(proposed("q1")) }, adds(session.CallHumanConfirmRequired{CallID: "q1"})},
	{invariants.Calls, "a refused answer to nothing", (*world).running, adds(session.CallAnswerRefused{CallID: "q9"})},

	{invariants.Calls, "two final answers", (*world).withApproved, adds(session.CallDenied{CallID: "q1", By: "carol"})},
	{invariants.Calls, "a vote after the answer", (*world).withApproved, func(w *world) { w.add(vote("q1", "carol", "deny")) }},
	{invariants.Calls, "approved without a vote", (*world).withAsked, func(w *world) { w.add(approved("q1", w.now.Add(time.Minute))) }},
	{invariants.Calls, "approved by a no", (*world).withAsked, func(w *world) {
		w.add(vote("q1", "bob", "deny"), approved("q1", w.now.Add(time.Minute)))
	}},
	{invariants.Calls, "denied without a vote", (*world).withAsked, adds(session.CallDenied{CallID: "q1", By: "bob"})},
	{invariants.Calls, "approved with another hash", (*world).withAsked, func(w *world) {
		a := approved("q1", w.now.Add(time.Minute))
		a.ArgsHash = "00"
		w.add(vote("q1", "bob", "approve"), a)
	}},
	{invariants.Calls, "a vote with another hash", (*world).withAsked, func(w *world) {
		v := vote("q1", "bob", "approve")
		v.ArgsHash = "00"
		w.add(v)
	}},
	{invariants.Calls, "a vote by the requester", (*world).withAsked, func(w *world) { w.add(vote("q1", "alice", "approve")) }},
	{invariants.Calls, "a vote by a service", (*world).withAsked, func(w *world) {
		service, records := recordsOf(w.t, vote("q1", "bob", "approve"))
		env := w.envelope(service, records...)
		env.Actor = events.Actor{Kind: events.ActorAgent, ID: "s"}
		w.write(env)
	}},
	{invariants.Calls, "two votes by one person", (*world).withAsked, func(w *world) { w.add(vote("q1", "bob", "deny"), vote("q1", "bob", "approve")) }},
	{invariants.Calls, "a vote after the deadline", (*world).withAsked, func(w *world) {
		w.now = w.now.Add(2 * time.Hour)
		w.add(vote("q1", "bob", "approve"))
	}},
	{invariants.Calls, "expired before the deadline", (*world).withAsked, adds(session.CallExpired{CallID: "q1"})},
	{invariants.Calls, "cancelled after it was approved", (*world).withApproved, adds(session.CallCancelled{CallID: "q1"})},
	{invariants.Calls, "superseded after it was approved", (*world).withApproved, adds(session.CallSuperseded{CallID: "q1"})},
	{invariants.Calls, "ended with a question open", func(w *world) {
		w.withAsked()
		w.add(session.Terminated{})
		w.add(session.RunFinished{RunID: "r1", Outcome: "cancelled"})
		w.add(session.Released{Generation: 1})
	}, adds(session.Ended{Outcome: session.OutcomeTerminated})},
}

var brokenExecutions = []brokenLog{
	{invariants.Calls, "started unanswered", (*world).withAsked, func(w *world) { w.add(start("q1", "r1")) }},
	{invariants.Calls, "started though denied", func(w *world) {
		w.withAsked()
		w.add(vote("q1", "bob", "deny"), session.CallDenied{CallID: "q1", By: "bob"})
	}, func(w *world) { w.add(start("q1", "r1")) }},
	{invariants.Calls, "started twice", (*world).withStarted, func(w *world) { w.add(start("a1", "r1")) }},
	{invariants.Calls, "started again after it was completed", func(w *world) {
		w.withStarted()
		w.add(session.CallCompleted{CallID: "a1", Nonce: "x"})
	}, func(w *world) { w.add(start("a1", "r1")) }},
	{invariants.Calls, "started with another hash", (*world).withAllowed, func(w *world) {
		s := start("a1", "r1")
		s.ArgsHash = "00"
		w.add(s)
	}},
	{invariants.Calls, "started too late", (*world).withApproved, func(w *world) {
		w.now = w.now.Add(2 * time.Minute)
		w.add(start("q1", "r1"))
	}},
	{invariants.Calls, "started by a run that is not open", func(w *world) {
		w.withAllowed()
		w.add(session.RunFinished{RunID: "r1", Outcome: "success"})
	}, func(w *world) { w.add(start("a1", "r1")) }},
	{invariants.Calls, "started while ending", func(w *world) { w.withAllowed(); w.add(session.Terminated{}) }, func(w *world) { w.add(start("a1", "r1")) }},
	{invariants.Calls, "completed unstarted", (*world).withAllowed, adds(session.CallCompleted{CallID: "a1", Nonce: "x"})},
	{invariants.Calls, "completed under another nonce", (*world).withStarted, adds(session.CallCompleted{CallID: "a1", Nonce: "y"})},
	{invariants.Calls, "completed after it lapsed", func(w *world) {
		w.withStarted()
		w.add(session.CallLapsed{CallID: "a1", Kind: "unfinished"})
	}, adds(session.CallCompleted{CallID: "a1", Nonce: "x"})},
	{invariants.Calls, "lapsed while it is asked", (*world).withAsked, adds(session.CallLapsed{CallID: "q1", Kind: "unstarted"})},
}

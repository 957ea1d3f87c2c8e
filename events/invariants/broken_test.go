package invariants_test

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/invariants"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/events/session"
)

// brokenLog is a sound log (given) and one message that breaks it.
type brokenLog struct {
	want  invariants.Invariant
	name  string
	given func(*world)
	plant func(*world)
}

// adds plants one message of these events, written by their owner.
func adds(payloads ...session.Payload) func(*world) {
	return func(w *world) { w.add(payloads...) }
}

// spoils plants a message of one event after changing its envelope.
func spoils(change func(*world, *events.Envelope)) func(*world) {
	return func(w *world) {
		service, records := recordsOf(w.t, session.MessageReceived{MessageID: "m9", RunID: "r9", Content: []byte(`"x"`)})
		env := w.envelope(service, records...)
		change(w, &env)
		w.write(env)
	}
}

var broken = append(append(append(brokenBasics, brokenOwner...), brokenTurn...), brokenCalls...)

var brokenBasics = []brokenLog{
	{invariants.Chain, "not an envelope", (*world).created, func(w *world) { w.log.Plant(one, []byte(`{}`)) }},
	{invariants.Chain, "a second genesis", nil, func(w *world) { w.log.Plant(events.SubjectGenesis, []byte(`{}`)) }},
	{invariants.Chain, "a subject of nothing", nil, func(w *world) { w.log.Plant("ev.t1.thing.a", []byte(`{}`)) }},
	{invariants.Chain, "n repeated", (*world).created, spoils(func(_ *world, e *events.Envelope) { e.N-- })},
	{invariants.Chain, "n skipped", (*world).created, spoils(func(_ *world, e *events.Envelope) { e.N++ })},
	{invariants.Chain, "prev of another", (*world).created, spoils(func(_ *world, e *events.Envelope) { e.Prev = 1 })},
	{invariants.Chain, "begun again", (*world).created, spoils(func(_ *world, e *events.Envelope) { e.N, e.Prev = 1, 0 })},
	{invariants.Chain, "a command twice", (*world).created, spoils(func(_ *world, e *events.Envelope) { e.Command = "c1" })},

	{invariants.Types, "another service's event", (*world).created, spoils(func(_ *world, e *events.Envelope) { e.Service = events.ServicePolicy })},
	{invariants.Types, "an unknown event", (*world).created, spoils(func(_ *world, e *events.Envelope) { e.Events[0].Type = "session.melted" })},
	{invariants.Types, "an unknown version", (*world).created, spoils(func(_ *world, e *events.Envelope) { e.Events[0].V = 9 })},
	{invariants.Types, "a payload of another shape", (*world).created, spoils(func(_ *world, e *events.Envelope) { e.Events[0].Data = json.RawMessage(`[]`) })},
	{invariants.Types, "a policy by the workload service", nil, func(w *world) { w.revise("ev.t1.policy.a", policy.TypeApplied, events.ServiceWorkload) }},
	{invariants.Types, "a policy's event on a runtime", nil, func(w *world) { w.revise("ev.t1.runtime.a", policy.TypeApplied, events.ServiceWorkload) }},
	{invariants.Life, "a runtime removed before it was applied", nil, func(w *world) { w.revise("ev.t1.runtime.a", runtime.TypeRemoved, events.ServiceWorkload) }},

	{invariants.Life, "not created first", nil, adds(session.MessageReceived{MessageID: "m1", RunID: "r1"})},
	{invariants.Life, "created twice", (*world).created, adds(session.Created{})},
	{invariants.Life, "a message while ending", (*world).over, adds(session.MessageReceived{MessageID: "m9", RunID: "r9"})},
	{invariants.Life, "ended twice over", (*world).over, adds(session.Expired{})},
	{invariants.Life, "ended unasked", (*world).created, adds(session.Ended{Outcome: session.OutcomeCompleted})},
	{invariants.Life, "ended otherwise than asked", (*world).over, adds(session.Ended{Outcome: session.OutcomeExpired})},
	{invariants.Life, "anything after the end", (*world).ended, adds(session.ActivityNoted{Holder: "gw"})},
	{invariants.Life, "a phase passed over", (*world).created, adds(session.ClaimRequested{Generation: 1}, session.Claimed{Generation: 1, PodUID: "p"}, session.Ready{Generation: 1, PodUID: "p"})},

	{invariants.Use, "suspended while a run is open", (*world).running, adds(session.SuspendRequested{})},
	{invariants.Use, "suspended while a holder uses it", func(w *world) {
		w.ready()
		w.add(session.ActivityNoted{Holder: "gw", Until: w.now.Add(time.Minute)})
	}, adds(session.SuspendRequested{})},
	{invariants.Use, "suspended before it is ready", (*world).created, adds(session.SuspendRequested{})},
	{invariants.Use, "suspended twice", func(w *world) { w.ready(); w.add(session.SuspendRequested{}) }, adds(session.SuspendRequested{})},
	{invariants.Use, "a run while it is put away", func(w *world) { w.ready(); w.add(session.SuspendRequested{}) }, func(w *world) { w.add(w.started("r1")) }},
}

var brokenOwner = []brokenLog{
	{
		invariants.Owner, "a pod of another session", func(w *world) { w.ready(); w.on(two).created(); w.add(session.ClaimRequested{Generation: 1}) },
		func(w *world) { w.add(session.Claimed{Generation: 1, PodUID: "pod-" + one + "-1"}) },
	},
	{invariants.Owner, "a pod of another session at the resume", func(w *world) {
		w.ready()
		w.on(two).suspended()
		w.add(session.ResumeRequested{})
	}, func(w *world) { w.add(session.Resumed{Generation: 1, PodUID: "pod-" + one + "-1"}) }},
	{invariants.Owner, "a pod of an older generation", func(w *world) {
		w.ready()
		w.add(session.Lost{Generation: 1})
		w.add(session.ResumeRequested{})
		w.add(session.ClaimRequested{Generation: 2})
	}, func(w *world) { w.add(session.Claimed{Generation: 2, PodUID: w.pod(1)}) }},
	{invariants.Owner, "an older generation's event", func(w *world) {
		w.ready()
		w.add(session.Lost{Generation: 1})
		w.add(session.ResumeRequested{})
		w.claimed(2)
	}, func(w *world) { w.add(w.becameReady(1)) }},
	{invariants.Owner, "a generation passed over", (*world).created, adds(session.ClaimRequested{Generation: 2})},
	{invariants.Owner, "a generation repeated", func(w *world) { w.ready(); w.add(session.Lost{Generation: 1}) }, adds(session.ClaimRequested{Generation: 1})},
	{invariants.Owner, "claimed without a request", (*world).created, adds(session.Claimed{Generation: 0, PodUID: "p"})},
	{invariants.Owner, "two generations at a time", (*world).ready, adds(session.ClaimRequested{Generation: 2})},
	{invariants.Owner, "ready in another pod than claimed", func(w *world) { w.created(); w.claimed(1) }, adds(session.Ready{Generation: 1, PodUID: "other"})},
	{invariants.Owner, "resumed without a suspend", (*world).ready, adds(session.Resumed{Generation: 1, PodUID: "other"})},
	{invariants.Owner, "claimed for a session that ends", func(w *world) { w.created(); w.add(session.Terminated{}) }, adds(session.ClaimRequested{Generation: 1})},
	{invariants.Owner, "ended with a sandbox", func(w *world) {
		w.ready()
		w.add(session.Terminated{})
	}, adds(session.Ended{Outcome: session.OutcomeTerminated})},
	{invariants.Owner, "released twice", (*world).over, adds(session.Released{Generation: 1})},
	{invariants.Owner, "a run in another pod", (*world).ready, adds(session.RunStarted{RunID: "r1", Generation: 1, PodUID: "other"})},
}

var brokenTurn = []brokenLog{
	{invariants.Turn, "two runs open", func(w *world) {
		w.running()
		w.add(session.MessageReceived{MessageID: "m2", RunID: "r2"})
	}, func(w *world) { w.add(w.started("r2")) }},
	{invariants.Turn, "a run that nobody asked for", (*world).ready, func(w *world) { w.add(w.started("r9")) }},
	{invariants.Turn, "a run again", func(w *world) { w.running(); w.add(session.RunFinished{RunID: "r1", Outcome: "success"}) }, func(w *world) { w.add(w.started("r1")) }},
	{invariants.Turn, "a run queued twice", (*world).running, adds(session.MessageReceived{MessageID: "m9", RunID: "r1"})},
	{invariants.Turn, "a run before the continuation", func(w *world) {
		w.parked()
		w.add(session.MessageReceived{MessageID: "m2", RunID: "r2"})
	}, func(w *world) { w.add(w.started("r2")) }},
	{invariants.Turn, "the continuation of another", (*world).parked, func(w *world) {
		s := w.started("r2")
		s.ParentRunID = "r0"
		w.add(s)
	}},
	{invariants.Turn, "a run in a session that ends", func(w *world) { w.ready(); w.add(session.Terminated{}) }, func(w *world) { w.add(w.started("r1")) }},
	{invariants.Turn, "k backwards", func(w *world) {
		w.running()
		w.add(session.RunMessageRecorded{RunID: "r1", MessageID: "m2", K: 5})
	}, adds(session.RunMessageRecorded{RunID: "r1", MessageID: "m3", K: 4})},
	{invariants.Turn, "a message twice", func(w *world) {
		w.running()
		w.add(session.RunMessageRecorded{RunID: "r1", MessageID: "m2", K: 5})
	}, adds(session.RunMessageRecorded{RunID: "r1", MessageID: "m2", K: 6})},
	{invariants.Turn, "a message of a run that is not open", (*world).ready, adds(session.RunMessageRecorded{RunID: "r1", MessageID: "m2", K: 5})},
	{invariants.Turn, "finished before its last message", func(w *world) {
		w.running()
		w.add(session.RunMessageRecorded{RunID: "r1", MessageID: "m2", K: 5})
	}, adds(session.RunFinished{RunID: "r1", LastK: 4, Outcome: "success"})},
	{invariants.Turn, "finished twice", func(w *world) { w.running(); w.add(session.RunFinished{RunID: "r1", Outcome: "success"}) }, adds(session.RunFinished{RunID: "r1", Outcome: "cancelled"})},
	{invariants.Turn, "failed after it finished", func(w *world) { w.running(); w.add(session.RunFinished{RunID: "r1", Outcome: "success"}) }, adds(session.RunFailed{RunID: "r1"})},
	{invariants.Turn, "interrupted before it began", (*world).ready, adds(session.RunInterrupted{RunID: "r1", LastK: 1})},
	{invariants.Turn, "taken over before it began", (*world).ready, adds(session.RunTakenOver{RunID: "r1"})},
	{invariants.Turn, "ended with an open run", func(w *world) {
		w.running()
		w.add(session.Terminated{})
		w.add(session.Released{Generation: 1})
	}, adds(session.Ended{Outcome: session.OutcomeTerminated})},
}

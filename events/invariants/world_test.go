package invariants_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/events/session"
)

// world writes a log, message by message, without asking any decider.
type world struct {
	t        *testing.T
	log      *memlog.Log
	now      time.Time
	subject  string // where add writes
	seq, n   map[string]uint64
	commands int
}

const (
	one = "ev.t1.s.one"
	two = "ev.t1.s.two"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		t: t, log: memlog.New(eventlog.Genesis{LogID: "l", Epoch: "e"}), subject: one,
		now: time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC), seq: map[string]uint64{}, n: map[string]uint64{},
	}
}

func (w *world) envelope(service events.Service, records ...events.Record) events.Envelope {
	w.commands++
	w.now = w.now.Add(time.Second)
	actor := events.Actor{Kind: events.ActorService, ID: string(service)}
	for _, r := range records {
		if r.Type == session.TypeCallVoteCast {
			actor = events.Actor{Kind: events.ActorPerson, ID: "bob"}
		}
	}
	return events.Envelope{
		Command: fmt.Sprintf("c%d", w.commands), Actor: actor, Service: service, N: w.n[w.subject] + 1, Prev: w.seq[w.subject],
		Time: w.now, Events: records,
	}
}

// write plants an envelope, sound or not.
func (w *world) write(env events.Envelope) {
	w.t.Helper()
	raw, err := env.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	w.seq[w.subject] = w.log.Plant(w.subject, raw)
	w.n[w.subject] = env.LastN()
}

func recordsOf(t *testing.T, payloads ...session.Payload) (events.Service, []events.Record) {
	t.Helper()
	service, ok := session.Owner(session.TypeOf(payloads[0]))
	if !ok {
		t.Fatalf("no owner of %T", payloads[0])
	}
	records, err := session.Records(service, payloads...)
	if err != nil {
		t.Fatal(err)
	}
	return service, records
}

// add writes a message by the service that owns its events.
func (w *world) add(payloads ...session.Payload) {
	w.t.Helper()
	service, records := recordsOf(w.t, payloads...)
	w.write(w.envelope(service, records...))
}

func (w *world) on(subject string) *world { w.subject = subject; return w }

func (w *world) pod(generation int) string { return fmt.Sprintf("pod-%s-%d", w.subject, generation) }

func (w *world) created() {
	w.add(session.Created{Owner: "alice"}, session.MessageReceived{MessageID: "m1", RunID: "r1", Content: []byte(`"hi"`), Requester: "alice"})
}

func (w *world) claimed(generation int) {
	w.add(session.ClaimRequested{Generation: uint64(generation)})
	w.add(session.Claimed{Generation: uint64(generation), PodUID: w.pod(generation)})
}

func (w *world) ready() { w.created(); w.claimed(1); w.add(w.becameReady(1)) }

func (w *world) becameReady(generation int) session.Ready {
	return session.Ready{Generation: uint64(generation), PodUID: w.pod(generation)}
}

func (w *world) started(run string) session.RunStarted {
	return session.RunStarted{RunID: run, Generation: 1, PodUID: w.pod(1), Instance: "i", Requester: "alice"}
}

func (w *world) running() { w.ready(); w.add(w.started("r1")) }

// args are those of every call of the world, with their hash.
func args() (json.RawMessage, string) {
	canonical, hash, err := events.CanonicalArgs(json.RawMessage(`{"command":"make deploy > log"}`))
	if err != nil {
		panic(err) // a constant
	}
	return canonical, hash
}

func proposed(call string) session.CallProposed {
	a, hash := args()
	return session.CallProposed{CallID: call, RunID: "r1", Tool: "shell", Args: a, ArgsHash: hash, Requester: "alice"}
}

// allowed leaves a call that may start within a minute.
func (w *world) allowed(call string) {
	w.add(proposed(call), session.CallDecided{CallID: call, Decision: "allow", ExecuteBy: w.now.Add(time.Minute)})
}

// asked leaves a question that is open for an hour.
func (w *world) asked(call string) {
	w.add(proposed(call), session.CallDecided{CallID: call, Decision: "ask"}, session.CallHumanConfirmRequired{
		CallID: call, Deadline: w.now.Add(time.Hour), OnDeadline: "deny", ExcludeRequester: true,
	})
}

func vote(call, by, decision string) session.CallVoteCast {
	_, hash := args()
	return session.CallVoteCast{CallID: call, By: by, Decision: decision, ArgsHash: hash}
}

func approved(call string, by time.Time) session.CallApproved {
	_, hash := args()
	return session.CallApproved{CallID: call, By: "bob", ArgsHash: hash, ExecuteBy: by}
}

func start(call, run string) session.CallStarted {
	_, hash := args()
	return session.CallStarted{CallID: call, RunID: run, Nonce: "x", ArgsHash: hash}
}

// over leaves a session whose end is next.
func (w *world) over() {
	w.running()
	w.add(session.Terminated{})
	w.add(session.RunFinished{RunID: "r1", Outcome: "cancelled"})
	w.add(session.Released{Generation: 1})
}

func (w *world) ended() { w.over(); w.add(session.Ended{Outcome: session.OutcomeTerminated}) }

// suspended leaves a session that was put away after its run.
func (w *world) suspended() {
	w.running()
	w.add(session.RunFinished{RunID: "r1", Outcome: "success"})
	w.add(session.SuspendRequested{Cause: "request"})
	w.add(session.Suspended{Generation: 1})
}

// parked leaves a run that waits for the answer to a question.
func (w *world) parked() {
	w.running()
	w.asked("q1")
	w.add(session.RunInterrupted{RunID: "r1", LastK: 9, Calls: []string{"q1"}})
}

// revise writes on a runtime's or policy's subject.
func (w *world) revise(subject, eventType string, service events.Service) {
	w.t.Helper()
	before := w.subject
	w.on(subject).write(w.envelope(service, events.Record{Type: eventType, V: 1, Data: json.RawMessage(`{}`)}))
	w.on(before)
}

// whole writes two lives with everything in them.
func (w *world) whole() {
	w.revise("ev.t1.runtime.shell", runtime.TypeApplied, events.ServiceWorkload)
	w.revise("ev.t1.policy.coder", policy.TypeApplied, events.ServicePolicy)
	w.running()
	w.add(session.ActivityNoted{Holder: "gw", Until: w.now.Add(5 * time.Second)})
	w.allowed("a1")
	w.add(start("a1", "r1"))
	w.add(session.CallCompleted{CallID: "a1", Nonce: "x"})
	w.add(session.RunTakenOver{RunID: "r1", Instance: "j"})
	w.add(session.RunMessageRecorded{RunID: "r1", MessageID: "m2", Message: []byte(`{}`), K: 4})
	w.add(session.RunMessageRecorded{RunID: "r1", MessageID: "m3", Message: []byte(`{}`), K: 7})
	w.asked("q1")
	w.add(session.CallAnswerRefused{CallID: "q1", By: "alice", Code: "requester-excluded"})
	w.add(session.RunInterrupted{RunID: "r1", LastK: 9, Calls: []string{"q1"}})
	w.add(session.MessageReceived{MessageID: "m4", RunID: "r4", Content: []byte(`"more"`), Requester: "alice"})
	w.now = w.now.Add(time.Minute)
	w.add(session.SuspendRequested{Cause: "waiting"})
	w.add(session.Suspended{Generation: 1})
	w.add(vote("q1", "bob", "approve"), approved("q1", w.now.Add(time.Hour)))
	w.add(session.ResumeRequested{Cause: "answer"})
	w.add(session.Resumed{Generation: 1, PodUID: "pod-resumed"})
	w.add(session.RunStarted{RunID: "r1b", ParentRunID: "r1", Generation: 1, PodUID: "pod-resumed"})
	w.add(start("q1", "r1b"))
	w.add(session.Lost{Generation: 1, PodUID: "pod-resumed"})
	w.add(session.RunFailed{RunID: "r1b", Cause: "workload-lost"})
	w.add(session.CallLapsed{CallID: "q1", Kind: "unfinished"})
	w.add(session.ResumeRequested{Cause: "run"})
	w.claimed(2)
	w.add(w.becameReady(2))
	w.add(session.RunStarted{RunID: "r4", Generation: 2, PodUID: w.pod(2)})
	w.add(session.RunCancelRequested{RunID: "r4"})
	w.add(session.Terminated{Reason: "enough"})
	w.add(session.Released{Generation: 2})
	w.add(session.RunFinished{RunID: "r4", Outcome: "cancelled"})
	w.add(session.Ended{Outcome: session.OutcomeTerminated})
	w.add(session.CallAnswerRefused{CallID: "q1", By: "carol", Code: "session-ended"})
	w.on(two).suspended()
	w.revise("ev.t1.runtime.shell", runtime.TypeRemoved, events.ServiceWorkload)
}

package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/revisions"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

var discard = slog.New(slog.DiscardHandler)

// start is when the fixtures' first event happened.
var start = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

const testTenant = "acme"

func newLog() *memlog.Log { return memlog.New(eventlog.Genesis{LogID: "l1", Epoch: "e1"}) }

// writer writes what services would.
type scribe struct {
	t   testing.TB
	log *memlog.Log
	now time.Time
	id  int
}

func newScribe(t testing.TB, log *memlog.Log) *scribe { return &scribe{t: t, log: log, now: start} }

// put appends one command's records on a subject and gives its sequence.
func (s *scribe) put(subject string, service events.Service, records ...events.Record) uint64 {
	s.t.Helper()
	last, ok, err := s.log.Last(context.Background(), subject)
	if err != nil {
		s.t.Fatal(err)
	}
	s.id++
	s.now = s.now.Add(time.Second)
	env := events.Envelope{
		Command: fmt.Sprintf("cmd-%d", s.id), Actor: events.Actor{Kind: events.ActorPerson, ID: "user:alice"},
		Service: service, N: 1, Time: s.now, Events: records,
	}
	if service != events.ServiceSession {
		env.Actor = events.Actor{Kind: events.ActorService, ID: string(service)}
	}
	if ok {
		env.N, env.Prev = last.Envelope.LastN()+1, last.Seq
	}
	seq, err := s.log.Append(context.Background(), subject, env)
	if err != nil {
		s.t.Fatal(err)
	}
	return seq
}

// say appends payloads of one service to a session.
func (s *scribe) say(id string, service events.Service, payloads ...session.Payload) uint64 {
	s.t.Helper()
	records, err := session.Records(service, payloads...)
	if err != nil {
		s.t.Fatal(err)
	}
	subject, err := events.SessionSubject(testTenant, id)
	if err != nil {
		s.t.Fatal(err)
	}
	return s.put(subject, service, records...)
}

// create starts a session that redacts /password.
func (s *scribe) create(id string) uint64 {
	return s.say(id, events.ServiceSession, session.Created{
		Owner: "user:alice", Runtime: session.RuntimeRef{Name: "shell", Revision: 1}, Labels: map[string]string{"team": "search"},
		Terms: session.Terms{
			Kind: "agent", Policy: "coder", OnIdle: "suspend", OnLoss: "restart", Suspends: true, Redact: []string{"/password"},
			Idle: events.Duration(15 * time.Minute), Max: events.Duration(8 * time.Hour), SuspendWhileWaiting: events.Duration(2 * time.Minute),
		},
	}, session.MessageReceived{MessageID: id + "-m1", RunID: id + "-r1", Content: json.RawMessage(`"deploy with token=abcdef"`), Requester: "user:alice"})
}

// ready takes it to a ready sandbox.
func (s *scribe) ready(id string) {
	s.say(id, events.ServiceWorkload, session.ClaimRequested{Generation: 1, Deadline: s.now.Add(time.Minute)})
	s.say(id, events.ServiceWorkload, session.Claimed{Generation: 1, SandboxUID: id + "-sb", PodUID: id + "-pod", Path: "warm", Isolation: "landlock"})
	s.say(id, events.ServiceWorkload, session.Ready{Generation: 1, SandboxUID: id + "-sb", PodUID: id + "-pod", Path: "warm", Isolation: "landlock", LayersMs: map[string]int64{"claim": 3}})
}

// ask opens a run whose agent asks to deploy, and parks it. It gives the call's id.
func (s *scribe) ask(id string) string {
	s.say(id, events.ServiceRunner, session.RunStarted{RunID: id + "-r1", Instance: "i1", Generation: 1, PodUID: id + "-pod", Requester: "user:alice"})
	args := json.RawMessage(`{"command":"deploy <now>","password":"hunter2"}`)
	_, hash, err := events.CanonicalArgs(args)
	if err != nil {
		s.t.Fatal(err)
	}
	call := events.CallID(id, "a1", "deploy", hash)
	s.say(id, events.ServicePolicy,
		session.CallProposed{CallID: call, AgentCallID: "a1", RunID: id + "-r1", Tool: "deploy", Args: args, ArgsHash: hash, Requester: "user:alice", Modes: []string{"park"}},
		session.CallDecided{CallID: call, Decision: "ask", Rule: "deploys", Policy: "coder", Revision: 1, Enforcement: "asked"},
		session.CallHumanConfirmRequired{CallID: call, Mode: "park", Deadline: s.now.Add(30 * time.Minute), OnDeadline: "deny", Isolation: "landlock", Message: "Deploy \u202e?", ExecuteWithin: events.Duration(time.Hour)},
	)
	s.say(id, events.ServiceRunner, session.RunMessageRecorded{
		RunID: id + "-r1", MessageID: id + "-m2", Role: "assistant", K: 3,
		Message: json.RawMessage(`{"id":"m2","role":"assistant","content":"may I?","toolCalls":[{"id":"a1","type":"function","function":{"name":"deploy","arguments":"{\"password\":\"hunter2\"}"}}]}`),
	})
	s.say(id, events.ServiceRunner, session.RunInterrupted{RunID: id + "-r1", LastK: 4, Calls: []string{call}})
	return call
}

// answer approves the call, goes on with it, and ends the session.
func (s *scribe) answer(id, call string) uint64 {
	s.say(id, events.ServicePolicy, session.CallAnswerRefused{CallID: call, By: "user:mallory", Decision: "approve", Code: "not-an-approver"})
	s.say(id, events.ServicePolicy,
		session.CallVoteCast{CallID: call, By: "user:bob", Decision: "approve", Comment: "fine", ArgsHash: "h"},
		session.CallApproved{CallID: call, By: "user:bob", ArgsHash: "h", ExecuteBy: s.now.Add(time.Hour)})
	s.say(id, events.ServiceRunner, session.RunStarted{RunID: id + "-r2", ParentRunID: id + "-r1", Instance: "i1", Generation: 1, PodUID: id + "-pod", Requester: "user:alice"})
	s.say(id, events.ServicePolicy, session.CallStarted{CallID: call, RunID: id + "-r2", Nonce: "nonce", ArgsHash: "h"})
	code := 0
	s.say(id, events.ServicePolicy, session.CallCompleted{CallID: call, Nonce: "nonce", ExitCode: &code, Output: "done"})
	s.say(id, events.ServiceRunner, session.RunFinished{RunID: id + "-r2", LastK: 9, Outcome: "success"})
	s.say(id, events.ServiceSession, session.Terminated{Reason: "no longer needed"})
	s.say(id, events.ServiceWorkload, session.Released{Generation: 1})
	return s.say(id, events.ServiceSession, session.Ended{Outcome: session.OutcomeTerminated, Cause: "no longer needed"})
}

// define applies a runtime and a policy, changes the runtime and removes the policy.
func (s *scribe) define() uint64 {
	apply := func(agg events.Aggregate, name string, service events.Service, typ string, spec any) uint64 {
		data, err := json.Marshal(spec)
		if err != nil {
			s.t.Fatal(err)
		}
		subject, err := events.SubjectOf(agg, testTenant, name)
		if err != nil {
			s.t.Fatal(err)
		}
		return s.put(subject, service, events.Record{Type: typ, V: 1, Data: data})
	}
	shell := runtime.Spec{Name: "shell", Kind: runtime.KindAgent, Sandbox: runtime.Sandbox{Command: []string{"agent"}, Resources: runtime.Resources{Limits: map[string]string{"pids": "64", "memory": "1Gi"}}}}
	apply(events.AggregateRuntime, "shell", events.ServiceWorkload, runtime.TypeApplied, revisions.Applied[runtime.Spec]{Spec: shell})
	shell.OnIdle = "end"
	apply(events.AggregateRuntime, "shell", events.ServiceWorkload, runtime.TypeApplied, revisions.Applied[runtime.Spec]{Spec: shell})
	coder := policy.Spec{Name: "coder", Default: policy.Ask, Rules: []policy.Rule{{Name: "r", When: "true", Then: policy.Ask, Ask: &policy.AskFor{NeverExpire: true}}}}
	apply(events.AggregatePolicy, "coder", events.ServicePolicy, policy.TypeApplied, revisions.Applied[policy.Spec]{Spec: coder})
	return apply(events.AggregatePolicy, "coder", events.ServicePolicy, policy.TypeRemoved, revisions.Removed{})
}

func sid(i int) string { return events.HashID(events.PrefixSession, fmt.Sprint(i)) }

// within is how long a test waits for what must happen.
const within = 20 * time.Second

func timeout(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	t.Cleanup(cancel)
	return ctx
}

// until polls a condition.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ctx := timeout(t)
	for !holds() {
		if !sleep(ctx, 5*time.Millisecond) {
			t.Fatalf("never: %s", what)
		}
	}
}

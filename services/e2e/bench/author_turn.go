package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// turn is a run of the agent while its author writes it.
type turn struct {
	*author

	run string
	k   uint64
}

// turn writes the run that is due, with its continuations.
func (a *author) turn() {
	t := &turn{author: a, run: a.queued}
	t.start("")
	if a.chance(3) {
		t.add(events.ServiceRunner, session.RunTakenOver{RunID: t.run, Instance: "runner-2"})
	}
	for range 2 + a.rng.IntN(3) {
		switch {
		case a.chance(15):
			if !t.asked() {
				return
			}
		case a.chance(8):
			t.propose("deny")
			t.say("assistant", 12)
		case a.chance(1):
			call, _ := t.propose("allow")
			t.add(events.ServiceRunner, session.RunFailed{RunID: t.run, LastK: t.next(4), Cause: "agent-error", Detail: "the agent's process ended"})
			t.add(events.ServicePolicy, session.CallLapsed{CallID: call, Kind: "unstarted", Cause: "the run ended"})
			return
		default:
			t.execute(t.propose("allow"))
		}
	}
	t.say("assistant", 60)
	t.add(events.ServiceRunner, session.RunFinished{RunID: t.run, LastK: t.next(2), Outcome: "success", State: json.RawMessage(`{"step":9}`)})
}

func (t *turn) next(k int) uint64 {
	t.k += uint64(k)
	return t.k
}

func (t *turn) start(parent string) {
	t.add(events.ServiceRunner, session.RunStarted{
		RunID: t.run, ParentRunID: parent, Instance: "runner-1", Generation: t.generation, PodUID: t.pod, Requester: person.ID,
	})
}

// say records a message of the conversation.
func (t *turn) say(role string, length int) {
	id := t.newID(events.PrefixMessage)
	message := mustJSON(map[string]string{"id": id, "role": role, "content": t.text(length/2 + t.rng.IntN(length))})
	t.add(events.ServiceRunner, session.RunMessageRecorded{RunID: t.run, MessageID: id, Role: role, Message: message, K: t.next(5)})
}

// propose writes a call and what the policy says of it.
func (t *turn) propose(decision string) (call, hash string) {
	args, hash, err := events.CanonicalArgs(mustJSON(map[string]string{"command": "go test ./" + t.text(6)}))
	if err != nil {
		panic(err) // of a map of strings
	}
	agentCall := t.newID("a-")
	call = events.CallID(t.id, agentCall, "shell", hash)
	payloads := []session.Payload{
		session.CallProposed{
			CallID: call, AgentCallID: agentCall, RunID: t.run, Tool: "shell", Args: args, ArgsHash: hash, Requester: person.ID, Modes: []string{"park"},
		},
		session.CallDecided{
			CallID: call, Decision: decision, Rule: "the rest is asked", Policy: "default", Revision: 1, Enforcement: "mediated",
		},
	}
	if decision == "ask" {
		payloads = append(payloads, session.CallHumanConfirmRequired{
			CallID: call, Mode: "park", Approvers: []string{"role:approver"}, Deadline: t.now.Add(24 * time.Hour), OnDeadline: "deny",
			ExecuteWithin: events.Duration(time.Hour), Isolation: "namespaces",
		})
	}
	t.add(events.ServicePolicy, payloads...)
	return call, hash
}

// execute starts an allowed call and reports what came of it.
func (t *turn) execute(call, hash string) {
	nonce := t.newID("x-")
	t.add(events.ServicePolicy, session.CallStarted{CallID: call, RunID: t.run, Nonce: nonce, ArgsHash: hash})
	code := 0
	if t.chance(15) {
		code = 1
	}
	t.add(events.ServicePolicy, session.CallCompleted{CallID: call, Nonce: nonce, ExitCode: &code, Output: t.text(10 + t.rng.IntN(120))})
	t.say("tool", 20)
}

// asked parks the run for a question and goes on after the answer; false says that
// the run was cancelled meanwhile.
func (t *turn) asked() bool {
	call, hash := t.propose("ask")
	t.say("assistant", 10)
	t.add(events.ServiceRunner, session.RunInterrupted{
		RunID: t.run, LastK: t.next(2), Calls: []string{call},
		Interrupts: mustJSON([]map[string]string{{"id": call, "reason": "approval"}}), State: json.RawMessage(`{"step":3,"cwd":"/workspace"}`),
	})
	if t.chance(10) {
		t.add(events.ServicePolicy, session.CallAnswerRefused{CallID: call, By: person.ID, Decision: "approve", ArgsHash: hash, Code: "not-an-approver"})
	}
	vote := session.CallVoteCast{CallID: call, By: "bob", Decision: "approve", ArgsHash: hash, Comment: t.text(t.rng.IntN(8))}
	approved := false
	switch fate := t.rng.IntN(100); {
	case fate < 5:
		t.add(events.ServiceRunner, session.RunFinished{RunID: t.run, LastK: t.k, Outcome: "cancelled"})
		t.add(events.ServicePolicy, session.CallCancelled{CallID: call, Cause: "its run was cancelled"})
		return false
	case fate < 10:
		t.now = t.now.Add(24 * time.Hour)
		t.add(events.ServicePolicy, session.CallExpired{CallID: call, Deadline: t.now})
	case fate < 25:
		vote.Decision = "deny"
		t.add(events.ServicePolicy, vote, session.CallDenied{CallID: call, By: "bob", Reason: "not now"})
	default:
		t.add(events.ServicePolicy, vote, session.CallApproved{CallID: call, By: "bob", ArgsHash: hash, ExecuteBy: t.now.Add(time.Hour)})
		approved = true
	}
	parent := t.run
	t.run, t.k = events.HashID(events.PrefixRun, parent, "continue"), 0
	t.start(parent)
	if approved {
		t.execute(call, hash)
	}
	return true
}

// lives writes a log of count sessions, of which several are alive at a time, and
// hands each message over in the log's order; seq is the sequence that the first
// message will have.
func lives(count, alive int, seq uint64, put func(events.Message) error) error {
	var running []*writing
	for next := 0; next < count || len(running) > 0; {
		for ; next < count && len(running) < alive; next++ {
			id := fmt.Sprintf("s-life-%d", next)
			subject, err := events.SessionSubject(tenant, id)
			if err != nil {
				return err
			}
			running = append(running, &writing{subject: subject, steps: life(id, uint64(next))})
		}
		still := running[:0]
		for _, w := range running {
			m, err := w.message(seq)
			if err != nil {
				return err
			}
			if err := put(m); err != nil {
				return err
			}
			seq++
			if len(w.steps) > 0 {
				still = append(still, w)
			}
		}
		running = still
	}
	return nil
}

// writing is a life on its way into the log.
type writing struct {
	subject string
	steps   []step
	n, prev uint64
}

// message makes the next message, which will stand at seq.
func (w *writing) message(seq uint64) (events.Message, error) {
	s := w.steps[0]
	w.steps = w.steps[1:]
	records, err := session.Records(s.service, s.payloads...)
	if err != nil {
		return events.Message{}, err
	}
	actor := events.Actor{Kind: events.ActorService, ID: string(s.service)}
	switch p := s.payloads[0].(type) {
	case session.CallVoteCast:
		actor = events.Actor{Kind: events.ActorPerson, ID: p.By}
	case session.Created, session.MessageReceived, session.Terminated, session.CallAnswerRefused:
		actor = person
	default: // the service's own doing
	}
	env := events.Envelope{
		Command: events.HashID(events.PrefixCommand, w.subject, strconv.FormatUint(w.n, 10)), Actor: actor, Service: s.service,
		N: w.n + 1, Prev: w.prev, Time: s.at, Events: records,
	}
	m := events.Message{Subject: w.subject, Seq: seq, Envelope: env}
	if m.Raw, err = env.Encode(); err != nil {
		return m, err
	}
	w.n, w.prev = env.LastN(), seq
	return m, nil
}

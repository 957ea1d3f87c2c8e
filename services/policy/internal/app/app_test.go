package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/invariants"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/command"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/policy/internal/app"
)

// world is the app on the log of a session with an open run.
type world struct {
	t   *testing.T
	log *memlog.Log
	now time.Time
	app *app.App
}

var (
	agent = events.Actor{Kind: events.ActorAgent, ID: given.Session}
	bob   = events.Actor{Kind: events.ActorPerson, ID: "bob"}
	carol = events.Actor{Kind: events.ActorPerson, ID: "carol"}
)

const coder = `{"default":"ask","rules":[
	{"name":"reading","when":"args.command == 'ls'","then":"allow"},
	{"name":"never","when":"args.command == 'rm'","then":"deny","reason":"nobody needs this"}]}`

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, log: memlog.New(eventlog.Genesis{LogID: "log", Epoch: "1"}), now: given.Start}
	w.restart()
	for _, p := range given.Running {
		w.append(p)
	}
	t.Cleanup(func() {
		violations, err := invariants.Check(context.Background(), w.log)
		if err != nil || len(violations) > 0 {
			t.Errorf("%v, %v", violations, err)
		}
	})
	return w
}

func (w *world) restart() {
	w.app = app.New(app.Config{Log: w.log, Epoch: "1", Now: func() time.Time { return w.now }})
}

func (w *world) append(p session.Payload) {
	w.t.Helper()
	service, _ := session.Owner(session.TypeOf(p))
	subject, err := events.SessionSubject(given.Tenant, given.Session)
	if err != nil {
		w.t.Fatal(err)
	}
	store := eventlog.NewStore(eventlog.Config[*session.State]{Log: w.log, New: session.New, Service: service, Now: func() time.Time { return w.now }})
	if _, err := store.Execute(context.Background(), subject, eventlog.Command{
		ID: events.RandomID("other"), Actor: events.Actor{Kind: events.ActorService, ID: string(service)},
	}, func(*session.State, time.Time) ([]events.Record, error) { return session.Records(service, p) }); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) send(verb, id string, who events.Actor, body any) (command.Reply, error) {
	raw, err := json.Marshal(body)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.app.Handlers()[verb](context.Background(), given.Tenant, command.Request{
		CommandID: id, Actor: who, Roles: []string{"approver"}, Session: given.Session, Deadline: w.now.Add(time.Minute), Body: raw,
	})
}

// do gives a command's result, or the code it was refused with.
func (w *world) do(verb string, who events.Actor, body any) string {
	return answer(w.send(verb, events.RandomID("cmd"), who, body))
}

func answer(reply command.Reply, err error) string {
	if err != nil {
		return string(problem.From(err).Code)
	}
	return string(reply.Result)
}

func (w *world) apply(spec string) string {
	return w.do(verbs.PolicyApply, bob, verbs.ApplyBody{Name: "coder", Spec: json.RawMessage(spec)})
}

func (w *world) propose(cmd string) (out verbs.CallResult) {
	w.t.Helper()
	got := w.do(verbs.Propose, agent, proposal(cmd))
	if err := json.Unmarshal([]byte(got), &out); err != nil {
		w.t.Fatalf("propose %s: %s", cmd, got)
	}
	return out
}

func proposal(cmd string) verbs.ProposeBody {
	return verbs.ProposeBody{
		AgentCallID: "a-" + cmd, RunID: "r-1", Tool: "shell", Args: json.RawMessage(fmt.Sprintf(`{"command":%q}`, cmd)), Modes: []string{"hold", "park"},
	}
}

func (w *world) length() uint64 {
	info, err := w.log.Info(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return info.LastSeq
}

// From the question to the result, with a restart between every two steps.
func TestAskAnswerStartComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(coder)
	asked := w.propose("make")
	if asked.Decision != "ask" || asked.Mode != "park" || asked.State != "pending" || asked.Rule != "default" {
		t.Fatalf("%+v", asked)
	}
	w.restart()
	before := w.length()
	if again := w.propose("make"); again != asked || w.length() != before {
		t.Errorf("%+v, then %+v", asked, again)
	}
	yes := verbs.AnswerBody{Call: asked.Call, Decision: "approve", ArgsHash: asked.ArgsHash}
	if got := w.do(verbs.Answer, bob, yes); !strings.Contains(got, `"state":"approved"`) || !strings.Contains(got, `"first":true`) {
		t.Fatal(got)
	}
	w.restart()
	if got := w.do(verbs.Answer, bob, yes); !strings.Contains(got, `"first":false`) {
		t.Error(got)
	}
	start := verbs.StartBody{Call: asked.Call, RunID: "r-1", ArgsHash: asked.ArgsHash, Nonce: "nonce-one"}
	for range 2 {
		if got := w.do(verbs.Start, agent, start); got != `{"go":true}` {
			t.Fatal(got)
		}
		w.restart()
	}
	start.Nonce = "nonce-two"
	if got := w.do(verbs.Start, agent, start); got != "already-started" {
		t.Errorf("a second execution: %s", got)
	}
	zero := 0
	for range 2 {
		if got := w.do(verbs.Complete, agent, verbs.CompleteBody{Call: asked.Call, RunID: "r-1", Nonce: "nonce-one", ExitCode: &zero}); got != "" {
			t.Fatal(got)
		}
	}
	if got := w.do(verbs.ReadCall, agent, verbs.ReadCallBody{Call: asked.Call}); !strings.Contains(got, `"state":"completed"`) || !strings.Contains(got, `"decision":"allow"`) {
		t.Error(got)
	}
}

// The policy's word counts as of the proposal; without a policy all is denied.
func TestPolicyInForce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := w.propose("ls"); got.Decision != "deny" || got.Rule != app.MissingPolicyRule {
		t.Errorf("without a policy: %+v", got)
	}
	if first, again := w.apply(coder), w.apply(coder); first != `{"revision":1,"changed":true}` || again != `{"revision":1,"changed":false}` {
		t.Errorf("%s, then %s", first, again)
	}
	if got := w.propose("rm"); got.Decision != "deny" || got.Rule != "never" || got.Reason != "nobody needs this" {
		t.Errorf("%+v", got)
	}
	if got := w.propose("pwd"); got.Decision != "ask" {
		t.Errorf("%+v", got)
	}
	w.apply(strings.Replace(coder, `"default":"ask"`, `"default":"allow"`, 1))
	if got := w.propose("whoami"); got.Decision != "allow" {
		t.Errorf("under the new revision: %+v", got)
	}
	if got := w.propose("pwd"); got.Decision != "ask" {
		t.Errorf("what was asked stays asked: %+v", got)
	}
	if got := w.do(verbs.PolicyRemove, bob, verbs.RemoveBody{Name: "coder"}); got != "" {
		t.Fatal(got)
	}
	if got := w.propose("id"); got.Decision != "deny" {
		t.Errorf("after its removal: %+v", got)
	}
	if got := w.do(verbs.PolicyRemove, bob, verbs.RemoveBody{Name: "coder"}); got != "policy-not-found" {
		t.Error(got)
	}
}

// Two answers at the same moment: one counts, the other is told which.
func TestTwoAnswersAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(coder)
	asked := w.propose("make")
	first := w.app
	w.restart() // two processes
	apps := []*app.App{first, w.app}
	codes := make([]string, 2)
	winners := make([]json.RawMessage, 2)
	var wg sync.WaitGroup
	for i, who := range []events.Actor{bob, carol} {
		wg.Go(func() {
			body, _ := json.Marshal(verbs.AnswerBody{Call: asked.Call, Decision: []string{"approve", "deny"}[i], ArgsHash: asked.ArgsHash})
			_, err := apps[i].Handlers()[verbs.Answer](context.Background(), given.Tenant, command.Request{
				CommandID: "cmd-" + who.ID, Actor: who, Roles: []string{"approver"}, Session: given.Session, Body: body,
			})
			if err != nil {
				p := problem.From(err)
				codes[i], winners[i] = string(p.Code), p.Winner
			}
		})
	}
	wg.Wait()
	lost := 0
	if codes[1] != "" {
		lost = 1
	}
	if codes[lost] != "already-decided" || codes[1-lost] != "" || !strings.Contains(string(winners[lost]), []string{"carol", "bob"}[lost]) {
		t.Fatalf("%v, winners %s", codes, winners)
	}
	// The loser asks again under the same key: the same refusal, with the winner.
	who, decision := []events.Actor{bob, carol}[lost], []string{"approve", "deny"}[lost]
	before := w.length()
	_, err := w.send(verbs.Answer, "cmd-"+who.ID, who, verbs.AnswerBody{Call: asked.Call, Decision: decision, ArgsHash: asked.ArgsHash})
	if p := problem.From(err); p == nil || p.Code != "already-decided" || string(p.Winner) != string(winners[lost]) || w.length() != before {
		t.Errorf("again: %v", err)
	}
}

// An answer after a deadline that no sweep has acted on yet finds it passed.
func TestAnswerAfterAnUnsweptDeadline(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(coder)
	asked := w.propose("make")
	w.now = w.now.Add(24 * time.Hour)
	if got := w.do(verbs.Answer, bob, verbs.AnswerBody{Call: asked.Call, Decision: "approve", ArgsHash: asked.ArgsHash}); got != "approval-expired" {
		t.Error(got)
	}
	if got := w.do(verbs.ReadCall, agent, verbs.ReadCallBody{Call: asked.Call}); !strings.Contains(got, `"state":"expired"`) || !strings.Contains(got, `"decision":"deny"`) {
		t.Error(got)
	}
	before := w.length()
	if err := w.app.Due(context.Background(), given.Tenant, given.Session, session.Deadline{Kind: session.DeadlineApproval, Key: asked.Call}); err != nil || w.length() != before {
		t.Errorf("the sweep comes later: %v, %d messages more", err, w.length()-before)
	}
}

// Every nonsense is refused with its code.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(coder)
	asked := w.propose("make")
	before := w.length()
	change := func(f func(*verbs.ProposeBody)) verbs.ProposeBody { p := proposal("x"); f(&p); return p }
	spec := func(s string) verbs.ApplyBody { return verbs.ApplyBody{Name: "other", Spec: json.RawMessage(s)} }
	for name, tc := range map[string]struct {
		verb string
		who  events.Actor
		body any
		code string
	}{
		"arguments in a list":      {verbs.Propose, agent, change(func(p *verbs.ProposeBody) { p.Args = json.RawMessage(`[]`) }), "invalid-request"},
		"a key twice":              {verbs.Propose, agent, change(func(p *verbs.ProposeBody) { p.Args = json.RawMessage(`{"a":1,"a":2}`) }), "invalid-request"},
		"an inexact number":        {verbs.Propose, agent, change(func(p *verbs.ProposeBody) { p.Args = json.RawMessage(`{"a":12345678901234567890}`) }), "invalid-request"},
		"another run":              {verbs.Propose, agent, change(func(p *verbs.ProposeBody) { p.RunID = "r-9" }), "illegal-transition"},
		"an agent answers":         {verbs.Answer, agent, verbs.AnswerBody{Call: asked.Call, Decision: "approve", ArgsHash: asked.ArgsHash}, "not-an-approver"},
		"an unknown answer":        {verbs.Answer, bob, verbs.AnswerBody{Call: asked.Call, Decision: "maybe", ArgsHash: asked.ArgsHash}, "invalid-request"},
		"an unknown call":          {verbs.Answer, bob, verbs.AnswerBody{Call: "c-9", Decision: "approve"}, "not-found"},
		"read an unknown call":     {verbs.ReadCall, agent, verbs.ReadCallBody{Call: "c-9"}, "not-found"},
		"start an unknown call":    {verbs.Start, agent, verbs.StartBody{Call: "c-9", RunID: "r-1", Nonce: "n"}, "not-found"},
		"start what is asked":      {verbs.Start, agent, verbs.StartBody{Call: asked.Call, RunID: "r-1", ArgsHash: asked.ArgsHash, Nonce: "n"}, "illegal-transition"},
		"complete an unknown call": {verbs.Complete, agent, verbs.CompleteBody{Call: "c-9", RunID: "r-1", Nonce: "n"}, "not-found"},
		"a policy of nonsense":     {verbs.PolicyApply, bob, spec(`{"default":"perhaps"}`), "policy-invalid"},
		"a policy's unknown field": {verbs.PolicyApply, bob, spec(`{"default":"ask","x":1}`), "policy-invalid"},
		"a policy that is a list":  {verbs.PolicyApply, bob, spec(`[]`), "policy-invalid"},
		"a policy's other name":    {verbs.PolicyApply, bob, spec(`{"name":"coder","default":"ask"}`), "policy-invalid"},
		"an unknown body":          {verbs.Answer, bob, map[string]int{"x": 1}, "invalid-request"},
	} {
		if got := w.do(tc.verb, tc.who, tc.body); got != tc.code {
			t.Errorf("%s: %s, want %s", name, got, tc.code)
		}
	}
	if w.length() != before {
		t.Error("something was appended")
	}
}

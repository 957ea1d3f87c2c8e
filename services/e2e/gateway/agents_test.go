package gateway_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	fold "github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
)

// working is a session whose agent has a run open: the session, the run and the
// sandbox's token.
func (w *world) working() (id, run, token string) {
	w.t.Helper()
	w.shell()
	s := w.create()
	w.ready(s.ID)
	sent := decode[api.MessageAccepted](w.call("alice", "POST", "/v1/sessions/"+s.ID+"/messages", api.SendMessage{Content: "ls"}).want(202))
	w.runStarted(s.ID, sent.RunID, "alice")
	return s.ID, sent.RunID, w.sandboxToken(s.ID, 1, "pod-1")
}

func shellCall(run, call, command string, modes ...api.CallMode) api.ProposeCall {
	args, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		panic(err)
	}
	return api.ProposeCall{AgentCallID: call, RunID: run, Tool: "shell", Args: args, Modes: modes}
}

func TestAgentAsksStartsAndReports(t *testing.T) {
	t.Parallel()
	w := start(t)
	id, run, token := w.working()
	me := decode[api.AgentSession](w.ask(token, "GET", "/v1/agent/session", nil).want(200))
	if me.ID != id || me.Generation != 1 || me.Run != run || me.Isolation != isolation || me.Runtime.Name != "coder" {
		t.Errorf("session: %+v", me)
	}
	var input struct {
		ThreadID, RunID string
		Messages        []struct{ Role, Content string }
	}
	got := w.ask(token, "GET", "/v1/agent/input", nil).want(200)
	if err := json.Unmarshal(got.body, &input); err != nil || input.ThreadID != id || input.RunID != run || len(input.Messages) != 1 ||
		input.Messages[0].Content != "ls" {
		t.Errorf("input: %s", got.body)
	}

	allowed := decode[api.CallDecided](w.ask(token, "POST", "/v1/agent/calls", shellCall(run, "c1", "ls")).want(200))
	if allowed.Decision != "allow" || allowed.Rule != "reading" {
		t.Errorf("ls: %+v", allowed)
	}
	denied := decode[api.CallDecided](w.ask(token, "POST", "/v1/agent/calls", shellCall(run, "c2", "sudo ls")).want(200))
	if denied.Decision != "deny" || denied.Reason != "nobody needs this" {
		t.Errorf("sudo: %+v", denied)
	}
	path := "/v1/agent/calls/" + allowed.Call
	begin := api.StartCall{RunID: run, ArgsHash: "sha256:" + allowed.ArgsHash, Nonce: "nonce-one"}
	w.ask(token, "POST", path+"/start", api.StartCall{RunID: run, ArgsHash: denied.ArgsHash, Nonce: "nonce-one"}).problem(api.CodeArgsChanged)
	for range 2 { // the same nonce gets the same answer
		if got := decode[api.CallStarted](w.ask(token, "POST", path+"/start", begin).want(200)); !got.Go {
			t.Error("no go")
		}
	}
	begin.Nonce = "nonce-two"
	w.ask(token, "POST", path+"/start", begin).problem(api.CodeAlreadyStarted)
	code := 0
	report := api.CompleteCall{RunID: run, Nonce: "nonce-one", ExitCode: &code, Output: "a\nb\n"}
	if got := decode[api.Call](w.ask(token, "POST", path+"/result", report).want(200)); got.State != "completed" || got.ID != allowed.Call {
		t.Errorf("completed: %+v", got)
	}
	w.ask(token, "GET", "/v1/agent/calls/"+someCall, nil).problem(api.CodeNotFound) // another session's
	w.ask(token, "POST", "/v1/agent/events", api.PushEvents{RunID: run, K: 1, Events: []json.RawMessage{json.RawMessage(`{"type":"X"}`)}}).
		problem(api.CodeIllegalTransition)
}

func TestPeopleAnswer(t *testing.T) {
	t.Parallel()
	w := start(t)
	_, run, token := w.working()
	asked := decode[api.CallWaiting](w.ask(token, "POST", "/v1/agent/calls", shellCall(run, "c1", "make", "park")).want(202))
	if asked.Mode != "park" || asked.Approval != asked.Call {
		t.Errorf("asked: %+v", asked)
	}
	path := "/v1/approvals/" + asked.Approval
	question := decode[api.Approval](w.call("bob", "GET", path, nil).want(200))
	if question.State != "pending" || question.ArgsHash != asked.ArgsHash || string(question.Args) != `{"command":"make"}` {
		t.Errorf("question: %+v", question)
	}
	yes := api.DecideApproval{Decision: "approve", ArgsHash: asked.ArgsHash, Comment: "go ahead"}
	w.call("alice", "POST", path+"/decisions", yes).problem(api.CodeNotAnApprover)
	wrong := yes
	wrong.ArgsHash = "00" + asked.ArgsHash[2:]
	w.call("bob", "POST", path+"/decisions", wrong).problem(api.CodeArgsChanged)

	// The agent waits: the answer comes the moment it is given.
	held := make(chan answer, 1)
	go func() { held <- w.ask(token, "GET", "/v1/agent/calls/"+asked.Call+"?wait=30", nil) }()
	first := w.call("bob", "POST", path+"/decisions", yes, "Idempotency-Key: a").want(201)
	if got := decode[api.Approval](first); got.State != "approved" || got.Decision.By != "user:bob" || first.header.Get("Holdfast-Seq") == "" {
		t.Errorf("answered: %+v", got)
	}
	if got := decode[api.CallDecided]((<-held).want(200)); got.Decision != "allow" {
		t.Errorf("held answer: %+v", got)
	}
	w.call("bob", "POST", path+"/decisions", yes).want(200)
	no := yes
	no.Decision = "deny"
	if p := w.call("admin", "POST", path+"/decisions", no).problem(api.CodeAlreadyDecided); p.Winner.By != "user:bob" || p.Winner.Decision != "approve" {
		t.Errorf("winner: %+v", p.Winner)
	}
	w.call("bob", "POST", "/v1/approvals/"+someCall+"/decisions", yes).problem(api.CodeNotFound)
	w.call("bob", "GET", "/v1/approvals/"+someCall, nil).problem(api.CodeNotFound)
}

// An agent that can only hold is answered when the person has: nobody polls.
func TestHoldWaitsInTheProposal(t *testing.T) {
	t.Parallel()
	w := start(t)
	id, run, token := w.working()
	held := make(chan answer, 1)
	go func() { held <- w.ask(token, "POST", "/v1/agent/calls", shellCall(run, "c1", "make", "hold")) }()
	var call *fold.Call
	w.until(id, func(s *fold.State) bool {
		for _, c := range s.Calls {
			call = c
		}
		return call != nil
	})
	w.call("bob", "POST", "/v1/approvals/"+call.ID+"/decisions", api.DecideApproval{Decision: "deny", ArgsHash: call.ArgsHash, Comment: "not today"}).want(201)
	if got := decode[api.CallDecided]((<-held).want(200)); got.Decision != "deny" || got.Reason != "not today" {
		t.Errorf("held answer: %+v", got)
	}
	// A wait that is over is the same question still.
	parked := decode[api.CallWaiting](w.ask(token, "POST", "/v1/agent/calls", shellCall(run, "c2", "make all", "park")).want(202))
	again := decode[api.CallWaiting](w.ask(token, "GET", "/v1/agent/calls/"+parked.Call+"?wait=1", nil).want(202))
	if again != parked {
		t.Errorf("asked %+v, then %+v", parked, again)
	}
}

// Only the sandbox that is the session's own now speaks for it.
func TestAgentsAreFenced(t *testing.T) {
	t.Parallel()
	w := start(t)
	id, _, token := w.working()
	w.ask(token, "GET", "/v1/agent/session", nil).want(200)
	for name, other := range map[string]string{
		"older generation": w.sandboxToken(id, 2, "pod-1"),
		"other pod":        w.sandboxToken(id, 1, "pod-2"),
		"other session":    w.sandboxToken(someSession, 1, "pod-1"),
		"a person":         tokenOf("admin"),
		"nobody":           "",
	} {
		t.Run(name, func(*testing.T) { w.ask(other, "GET", "/v1/agent/session", nil).problem(api.CodeUnauthenticated) })
	}
	expired, _, err := sandboxtoken.Mint(w.key, sandboxtoken.Claims{Tenant: "default", Session: id, Generation: 1, PodUID: "pod-1"},
		time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	w.ask(expired, "GET", "/v1/agent/session", nil).problem(api.CodeUnauthenticated)
	w.append(w.workload, events.ServiceWorkload, id, fold.Lost{Generation: 1, PodUID: "pod-1", Cause: "killed"})
	w.ask(token, "GET", "/v1/agent/session", nil).problem(api.CodeUnauthenticated)
	// And a person's listener takes no sandbox's token.
	w.call("", "GET", "/v1/me", nil, "Authorization: Bearer "+token).problem(api.CodeUnauthenticated)
}

func TestAgentFloods(t *testing.T) {
	t.Parallel()
	w := start(t)
	_, _, token := w.working()
	for range 1000 {
		if got := w.ask(token, "GET", "/v1/agent/session", nil); got.status == http.StatusTooManyRequests {
			got.problem(api.CodeQuotaExceeded)
			return
		}
	}
	t.Error("a thousand requests were let through")
}

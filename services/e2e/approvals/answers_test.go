package approvals_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// connection is somebody's client on a connection of its own.
func connection(t *testing.T, h *harness.Holdfast, name string) *apiclient.ClientWithResponses {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := apiclient.New(apiclient.Config{URL: h.URL, Token: h.Token(name), HTTP: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Two people answer at the same moment, differently: one counts, the other is told
// who won, and both are in the log.
func twoAnswers(t *testing.T, h *harness.Holdfast) {
	s := h.Create("alice", "touch made")
	a := h.AwaitQuestion(s.ID)
	type outcome struct {
		by     string
		status int
		err    error
	}
	people := map[string]api.Answer{"bob": api.AnswerApprove, "admin": api.AnswerDeny}
	outcomes := make(chan outcome, len(people))
	var ready, done sync.WaitGroup
	ready.Add(len(people))
	for name, answer := range people {
		c := connection(t, h, name)
		done.Go(func() {
			_, err := c.GetMeWithResponse(context.Background()) // the connection is there
			ready.Done()
			ready.Wait()
			o := outcome{by: "user:" + name, err: err}
			if err == nil {
				var r *apiclient.DecideApprovalResponse
				r, o.err = c.DecideApprovalWithResponse(context.Background(), a.ID, nil, api.DecideApproval{Decision: answer, ArgsHash: a.ArgsHash})
				if o.err == nil {
					o.status = r.StatusCode()
				}
			}
			outcomes <- o
		})
	}
	done.Wait()
	first, second := <-outcomes, <-outcomes
	if first.err != nil {
		first, second = second, first
	}
	if first.err != nil || first.status != http.StatusCreated {
		t.Fatalf("nobody won: %+v, %+v", first, second)
	}
	p := harness.Refused(t, second.err, api.CodeAlreadyDecided)
	if p.Winner.By != first.by || p.Winner.At.IsZero() || p.Winner.Decision != people[strings.TrimPrefix(first.by, "user:")] {
		t.Errorf("the winner is %+v, want %s", p.Winner, first.by)
	}
	continued(h, s.ID, a.RunID)
	vote, refused := harness.One[session.CallVoteCast](h, s.ID), harness.One[session.CallAnswerRefused](h, s.ID)
	if "user:"+vote.By != first.by || "user:"+refused.By != second.by || refused.Code != string(api.CodeAlreadyDecided) {
		t.Errorf("in the log: %+v, %+v", vote, refused)
	}
}

// Every answer that doesn't count says why, changes nothing, and is in the audit.
func refusals(t *testing.T, h *harness.Holdfast) {
	s := h.Create("alice", "touch made")
	a := h.AwaitQuestion(s.ID)

	_, err := h.Decide("alice", a, api.AnswerApprove, "")
	harness.Refused(t, err, api.CodeNotAnApprover)
	other := a
	other.ArgsHash = strings.Repeat("0", 64)
	_, err = h.Decide("bob", other, api.AnswerApprove, "")
	harness.Refused(t, err, api.CodeArgsChanged)
	nobodys := a
	nobodys.ID = s.ID + ".c-" + strings.Repeat("a", 20)
	_, err = h.Decide("bob", nobodys, api.AnswerApprove, "")
	harness.Refused(t, err, api.CodeNotFound)
	if now := h.Session(s.ID); now.Waiting != 1 {
		t.Fatalf("%d questions are open", now.Waiting)
	}

	h.Approve("bob", a)
	if status, err := h.Decide("bob", a, api.AnswerApprove, ""); err != nil || status != http.StatusOK {
		t.Errorf("the same answer again: %d, %v", status, err)
	}
	_, err = h.Decide("bob", a, api.AnswerDeny, "")
	if p := harness.Refused(t, err, api.CodeAlreadyDecided); p.Winner.By != "user:bob" || p.Winner.Decision != api.AnswerApprove {
		t.Errorf("the winner is %+v", p.Winner)
	}

	minSeq := h.Session(s.ID).Seq
	r, err := h.Client("admin").ListAuditWithResponse(h.Context(), &api.ListAuditParams{
		Session: &s.ID, Type: &[]api.EventType{"call.answer-refused"}, MinSeq: &minSeq,
	})
	if err != nil {
		t.Fatal(err)
	}
	var recorded []string
	for _, e := range slices.Backward(r.JSON200.Items) {
		if e.Outcome != "refused" {
			t.Errorf("the outcome of a refusal is %q", e.Outcome)
		}
		recorded = append(recorded, e.Actor)
	}
	if got := strings.Join(recorded, " "); got != "user:alice user:bob user:bob" {
		t.Errorf("refused in the audit: %s", got)
	}
}

// Whoever wrote to the run may not answer for it, also with every role.
func excluded(t *testing.T, h *harness.Holdfast) {
	ruled(h, "four-eyes", api.Ask{ExcludeRequester: true, Approvers: []api.Approver{"role:approver"}}, nil)
	s := h.CreateOf("admin", api.CreateSession{Runtime: "four-eyes", Message: "touch made"})
	a := h.AwaitQuestion(s.ID)
	_, err := h.Decide("admin", a, api.AnswerApprove, "")
	harness.Refused(t, err, api.CodeRequesterExcluded)
	h.Approve("bob", a)
	continued(h, s.ID, a.RunID)
}

func expired(t *testing.T, h *harness.Holdfast) {
	ruled(h, "hurried", api.Ask{Deadline: "1s"}, nil)
	s := h.CreateOf("alice", api.CreateSession{Runtime: "hurried", Message: "touch made\nls"})
	h.AwaitFact(s.ID, "the question expires", func(f []harness.Fact) bool { return len(harness.Of[session.CallExpired](f)) == 1 })
	asked := harness.Of[session.CallProposed](h.Facts(s.ID))[0]
	said := continued(h, s.ID, asked.RunID)
	if !strings.HasPrefix(said, "$ touch made\n") || strings.Contains(said, "exit 0\n$ ls\nmade") || !strings.HasSuffix(said, "$ ls\nexit 0\n") {
		t.Errorf("went on with %q", said)
	}
	r, err := h.Client("bob").GetApprovalWithResponse(h.Context(), asked.CallID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.JSON200.State != api.CallStateExpired {
		t.Errorf("the question is %s", r.JSON200.State)
	}
	_, err = h.Decide("bob", *r.JSON200, api.AnswerApprove, "")
	harness.Refused(t, err, api.CodeApprovalExpired)
}

func allowedAtDeadline(t *testing.T, h *harness.Holdfast) {
	ruled(h, "trusting", api.Ask{Deadline: "1s", OnDeadline: "allow"}, nil)
	s := h.CreateOf("alice", api.CreateSession{Runtime: "trusting", Message: "touch made\nls"})
	h.AwaitFact(s.ID, "the deadline approves", func(f []harness.Fact) bool { return len(harness.Of[session.CallApproved](f)) == 1 })
	asked := harness.Of[session.CallProposed](h.Facts(s.ID))[0]
	if said := continued(h, s.ID, asked.RunID); said != "$ touch made\nexit 0\n$ ls\nmade\nexit 0\n" {
		t.Errorf("went on with %q", said)
	}
	r, err := h.Client("bob").GetApprovalWithResponse(h.Context(), asked.CallID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if by := r.JSON200.Decision.By; by != "service:policy" {
		t.Errorf("approved by %q", by)
	}
}

// open makes a session with a run that stays open, and gives what its agent can
// ask of Holdfast and the run.
func open(h *harness.Holdfast, runtime string) (*api.Session, *apiclient.ClientWithResponses, string) {
	s := h.CreateOf("alice", api.CreateSession{Runtime: runtime, Message: "sleep 60"})
	facts := h.AwaitFact(s.ID, "the command runs", func(f []harness.Fact) bool { return len(harness.Of[session.CallStarted](f)) == 1 })
	return s, h.Agent(s.ID), harness.Of[session.RunStarted](facts)[0].RunID
}

func proposal(run, agentCall, command string) api.ProposeCall {
	return api.ProposeCall{AgentCallID: agentCall, RunID: run, Tool: "shell", Args: []byte(`{"command": "` + command + `"}`), Modes: []api.CallMode{api.CallModePark}}
}

// What was approved has to be started in time.
func lapsed(t *testing.T, h *harness.Holdfast) {
	ruled(h, "brief", api.Ask{ExecuteWithin: "1s"}, nil)
	s, agent, run := open(h, "brief")
	r, err := agent.ProposeCallWithResponse(h.Context(), proposal(run, "c-1", "touch made"))
	if err != nil || r.JSON202 == nil {
		t.Fatalf("propose: %v", err)
	}
	h.Approve("bob", h.AwaitQuestion(s.ID))
	h.AwaitFact(s.ID, "the permission lapses", func(f []harness.Fact) bool {
		l := harness.Of[session.CallLapsed](f)
		return len(l) == 1 && l[0].Kind == "unstarted"
	})
	_, err = agent.StartCallWithResponse(h.Context(), r.JSON202.Call, api.StartCall{RunID: run, ArgsHash: r.JSON202.ArgsHash, Nonce: "nonce-of-the-test"})
	if err == nil {
		t.Error("it was started after its time")
	}
}

// A request that is repeated, also at the same moment, asks the same question; the
// same call with other arguments takes the place of the first.
func sameQuestion(t *testing.T, h *harness.Holdfast) {
	ruled(h, "once", api.Ask{}, nil)
	s, agent, run := open(h, "once")
	calls := make(chan string, 4)
	var done sync.WaitGroup
	for range cap(calls) {
		done.Go(func() {
			r, err := agent.ProposeCallWithResponse(context.Background(), proposal(run, "c-1", "touch made"))
			if err != nil || r.JSON202 == nil {
				calls <- "refused"
				return
			}
			calls <- r.JSON202.Call
		})
	}
	done.Wait()
	first := <-calls
	for range cap(calls) - 1 {
		if call := <-calls; call != first {
			t.Errorf("asked %s and %s", first, call)
		}
	}
	if now := h.Session(s.ID); now.Waiting != 1 {
		t.Errorf("%d questions are open", now.Waiting)
	}
	if asked := harness.Of[session.CallHumanConfirmRequired](h.Facts(s.ID)); len(asked) != 1 {
		t.Errorf("%d questions were asked", len(asked))
	}
	r, err := agent.ProposeCallWithResponse(h.Context(), proposal(run, "c-1", "touch other"))
	if err != nil || r.JSON202 == nil || r.JSON202.Call == first {
		t.Fatalf("the same call with other arguments: %+v, %v", r, err)
	}
	if by := harness.One[session.CallSuperseded](h, s.ID).By; by != r.JSON202.Call {
		t.Errorf("superseded by %s", by)
	}
	if now := h.Session(s.ID); now.Waiting != 1 {
		t.Errorf("%d questions are open", now.Waiting)
	}
	if _, err := h.Client("alice").CancelRunWithResponse(h.Context(), s.ID, run, nil); err != nil {
		t.Fatal(err)
	}
	h.Await(s.ID, "the cancelled run's question is cancelled", func(s *api.Session) bool { return s.Waiting == 0 && s.Run == "" })
}

// A policy that can't be is refused with the place of each error, and nothing of it
// is applied.
func wrongPolicy(t *testing.T, h *harness.Holdfast) {
	h.Policy(api.PolicySpec{Name: "sound", Default: api.PolicyEffectDeny})
	for name, tc := range map[string]struct {
		spec   api.PolicySpec
		at     string
		detail string
	}{
		"a type": {api.PolicySpec{Default: api.PolicyEffectAllow, Rules: []api.PolicyRule{
			{Name: "fine", When: "true", Then: api.PolicyEffectAllow},
			{Name: "broken", When: "tool == 1", Then: api.PolicyEffectAllow},
		}}, "/rules/1/when", "1:6"},
		"a name": {api.PolicySpec{Default: api.PolicyEffectAllow, Rules: []api.PolicyRule{
			{Name: "broken", When: `arg.command == "ls"`, Then: api.PolicyEffectAllow},
		}}, "/rules/0/when", "1:1"},
		"a test": {api.PolicySpec{Default: api.PolicyEffectAllow, Tests: []api.PolicyTest{
			{Name: "asks", Call: api.PolicyTestCall{Tool: "shell", Args: []byte(`{}`)}, Expect: api.PolicyEffectAsk},
		}}, "/tests/0", "allow"},
	} {
		_, err := h.Client("admin").ApplyPolicyWithResponse(h.Context(), "sound", nil, tc.spec)
		p := harness.Refused(t, err, api.CodePolicyInvalid)
		if len(p.Errors) != 1 || !strings.HasPrefix(p.Errors[0].Pointer, tc.at) || !strings.Contains(p.Errors[0].Detail, tc.detail) {
			t.Errorf("%s: %+v", name, p.Errors)
		}
	}
	r, err := h.Client("admin").GetPolicyWithResponse(h.Context(), "sound", nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.JSON200.Revision != 1 || r.JSON200.Spec.Default != api.PolicyEffectDeny {
		t.Errorf("the policy is now %+v", r.JSON200)
	}
}

// A change of the policy counts from the next call on; what was decided keeps its
// revision.
func changedPolicy(t *testing.T, h *harness.Holdfast) {
	ruled(h, "changing", api.Ask{}, nil)
	s := h.CreateOf("alice", api.CreateSession{Runtime: "changing", Message: "echo one"})
	first := harness.Of[session.MessageReceived](h.Facts(s.ID))[0].RunID
	h.AwaitRun(s.ID, first, api.RunStateFinished)
	h.Policy(api.PolicySpec{Name: "changing", Default: api.PolicyEffectDeny})
	second := h.Send("alice", s.ID, "echo two")
	h.AwaitRun(s.ID, second, api.RunStateFinished)
	decided := harness.Of[session.CallDecided](h.Facts(s.ID))
	if len(decided) != 2 || decided[0].Decision != "allow" || decided[0].Revision != 1 || decided[1].Decision != "deny" || decided[1].Revision != 2 {
		t.Errorf("decided: %+v", decided)
	}
}

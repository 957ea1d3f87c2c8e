package decider_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/session"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/policy/internal/decider"
	"github.com/holdfast-io/holdfast/services/policy/internal/rules"
)

type decide = func(*session.State, time.Time) ([]events.Record, error)

const (
	args     = `{"command":"make"}`
	hash     = "hash-of-make"
	call     = "c-1"
	within   = 10 * time.Minute // to execute
	deadline = 30 * time.Minute // to answer
)

// says is a policy whose word is always the same.
func says(effect policy.Effect, change ...func(*policy.AskFor)) decider.Policy {
	v := rules.Verdict{Effect: effect, Rule: "the rule", Reason: "the reason", Ask: policy.AskFor{
		Deadline: events.Duration(deadline), OnDeadline: policy.Deny, ExecuteWithin: events.Duration(within), Message: "Run {{args.command}}?",
	}}
	for _, c := range change {
		c(&v.Ask)
	}
	return decider.Policy{Name: "coder", Revision: 3, Evaluate: func(rules.Call) (rules.Verdict, error) { return v, nil }}
}

func propose(p decider.Policy) decider.Propose {
	return decider.Propose{
		CallID: call, AgentCallID: "a-1", RunID: "r-1", Tool: "shell", Args: json.RawMessage(args), Hash: hash, Modes: []string{"hold"}, Policy: p,
	}
}

// The pasts of a call. Each question's deadline and each permission's end differ.
var (
	proposed = session.CallProposed{CallID: call, AgentCallID: "a-1", RunID: "r-1", Tool: "shell", Args: json.RawMessage(args), ArgsHash: hash, Requester: "alice"}
	question = session.CallHumanConfirmRequired{
		CallID: call, Mode: "park", Deadline: given.Start.Add(deadline), OnDeadline: "deny", ExecuteWithin: events.Duration(within),
	}
	until    = given.Start.Add(within)
	allowed  = given.Running.And(proposed, session.CallDecided{CallID: call, Decision: "allow", ExecuteBy: until})
	refused  = given.Running.And(proposed, session.CallDecided{CallID: call, Decision: "deny"})
	pending  = given.Running.And(proposed, session.CallDecided{CallID: call, Decision: "ask"}, question)
	approved = pending.And(session.CallVoteCast{CallID: call, By: "bob", Decision: "approve", ArgsHash: hash},
		session.CallApproved{CallID: call, By: "bob", ArgsHash: hash, ExecuteBy: until})
	denied = pending.And(session.CallVoteCast{CallID: call, By: "bob", Decision: "deny", ArgsHash: hash},
		session.CallDenied{CallID: call, By: "bob"})
	expired    = pending.And(session.CallExpired{CallID: call})
	cancelled  = pending.And(session.CallCancelled{CallID: call})
	superseded = pending.And(session.CallSuperseded{CallID: call, By: "c-2"})
	started    = allowed.And(session.CallStarted{CallID: call, RunID: "r-1", Nonce: "one", ArgsHash: hash})
	completed  = started.And(session.CallCompleted{CallID: call, Nonce: "one"})
	delegated  = allowed.And(session.CallDelegated{CallID: call, ToolCallID: "a-1", RunID: "r-1", Deadline: until})
	delivered  = delegated.And(session.CallCompleted{CallID: call, Nonce: "m-1", Output: "blue"})
	lapsed     = allowed.And(session.CallLapsed{CallID: call, Kind: "unstarted"})

	states = map[string]given.Past{
		"allowed": allowed, "refused": refused, "pending": pending, "approved": approved, "denied": denied, "expired": expired,
		"cancelled": cancelled, "superseded": superseded, "started": started, "completed": completed, "lapsed": lapsed,
		"delegated": delegated, "delivered": delivered,
	}
)

func answer(decision, by string) decider.Answer {
	return decider.Answer{CallID: call, Decision: decision, Hash: hash, By: by, Roles: []string{"approver"}}
}

// Each command meets a call in each of its states.
func TestEveryCommandInEveryState(t *testing.T) {
	t.Parallel()
	const illegal, notTheClients = "[illegal-transition]", "[not-found]"
	const refuses = "call.answer-refused "
	for name, tc := range map[string]struct {
		decide decide
		want   map[string]string // by state; "" is any other
	}{
		"propose again": {propose(says(policy.Ask)).Decide, map[string]string{"": "nothing"}},
		"approve": {answer(decider.Approve, "carol").Decide, map[string]string{
			"": refuses + illegal, "pending": "call.vote-cast call.approved", "approved": refuses + "[already-decided]",
			"denied": refuses + "[already-decided]", "expired": refuses + "[approval-expired]",
		}},
		"deny": {answer(decider.Deny, "carol").Decide, map[string]string{
			"": refuses + illegal, "pending": "call.vote-cast call.denied", "approved": refuses + "[already-decided]",
			"denied": refuses + "[already-decided]", "expired": refuses + "[approval-expired]",
		}},
		"bob approves again": {answer(decider.Approve, "bob").Decide, map[string]string{
			"": refuses + illegal, "pending": "call.vote-cast call.approved", "approved": "nothing",
			"denied": refuses + "[already-decided]", "expired": refuses + "[approval-expired]",
		}},
		"start": {decider.Start{CallID: call, RunID: "r-1", Hash: hash, Nonce: "one"}.Decide, map[string]string{
			"": illegal, "allowed": "call.started", "approved": "call.started", "started": "nothing", "completed": "[already-started]", "delivered": "[already-started]",
		}},
		"start under another nonce": {decider.Start{CallID: call, RunID: "r-1", Hash: hash, Nonce: "two"}.Decide, map[string]string{
			"": illegal, "allowed": "call.started", "approved": "call.started", "started": "[already-started]", "completed": "[already-started]", "delivered": "[already-started]",
		}},
		"start something else": {decider.Start{CallID: call, RunID: "r-1", Hash: "another", Nonce: "two"}.Decide, map[string]string{
			"": "[args-changed]", "started": "[already-started]", "completed": "[already-started]", "delivered": "[already-started]",
		}},
		"start without a nonce":         {decider.Start{CallID: call, RunID: "r-1", Hash: hash}.Decide, map[string]string{"": "[invalid-request]"}},
		"complete":                      {complete("one", "r-1"), map[string]string{"": illegal, "started": "call.completed", "completed": "nothing"}},
		"complete under another nonce":  {complete("two", "r-1"), map[string]string{"": illegal, "started": "[already-started]"}},
		"complete from another run":     {complete("one", "r-2"), map[string]string{"": illegal, "started": "[already-started]", "completed": "nothing"}},
		"deliver":                       {deliver("m-1", "blue"), map[string]string{"": notTheClients, "delegated": "call.completed", "delivered": "nothing"}},
		"deliver under another message": {deliver("m-2", "blue"), map[string]string{"": notTheClients, "delegated": "call.completed", "delivered": "nothing"}},
		"deliver something else":        {deliver("m-2", "red"), map[string]string{"": notTheClients, "delegated": "call.completed", "delivered": illegal}},
		"settle":                        {decider.Settle, map[string]string{"": "nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for state, past := range states {
				want, named := tc.want[state]
				if !named {
					want = tc.want[""]
				}
				if got := given.Outcome(tc.decide(given.Given(t, past), given.Start)); got != want {
					t.Errorf("%s: %s, want %s", state, got, want)
				}
			}
		})
	}
}

func complete(nonce, run string) decide {
	return decider.Complete{RunID: run, Result: session.CallCompleted{CallID: call, Nonce: nonce}}.Decide
}

// Without its session, its call or its run a command says so.
func TestEveryCommandInEveryPhase(t *testing.T) {
	t.Parallel()
	const illegal, ended, missing = "[illegal-transition]", "[session-ended]", "[not-found]"
	inRun := map[string]string{"": illegal, "none": missing, "ending": ended, "released": ended, "ended": ended}
	for name, tc := range map[string]struct {
		decide decide
		want   map[string]string
	}{
		"propose":  {propose(says(policy.Allow)).Decide, inRun},
		"start":    {decider.Start{CallID: call, RunID: "r-1", Hash: hash, Nonce: "one"}.Decide, map[string]string{"": missing}},
		"complete": {complete("one", "r-1"), map[string]string{"": missing}},
		"answer":   {answer(decider.Approve, "bob").Decide, map[string]string{"": missing}},
		"deliver":  {deliver("m-1", "blue"), map[string]string{"": missing}},
		"settle":   {decider.Settle, map[string]string{"": "nothing"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given.EveryPhase(t, tc.decide, tc.want)
		})
	}
}

func TestPropose(t *testing.T) {
	t.Parallel()
	other := propose(says(policy.Ask))
	other.CallID, other.Hash, other.AgentCallID = "c-2", "another", "a-1"
	again := propose(says(policy.Ask))
	again.CallID, again.AgentCallID = "c-2", "a-2"
	elsewhere := propose(says(policy.Allow))
	elsewhere.RunID = "r-0"
	broken := propose(decider.Policy{Evaluate: func(rules.Call) (rules.Verdict, error) { return rules.Verdict{}, errors.New("no object") }})
	full := given.Running
	for i := range decider.MaxOpenCalls {
		full = full.And(session.CallProposed{CallID: fmt.Sprintf("c-%d", i+10), RunID: "r-1"})
	}
	const proposedAs = "call.proposed call.decided"
	for name, tc := range map[string]struct {
		past   given.Past
		decide decide
		after  time.Duration
		want   string
	}{
		"allowed":                    {given.Running, propose(says(policy.Allow)).Decide, 0, proposedAs},
		"denied":                     {given.Running, propose(says(policy.Deny)).Decide, 0, proposedAs},
		"asked":                      {given.Running, propose(says(policy.Ask)).Decide, 0, proposedAs + " call.human-confirm-required"},
		"not from the open run":      {given.Running, elsewhere.Decide, 0, "[illegal-transition]"},
		"arguments that are none":    {given.Running, broken.Decide, 0, "[invalid-request]"},
		"too many open":              {full, propose(says(policy.Allow)).Decide, 0, "[quota-exceeded]"},
		"other arguments, while one": {pending, other.Decide, 0, "call.superseded " + proposedAs + " call.human-confirm-required"},
		"other arguments, answered":  {approved, other.Decide, 0, proposedAs + " call.human-confirm-required"},
		"the same, denied just now":  {denied, again.Decide, decider.RecentDenial - 1, proposedAs},
		"the same, denied long ago":  {denied, again.Decide, decider.RecentDenial, proposedAs + " call.human-confirm-required"},
		"the same, refused by rule":  {refused, again.Decide, 0, proposedAs + " call.human-confirm-required"},
		"while the session ends":     {given.Running.And(session.Terminated{}), propose(says(policy.Allow)).Decide, 0, "[session-ended]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := given.Outcome(tc.decide(given.Given(t, tc.past), given.Start.Add(tc.after))); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// Every decision names what made it; the question says what the rule says.
func TestProposeSaysWhatDecided(t *testing.T) {
	t.Parallel()
	p := propose(says(policy.Ask, func(a *policy.AskFor) {
		a.Approvers, a.ExcludeRequester, a.OnDeadline, a.Risk = []string{"group:sre"}, true, policy.Allow, "high"
	}))
	p.Modes = []string{"hold", "park"}
	records, err := p.Decide(given.Given(t, given.Running), given.Start)
	if err != nil {
		t.Fatal(err)
	}
	if d := given.Only[session.CallDecided](t, records); d.Decision != "ask" || d.Rule != "the rule" || d.Policy != "coder" || d.Revision != 3 ||
		d.Enforcement != decider.EnforcementAsked || d.Reason != "the reason" || !d.ExecuteBy.IsZero() {
		t.Errorf("%+v", d)
	}
	if c := given.Only[session.CallProposed](t, records); c.Requester != "alice" || c.ArgsHash != hash || string(c.Args) != args {
		t.Errorf("%+v", c)
	}
	q := given.Only[session.CallHumanConfirmRequired](t, records)
	if q.Mode != "park" || !q.ExcludeRequester || q.OnDeadline != "allow" || q.Risk != "high" || q.Message != `Run "make"?` ||
		q.Isolation != "none" || !q.Deadline.Equal(given.Start.Add(deadline)) || q.ExecuteWithin != events.Duration(within) {
		t.Errorf("%+v", q)
	}

	records, err = propose(says(policy.Ask, func(a *policy.AskFor) { a.NeverExpire = true })).Decide(given.Given(t, given.Running), given.Start)
	if err != nil {
		t.Fatal(err)
	}
	if q := given.Only[session.CallHumanConfirmRequired](t, records); !q.Deadline.IsZero() || q.Mode != "hold" {
		t.Errorf("%+v", q)
	}
	records, err = propose(says(policy.Allow)).Decide(given.Given(t, given.Running), given.Start)
	if err != nil {
		t.Fatal(err)
	}
	if d := given.Only[session.CallDecided](t, records); !d.ExecuteBy.Equal(given.Start.Add(within)) {
		t.Errorf("an allow may be used until %s", d.ExecuteBy)
	}
}

func TestAnswer(t *testing.T) {
	t.Parallel()
	asking := func(change func(*session.CallHumanConfirmRequired)) given.Past {
		q := question
		change(&q)
		return given.Running.And(proposed, session.CallDecided{CallID: call, Decision: "ask"}, q)
	}
	by := func(a decider.Answer, change func(*decider.Answer)) decider.Answer { change(&a); return a }
	sre := asking(func(q *session.CallHumanConfirmRequired) {
		q.Approvers = []string{"group:sre", "user:dave", "role:admin"}
	})
	fourEyes := asking(func(q *session.CallHumanConfirmRequired) { q.ExcludeRequester = true })
	never := asking(func(q *session.CallHumanConfirmRequired) { q.Deadline = time.Time{} })
	thenAllow := asking(func(q *session.CallHumanConfirmRequired) { q.OnDeadline = "allow" })
	flood := pending
	for range decider.MaxRefusals {
		flood = flood.And(session.CallAnswerRefused{CallID: call})
	}
	yes := answer(decider.Approve, "bob")
	const taken, refuses = "call.vote-cast call.approved", "call.answer-refused "
	for name, tc := range map[string]struct {
		past  given.Past
		cmd   decider.Answer
		after time.Duration
		want  string
	}{
		"nobody's role":              {pending, by(yes, func(a *decider.Answer) { a.Roles = []string{"developer"} }), 0, refuses + "[not-an-approver]"},
		"an admin":                   {pending, by(yes, func(a *decider.Answer) { a.Roles = []string{"admin"} }), 0, taken},
		"an approver not named":      {sre, yes, 0, refuses + "[not-an-approver]"},
		"named by group":             {sre, by(yes, func(a *decider.Answer) { a.Groups = []string{"sre"} }), 0, taken},
		"named by role":              {sre, by(yes, func(a *decider.Answer) { a.Roles = []string{"admin"} }), 0, taken},
		"named himself":              {sre, answer(decider.Approve, "dave"), 0, taken},
		"a group called like a user": {sre, by(yes, func(a *decider.Answer) { a.Groups = []string{"dave"} }), 0, refuses + "[not-an-approver]"},
		"the requester":              {fourEyes, answer(decider.Approve, "alice"), 0, refuses + "[requester-excluded]"},
		"the requester, not barred":  {pending, answer(decider.Approve, "alice"), 0, taken},
		"another hash":               {pending, by(yes, func(a *decider.Answer) { a.Hash = "another" }), 0, refuses + "[args-changed]"},
		"just in time":               {pending, yes, deadline - 1, taken},
		"at the deadline":            {pending, yes, deadline, "call.answer-refused call.expired [approval-expired]"},
		"at a deadline that allows":  {thenAllow, yes, deadline, "call.answer-refused call.approved [approval-expired]"},
		"never too late":             {never, yes, 1000 * time.Hour, taken},
		"a stranger at the deadline": {fourEyes, answer(decider.Approve, "alice"), deadline, "call.answer-refused call.expired [requester-excluded]"},
		"a flood":                    {flood, by(yes, func(a *decider.Answer) { a.Hash = "another" }), 0, "[args-changed]"},
		"a good one after a flood":   {flood, yes, 0, taken},
		"while the session ends":     {pending.And(session.Terminated{}), yes, 0, refuses + "[illegal-transition]"},
		"another's answer again":     {approved, answer(decider.Approve, "carol"), 0, refuses + "[already-decided]"},
		"a changed mind":             {approved, answer(decider.Deny, "bob"), 0, refuses + "[already-decided]"},
		"again with another hash":    {approved, by(yes, func(a *decider.Answer) { a.Hash = "another" }), 0, refuses + "[args-changed]"},
		"while suspended": {
			pending.And(session.RunInterrupted{RunID: "r-1", Calls: []string{call}}, session.SuspendRequested{}, session.Suspended{Generation: 1}), yes, 0, taken,
		},
		"while suspending": {
			pending.And(session.RunInterrupted{RunID: "r-1", Calls: []string{call}}, session.SuspendRequested{}), yes, 0, taken,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := given.Outcome(tc.cmd.Decide(given.Given(t, tc.past), given.Start.Add(tc.after))); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// Who comes second is told who came first.
func TestSecondAnswerNamesTheWinner(t *testing.T) {
	t.Parallel()
	_, err := answer(decider.Deny, "carol").Decide(given.Given(t, approved), given.Start)
	var winner struct{ By, Decision string }
	if err := json.Unmarshal(problem.From(err).Winner, &winner); err != nil {
		t.Fatal(err)
	}
	if winner.By != "user:bob" || winner.Decision != "approve" {
		t.Errorf("%+v", winner)
	}
}

// The permission to execute starts with the answer.
func TestApprovalMayBeUsedFromTheAnswerOn(t *testing.T) {
	t.Parallel()
	at := given.Start.Add(5 * time.Minute)
	records, err := answer(decider.Approve, "bob").Decide(given.Given(t, pending), at)
	if err != nil {
		t.Fatal(err)
	}
	if a := given.Only[session.CallApproved](t, records); !a.ExecuteBy.Equal(at.Add(within)) || a.ArgsHash != hash || a.By != "bob" {
		t.Errorf("%+v", a)
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	start := decider.Start{CallID: call, RunID: "r-1", Hash: hash, Nonce: "one"}
	otherRun := allowed.And(session.RunFinished{RunID: "r-1"}, given.Queued("r-2"), given.Started("r-2"))
	continued := approved.And(session.RunInterrupted{RunID: "r-1", Calls: []string{call}},
		session.RunStarted{RunID: "r-2", ParentRunID: "r-1", Generation: 1, PodUID: "pod-1"})
	in := func(run string) decide { s := start; s.RunID = run; return s.Decide }
	for name, tc := range map[string]struct {
		past   given.Past
		decide decide
		after  time.Duration
		want   string
	}{
		"in time":                {allowed, start.Decide, within - 1, "call.started"},
		"too late":               {allowed, start.Decide, within, "[approval-expired]"},
		"too late, approved":     {approved, start.Decide, within, "[approval-expired]"},
		"the same, too late":     {started, start.Decide, within, "nothing"},
		"from another run":       {otherRun, in("r-2"), 0, "[illegal-transition]"},
		"from a run that's over": {otherRun, start.Decide, 0, "[illegal-transition]"},
		"from the continuation":  {continued, in("r-2"), 0, "call.started"},
		"while it ends":          {allowed.And(session.Terminated{}), start.Decide, 0, "[session-ended]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := given.Outcome(tc.decide(given.Given(t, tc.past), given.Start.Add(tc.after))); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	over, ending := session.RunFinished{RunID: "r-1", Outcome: "success"}, session.Terminated{}
	parked := session.RunInterrupted{RunID: "r-1", Calls: []string{call}}
	for name, tc := range map[string]struct {
		past given.Past
		want string
	}{
		"asked, run over":            {pending.And(over), "call.cancelled"},
		"asked, run failed":          {pending.And(session.RunFailed{RunID: "r-1"}), "call.cancelled"},
		"asked, run parked":          {pending.And(parked), "nothing"},
		"asked, parked run over":     {pending.And(parked, over), "call.cancelled"},
		"allowed, run over":          {allowed.And(over), "call.lapsed"},
		"approved, run parked":       {approved.And(parked), "nothing"},
		"started, run over":          {started.And(over), "call.lapsed"},
		"asked, session ends":        {pending.And(ending), "call.cancelled"},
		"allowed, session ends":      {allowed.And(ending), "call.lapsed"},
		"started, session ends":      {started.And(ending), "nothing"},
		"started, ended and over":    {started.And(ending, over), "call.lapsed"},
		"completed, run over":        {completed.And(over), "nothing"},
		"nothing open, session ends": {denied.And(ending), "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := given.Outcome(decider.Settle(given.Given(t, tc.past), given.Start)); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func TestDue(t *testing.T) {
	t.Parallel()
	thenAllow := question
	thenAllow.OnDeadline = "allow"
	allows := given.Running.And(proposed, session.CallDecided{CallID: call, Decision: "ask"}, thenAllow)
	approval := session.Deadline{Kind: session.DeadlineApproval, Key: call}
	execution := session.Deadline{Kind: session.DeadlineExecution, Key: call}
	for name, tc := range map[string]struct {
		past  given.Past
		d     session.Deadline
		after time.Duration
		want  string
	}{
		"before":                    {pending, approval, deadline - 1, "nothing"},
		"at the deadline":           {pending, approval, deadline, "call.expired"},
		"at one that allows":        {allows, approval, deadline, "call.approved"},
		"answered meanwhile":        {approved, approval, deadline, "nothing"},
		"of a session that ends":    {pending.And(session.Terminated{}), approval, deadline, "nothing"},
		"of an unknown call":        {given.Running, approval, deadline, "nothing"},
		"before it has to start":    {allowed, execution, within - 1, "nothing"},
		"when it has to start":      {allowed, execution, within, "call.lapsed"},
		"when an approved has to":   {approved, execution, within, "call.lapsed"},
		"it has started":            {started, execution, within, "nothing"},
		"another kind of deadline":  {pending, session.Deadline{Kind: session.DeadlineIdle, Key: call}, deadline, "nothing"},
		"execution of what's asked": {pending, execution, deadline, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := given.Outcome(decider.Due(tc.d)(given.Given(t, tc.past), given.Start.Add(tc.after))); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

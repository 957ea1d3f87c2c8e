package approvals_test

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The tests of one program share it; each has sessions, and where it needs them
// policies and runtimes, of its own.
func TestApprovals(t *testing.T) {
	h := harness.Start(t, harness.SharedPostgres(t))
	for name, test := range map[string]func(*testing.T, *harness.Holdfast){
		"allow, ask and deny":        walk,
		"a no with its reason":       denied,
		"the same again":             deniedBefore,
		"asleep meanwhile":           asleep,
		"held":                       held,
		"two answers at once":        twoAnswers,
		"answers that don't count":   refusals,
		"whoever wrote may not":      excluded,
		"nobody in time":             expired,
		"nobody in time, allowed":    allowedAtDeadline,
		"approved and never started": lapsed,
		"the same question":          sameQuestion,
		"a policy that is wrong":     wrongPolicy,
		"the policy is changed":      changedPolicy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, h.In(t))
		})
	}
}

// ruled applies a policy that asks under these terms for each command with "touch"
// in it and allows the rest, and a runtime of the same name under it.
func ruled(h *harness.Holdfast, name string, ask api.Ask, change func(*api.RuntimeSpec)) {
	h.Policy(api.PolicySpec{Name: name, Default: api.PolicyEffectAllow, Rules: []api.PolicyRule{
		{Name: "touching", When: `tool == "shell" && args.command.contains("touch")`, Then: api.PolicyEffectAsk, Ask: ask},
	}})
	h.Runtime(name, func(r *api.RuntimeSpec) {
		r.Policy = name
		if change != nil {
			change(r)
		}
	})
}

// continued waits for the run that goes on after another and gives what it said.
func continued(h *harness.Holdfast, id, parked string) string {
	var run string
	h.AwaitFact(id, "the run goes on", func(facts []harness.Fact) bool {
		for _, r := range harness.Of[session.RunStarted](facts) {
			if r.ParentRunID == parked {
				run = r.RunID
			}
		}
		return run != ""
	})
	h.AwaitRun(id, run, api.RunStateFinished)
	return harness.Said(h.Facts(id), run)
}

func walk(t *testing.T, h *harness.Holdfast) {
	s := h.Create("alice", "ls\ntouch made\nsudo reboot\nls")
	a := h.AwaitQuestion(s.ID)
	sum := sha256.Sum256([]byte(`{"command":"touch made"}`))
	switch {
	case string(a.Args) != `{"command":"touch made"}`, a.ArgsHash != hex.EncodeToString(sum[:]):
		t.Errorf("asked about %s, hash %s", a.Args, a.ArgsHash)
	case a.Tool != "shell", a.State != api.CallStatePending, a.Policy != "default", a.Revision == 0, a.Rule != "the rest is asked":
		t.Errorf("asked: %+v", a)
	case a.Enforcement != api.EnforcementAsked, a.Isolation != s.Isolation, a.Requester != "user:alice":
		t.Errorf("asked: %+v", a)
	case time.Until(a.Deadline) < 23*time.Hour, !slices.Contains(a.Approvers, "role:approver"):
		t.Errorf("until %s, of %v", a.Deadline, a.Approvers)
	}
	h.AwaitRun(s.ID, a.RunID, api.RunStateInterrupted)
	h.Approve("bob", a)
	want := "$ touch made\nexit 0\n$ sudo reboot\ndenied: nobody needs this in a sandbox (rule \"never\")\n$ ls\nmade\nexit 0\n"
	if said := continued(h, s.ID, a.RunID); said != want {
		t.Errorf("went on with %q, want %q", said, want)
	}
	var decided []string
	for _, d := range harness.Of[session.CallDecided](h.Facts(s.ID)) {
		decided = append(decided, d.Decision+" by "+d.Rule)
	}
	if got := strings.Join(decided, ", "); got != "allow by looking around is free, ask by the rest is asked, deny by never, allow by looking around is free" {
		t.Errorf("decided: %s", got)
	}
}

func denied(t *testing.T, h *harness.Holdfast) {
	s := h.Create("alice", "touch made\nls")
	a := h.AwaitQuestion(s.ID)
	if status, err := h.Decide("bob", a, api.AnswerDeny, "not on a Friday"); err != nil || status != 201 {
		t.Fatalf("deny: %d, %v", status, err)
	}
	if said := continued(h, s.ID, a.RunID); said != "$ touch made\ndenied: not on a Friday\n$ ls\nexit 0\n" {
		t.Errorf("went on with %q", said)
	}
	r, err := h.Client("alice").GetApprovalWithResponse(h.Context(), a.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := r.JSON200.Decision; d.By != "user:bob" || d.Decision != api.AnswerDeny || d.Reason != "not on a Friday" || d.At.IsZero() {
		t.Errorf("decision: %+v", d)
	}
}

// What somebody denied a moment ago isn't asked again.
func deniedBefore(t *testing.T, h *harness.Holdfast) {
	s := h.Create("alice", "touch made")
	a := h.AwaitQuestion(s.ID)
	if _, err := h.Decide("bob", a, api.AnswerDeny, "no"); err != nil {
		t.Fatal(err)
	}
	continued(h, s.ID, a.RunID)
	again := h.Send("alice", s.ID, "touch made")
	h.AwaitRun(s.ID, again, api.RunStateFinished)
	facts := h.Facts(s.ID)
	if said := harness.Said(facts, again); !strings.HasPrefix(said, "$ touch made\ndenied") {
		t.Errorf("the second time: %q", said)
	}
	if asked := harness.Of[session.CallHumanConfirmRequired](facts); len(asked) != 1 {
		t.Errorf("%d questions", len(asked))
	}
}

// The sandbox is put away while only a person is waited for, and the answer has it
// go on exactly where it was.
func asleep(t *testing.T, h *harness.Holdfast) {
	ruled(h, "sleepy", api.Ask{}, func(r *api.RuntimeSpec) { r.Timeouts.SuspendWhileWaiting = "1s" })
	s := h.CreateOf("alice", api.CreateSession{Runtime: "sleepy", Message: "mkdir sub && cd sub\nexport WHO=me\ntouch asked\necho $WHO in $(basename $PWD)\nls"})
	a := h.AwaitQuestion(s.ID)
	h.AwaitPhase(s.ID, api.SessionPhaseSuspended)
	if cause := harness.One[session.SuspendRequested](h, s.ID).Cause; cause != "waiting" {
		t.Errorf("suspended for %q", cause)
	}
	h.Approve("bob", a)
	want := "$ touch asked\nexit 0\n$ echo $WHO in $(basename $PWD)\nme in sub\nexit 0\n$ ls\nasked\nexit 0\n"
	if said := continued(h, s.ID, a.RunID); said != want {
		t.Errorf("went on with %q, want %q", said, want)
	}
	if cause := harness.One[session.ResumeRequested](h, s.ID).Cause; cause != "answer" {
		t.Errorf("resumed for %q", cause)
	}
	if started := harness.Of[session.CallStarted](h.Facts(s.ID)); len(started) != 5 {
		t.Errorf("%d calls were started, want each of five once", len(started))
	}
}

// An agent that holds keeps its process, and the same run goes on.
func held(t *testing.T, h *harness.Holdfast) {
	ruled(h, "holding", api.Ask{}, func(r *api.RuntimeSpec) {
		r.Sandbox.Command = append(r.Sandbox.Command, "-modes", "hold")
		r.Timeouts.SuspendWhileWaiting, r.Timeouts.Idle = "1s", "1s"
	})
	s := h.CreateOf("alice", api.CreateSession{Runtime: "holding", Message: "touch asked"})
	a := h.AwaitQuestion(s.ID)
	_, err := h.Client("alice").SuspendSessionWithResponse(h.Context(), s.ID, nil)
	harness.Refused(t, err, api.CodeSessionInUse)
	h.Approve("bob", a)
	h.AwaitRun(s.ID, a.RunID, api.RunStateFinished)
	if said := harness.Said(h.Facts(s.ID), a.RunID); said != "$ touch asked\nexit 0\n" {
		t.Errorf("said %q", said)
	}
}

// What was asked before everything was stopped and is answered afterwards goes on:
// with the files, in a sandbox of the next generation. What was due while everything
// was down is too late.
func TestAnswerAfterRestart(t *testing.T) {
	t.Parallel()
	h := harness.Start(t, harness.SharedPostgres(t))
	ruled(h, "hurried", api.Ask{Deadline: "2s"}, nil)
	missed := h.CreateOf("alice", api.CreateSession{Runtime: "hurried", Message: "touch made"})
	late := h.Create("alice", "touch made\nls")
	question := h.AwaitQuestion(late.ID)
	h.AwaitRun(late.ID, question.RunID, api.RunStateInterrupted)
	missedUntil := harness.One[session.CallHumanConfirmRequired](h, missed.ID).Deadline
	h.Stop()
	harness.Eventually(t, "the other question's deadline has passed", func() bool { return time.Now().After(missedUntil) })
	h.Begin()
	h.AwaitFact(missed.ID, "it expires at the start", func(f []harness.Fact) bool { return len(harness.Of[session.CallExpired](f)) == 1 })
	h.Approve("bob", question)
	if said := continued(h, late.ID, question.RunID); said != "$ touch made\nexit 0\n$ ls\nmade\nexit 0\n" {
		t.Errorf("went on with %q", said)
	}
	if status, err := h.Decide("bob", question, api.AnswerApprove, ""); err != nil || status != 200 {
		t.Errorf("the same answer again: %d, %v", status, err)
	}
	if status, err := h.Decide("admin", question, api.AnswerDeny, ""); err == nil {
		t.Errorf("another answer: %d", status)
	}
}

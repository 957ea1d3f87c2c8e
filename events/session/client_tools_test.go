package session_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// thread folds payloads into state and conversation, each a message of its own.
func thread(t *testing.T, payloads ...session.Payload) (*session.State, *session.History) {
	t.Helper()
	s, h := session.New(), session.NewHistory()
	for i, p := range payloads {
		owner, _ := session.Owner(session.TypeOf(p))
		m := events.Message{Subject: "ev.default.s.s-1", Seq: uint64(i + 2), Envelope: events.Envelope{
			Command: fmt.Sprint("c-", i), Actor: events.Actor{Kind: events.ActorService, ID: string(owner)}, Service: owner,
			N: uint64(i + 1), Prev: s.Seq, Time: at, Events: []events.Record{owned(t, p)},
		}}
		if err := s.Apply(m); err != nil {
			t.Fatal(err)
		}
		if err := h.Apply(m); err != nil {
			t.Fatal(err)
		}
	}
	return s, h
}

var (
	pick   = []session.Tool{{Name: "pick", Parameters: raw(`{"type":"object"}`)}}
	opened = []session.Payload{
		session.Created{Owner: "alice"},
		session.MessageReceived{MessageID: "m-1", RunID: "r-1", Content: raw(`"one"`), Requester: "alice", Tools: pick},
		session.MessageReceived{MessageID: "m-2", RunID: "r-1", Content: raw(`"two"`), Requester: "alice", Tools: pick},
		session.RunStarted{RunID: "r-1"},
		session.RunMessageRecorded{RunID: "r-1", MessageID: "a-1", Role: "assistant", Message: raw(`{"id":"a-1"}`), K: 3},
		session.CallProposed{CallID: "c-1", AgentCallID: "t-1", RunID: "r-1", Tool: "pick", Modes: []string{session.ModeDelegate}},
	}
	delegated = append(slices.Clip(opened),
		session.CallDecided{CallID: "c-1", Decision: "allow"},
		session.CallDelegated{CallID: "c-1", ToolCallID: "t-1", RunID: "r-1", Deadline: at.Add(time.Hour)},
		session.RunInterrupted{RunID: "r-1", Calls: []string{"c-1"}})
)

// Messages that came together are one run, in their order, and its tools stay with
// it through its continuations.
func TestMessagesThatShareARun(t *testing.T) {
	s, h := thread(t, opened...)
	if len(s.Queue) != 0 || s.Run == nil || len(s.Run.Tools) != 1 || h.Opened != 2 || len(h.Messages) != 3 {
		t.Fatalf("queue %v, run %+v, %d messages, %d before the run", s.Queue, s.Run, len(h.Messages), h.Opened)
	}
	if first, second := string(h.Messages[0]), string(h.Messages[1]); !strings.Contains(first, "one") || !strings.Contains(second, "two") {
		t.Errorf("%s, then %s", first, second)
	}
	s, _ = thread(t, append(slices.Clip(delegated),
		session.CallCompleted{CallID: "c-1", Nonce: "m-9", Output: "blue"}, session.RunStarted{RunID: "r-2", ParentRunID: "r-1"})...)
	if len(s.Run.Tools) != 1 || s.Run.Root != "r-1" {
		t.Errorf("the continuation is %+v", s.Run)
	}
}

// A delegated call parks its run until the client has brought a result or the time
// is over, and either way the conversation has an answer to the tool call.
func TestDelegatedCalls(t *testing.T) {
	s, h := thread(t, delegated...)
	if s.ContinuationDue() || !s.Awaits() || s.Waiting() != 0 || s.OpenCalls() != 1 || len(h.Messages) != 3 {
		t.Fatalf("due %t, awaits %t, waiting %d, open %d", s.ContinuationDue(), s.Awaits(), s.Waiting(), s.OpenCalls())
	}
	if ds := s.Deadlines(); len(ds) != 1 || ds[0].Kind != session.DeadlineExecution || !ds[0].At.Equal(at.Add(time.Hour)) {
		t.Errorf("deadlines %+v", ds)
	}
	proposed := opened[len(opened)-1]
	for name, tc := range map[string]struct {
		past []session.Payload
		last []session.Payload
		want string
	}{
		"a result":          {delegated, []session.Payload{session.CallCompleted{CallID: "c-1", Nonce: "m-9", Output: "blue"}}, `{"id":"m-9","role":"tool","content":"blue","toolCallId":"t-1"}`},
		"a failure":         {delegated, []session.Payload{session.CallCompleted{CallID: "c-1", Nonce: "m-9", Output: "", Error: "no"}}, `"toolCallId":"t-1","error":"no"}`},
		"lapsed":            {delegated, []session.Payload{session.CallLapsed{CallID: "c-1", Cause: "not in time"}}, `"content":"no result: not in time"`},
		"denied by policy":  {opened, []session.Payload{session.CallDecided{CallID: "c-1", Decision: "deny", Reason: "never"}}, `"content":"denied by the policy: never"`},
		"denied by bob":     {opened, []session.Payload{session.CallHumanConfirmRequired{CallID: "c-1"}, session.CallDenied{CallID: "c-1", By: "bob"}}, `"content":"denied"`},
		"nobody answered":   {opened, []session.Payload{session.CallHumanConfirmRequired{CallID: "c-1"}, session.CallExpired{CallID: "c-1"}}, `"error":"nobody allowed it in time"`},
		"the run cancelled": {opened, []session.Payload{session.CallHumanConfirmRequired{CallID: "c-1"}, session.CallCancelled{CallID: "c-1", Cause: "run is over"}}, `"content":"cancelled: run is over"`},
	} {
		past := slices.Concat(tc.past, tc.last)
		s, h := thread(t, past...)
		if n := len(h.Messages); n != 4 || !strings.Contains(string(h.Messages[3]), tc.want) {
			t.Errorf("%s: %q", name, h.Messages[3:])
		}
		if s.Interrupted != nil && !s.ContinuationDue() || s.OpenCalls() != 0 {
			t.Errorf("%s: the run doesn't go on", name)
		}
	}
	// An agent's own call is answered by the agent's own message.
	own := proposed.(session.CallProposed)
	own.Modes = []string{"park"}
	_, h = thread(t, append(opened[:len(opened)-1:len(opened)-1], own, session.CallDecided{CallID: "c-1", Decision: "deny"})...)
	if len(h.Messages) != 3 {
		t.Errorf("%q", h.Messages)
	}
}

// History tells how the last run ended.
func TestHistoryLast(t *testing.T) {
	for _, tc := range []struct {
		past []session.Payload
		want string
	}{
		{opened, "<nil>"},
		{delegated, "&{r-1 interrupt  }"},
		{append(opened[:4:4], session.RunFinished{RunID: "r-1", Outcome: "success"}), "&{r-1 success  }"},
		{append(opened[:4:4], session.RunFailed{RunID: "r-1", Cause: "agent-error", Detail: "why"}), "&{r-1 failed agent-error why}"},
	} {
		if _, h := thread(t, tc.past...); fmt.Sprint(h.Last) != tc.want {
			t.Errorf("%v, want %s", h.Last, tc.want)
		}
	}
}

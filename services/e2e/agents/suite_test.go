package agents_test

import (
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// plumber is a note that a person has to read first.
const plumber = "call the plumber on Monday"

// suite is what every example has to do, whatever its language and adapter.
func suite(t *testing.T, h *harness.Holdfast, runtime string) {
	for name, test := range map[string]func(*testing.T, *harness.Holdfast, string){
		"says back what it is told":          saysBack,
		"knows the session's config":         knowsConfig,
		"does what is allowed":               doesWhatIsAllowed,
		"parks, is approved, goes on":        parks,
		"parks, is denied, goes on":          parksAndIsDenied,
		"holds, is approved, goes on":        holds,
		"is denied by the policy":            isDenied,
		"is cancelled in the middle":         isCancelled,
		"loses its sandbox in the middle":    losesItsSandbox,
		"keeps its notes through a suspend":  keepsItsNotes,
		"is cancelled while it waits parked": isCancelledParked,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, h.In(t), runtime)
		})
	}
}

func create(t *testing.T, h *harness.Holdfast, runtime string) string {
	t.Helper()
	return createWith(t, h, api.CreateSession{Runtime: runtime})
}

func createWith(t *testing.T, h *harness.Holdfast, body api.CreateSession) string {
	t.Helper()
	s := h.CreateOf("alice", body)
	if s.Phase != api.SessionPhaseReady {
		t.Fatalf("the session is %s: %s %s", s.Phase, s.Outcome, s.Cause)
	}
	return s.ID
}

func saysBack(t *testing.T, h *harness.Holdfast, runtime string) {
	id := create(t, h, runtime)
	says(t, h, id, `good morning "all" \o/ – ☕`, `good morning "all" \o/ – ☕`)
	says(t, h, id, "and again", "and again")
}

func knowsConfig(t *testing.T, h *harness.Holdfast, runtime string) {
	id := createWith(t, h, api.CreateSession{Runtime: runtime, Config: []byte(`{"colour":"blue"}`)})
	says(t, h, id, "config", "colour", "blue")
}

func doesWhatIsAllowed(t *testing.T, h *harness.Holdfast, runtime string) {
	id := create(t, h, runtime)
	says(t, h, id, "show", "nothing yet")
	says(t, h, id, "note buy milk", "written")
	says(t, h, id, "note and oats", "written")
	says(t, h, id, "show", "buy milk\nand oats")
	if done := harness.Of[session.CallCompleted](h.Facts(id)); len(done) != 2 {
		t.Errorf("%d calls are completed in the log, want 2", len(done))
	}
}

// ask has the agent park at a question and gives it with the run that asked.
func ask(t *testing.T, h *harness.Holdfast, runtime string) (id, run string, question api.Approval) {
	t.Helper()
	id = create(t, h, runtime)
	run = h.Send("alice", id, "note "+plumber)
	question = h.AwaitQuestion(id)
	h.AwaitRun(id, run, api.RunStateInterrupted)
	return id, run, question
}

// goesOn waits for the run that continues a parked one.
func goesOn(t *testing.T, h *harness.Holdfast, id, parked string, want ...string) {
	t.Helper()
	next := ""
	harness.Eventually(t, "a run goes on with "+parked, func() bool {
		for _, r := range h.Runs(id) {
			if r.ParentRunID == parked {
				next = r.ID
			}
		}
		return next != ""
	})
	finishes(t, h, id, next, want...)
}

func parks(t *testing.T, h *harness.Holdfast, runtime string) {
	id, run, question := ask(t, h, runtime)
	if string(question.Args) != `{"text":"`+plumber+`"}` || question.Tool != "write_note" {
		t.Errorf("asked for %s %s", question.Tool, question.Args)
	}
	h.Approve("bob", question)
	goesOn(t, h, id, run, "written")
	says(t, h, id, "show", plumber)
	if done := harness.Of[session.CallCompleted](h.Facts(id)); len(done) != 1 {
		t.Errorf("%d calls are completed in the log, want 1", len(done))
	}
}

func parksAndIsDenied(t *testing.T, h *harness.Holdfast, runtime string) {
	id, run, question := ask(t, h, runtime)
	if status, err := h.Decide("bob", question, api.AnswerDeny, "he is on holiday"); status != 201 {
		t.Fatalf("deny: %d, %v", status, err)
	}
	goesOn(t, h, id, run, "not written", "he is on holiday")
	says(t, h, id, "show", "nothing yet")
}

// holds: the answer comes in the middle of the run, which stays the same.
func holds(t *testing.T, h *harness.Holdfast, runtime string) {
	id := create(t, h, runtime)
	run := h.Send("alice", id, "hold note "+plumber)
	question := h.AwaitQuestion(id)
	if is := runOf(h, id, run); is.State != api.RunStateStarted {
		t.Errorf("while it is asked the run is %s", is.State)
	}
	h.Approve("bob", question)
	finishes(t, h, id, run, "written")
	says(t, h, id, "show", plumber)
}

func isDenied(t *testing.T, h *harness.Holdfast, runtime string) {
	id := create(t, h, runtime)
	says(t, h, id, "note my password is x", "not written", "a note is no place for a password")
	says(t, h, id, "show", "nothing yet")
}

// counting has the agent count for long, and waits until it does.
func counting(t *testing.T, h *harness.Holdfast, runtime string) (id, run string) {
	t.Helper()
	id = create(t, h, runtime)
	run = h.Send("alice", id, "count 600")
	hearsCounting(h, id)
	return id, run
}

// hearsCounting follows what the agent says until it has counted a little.
func hearsCounting(h *harness.Holdfast, id string) {
	h.Follow("alice", id, func(f api.Frame) bool {
		return f.Kind == api.FrameKindAgui && strings.Contains(strings.ReplaceAll(string(f.Data), `": "`, `":"`), `"delta":"2 "`)
	})
}

func isCancelled(t *testing.T, h *harness.Holdfast, runtime string) {
	id, run := counting(t, h, runtime)
	if _, err := h.Client("alice").CancelRunWithResponse(h.Context(), id, run, nil); err != nil {
		t.Fatal(err)
	}
	h.AwaitRun(id, run, api.RunStateCancelled)
	says(t, h, id, "still there?", "still there?")
}

func isCancelledParked(t *testing.T, h *harness.Holdfast, runtime string) {
	id, run, _ := ask(t, h, runtime)
	if _, err := h.Client("alice").CancelRunWithResponse(h.Context(), id, run, nil); err != nil {
		t.Fatal(err)
	}
	h.AwaitRun(id, run, api.RunStateCancelled)
	says(t, h, id, "show", "nothing yet")
}

// losesItsSandbox: the run fails, the session gets another sandbox with its files.
func losesItsSandbox(t *testing.T, h *harness.Holdfast, runtime string) {
	id := create(t, h, runtime)
	says(t, h, id, "note buy milk", "written")
	run := h.Send("alice", id, "count 600")
	hearsCounting(h, id)
	h.KillSandbox(id, harness.Of[session.RunStarted](h.Facts(id))[1].PodUID)
	h.AwaitRun(id, run, api.RunStateFailed)
	says(t, h, id, "show", "buy milk")
}

func keepsItsNotes(t *testing.T, h *harness.Holdfast, runtime string) {
	id := create(t, h, runtime)
	says(t, h, id, "note buy milk", "written")
	if _, err := h.Client("alice").SuspendSessionWithResponse(h.Context(), id, nil); err != nil {
		t.Fatal(err)
	}
	h.AwaitPhase(id, api.SessionPhaseSuspended)
	says(t, h, id, "show", "buy milk")
}

// parkedThroughRestart: each of the agents parks, the program is restarted, which ends
// every sandbox, and a new process goes on with the answer and the old files.
func parkedThroughRestart(t *testing.T, h *harness.Holdfast, runtimes []string) {
	type parked struct {
		id, run  string
		question api.Approval
	}
	all := make(map[string]parked)
	for _, r := range runtimes {
		id, run, question := ask(t, h.In(t), r)
		all[r] = parked{id, run, question}
	}
	h.Restart()
	for r, p := range all {
		t.Run(r, func(t *testing.T) {
			h := h.In(t)
			h.Approve("bob", p.question)
			goesOn(t, h, p.id, p.run, "written")
			says(t, h, p.id, "show", plumber)
		})
	}
}

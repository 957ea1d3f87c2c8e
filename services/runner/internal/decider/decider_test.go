package decider_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/events/session"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/runner/internal/decider"
)

// queue gives a past in which messages wait; the last wants what is before it
// cancelled.
func queue(past given.Past, cancelling bool, runs ...string) given.Past {
	for i, run := range runs {
		past = past.And(session.MessageReceived{
			MessageID: "m-" + run, RunID: run, Requester: "alice", CancelOpen: cancelling && i == len(runs)-1,
		})
	}
	return past
}

var (
	asked  = given.Running.And(session.CallProposed{CallID: "c-1", RunID: "r-1"}, session.CallDecided{CallID: "c-1", Decision: "ask"}, session.CallHumanConfirmRequired{CallID: "c-1"})
	parked = asked.And(session.RunInterrupted{RunID: "r-1", LastK: 7, Calls: []string{"c-1"}})
	yes    = session.CallApproved{CallID: "c-1", By: "bob"}
	ending = session.Terminated{}
)

func TestSettle(t *testing.T) {
	t.Parallel()
	suspended := facts(session.SuspendRequested{}, session.Suspended{Generation: 1})
	moved := facts(session.Lost{Generation: 1, PodUID: "pod-1"}, session.ResumeRequested{}, session.ClaimRequested{Generation: 2})
	stopping := session.RunCancelRequested{RunID: "r-1"}
	for name, tc := range map[string]struct {
		past given.Past
		want string
	}{
		"nothing to do":                    {given.Ready, "nothing"},
		"a message, ready":                 {queue(given.Ready, false, "r-1"), "run.started"},
		"a message, not ready yet":         {queue(given.Claimed, false, "r-1"), "nothing"},
		"a message, suspending":            {queue(given.Ready, false, "r-1").And(session.SuspendRequested{}), "nothing"},
		"a message, suspended":             {queue(given.Suspended, false, "r-1"), "nothing"},
		"a message, a run is open":         {queue(given.Running, false, "r-2"), "nothing"},
		"a message that cancels":           {queue(given.Running, true, "r-2"), "run.cancel-requested"},
		"it was asked to stop":             {queue(given.Running, true, "r-2").And(stopping), "nothing"},
		"parked and unanswered":            {parked, "nothing"},
		"parked and answered":              {parked.And(yes), "run.started"},
		"answered while suspended":         {parked.And(suspended...).And(yes), "nothing"},
		"a message behind a parked one":    {queue(parked, false, "r-2"), "nothing"},
		"one that cancels the parked one":  {queue(parked, true, "r-2"), "run.finished"},
		"the same while suspended":         {queue(parked.And(suspended...), true, "r-2"), "run.finished"},
		"the sandbox is lost":              {given.Running.And(session.Lost{Generation: 1, PodUID: "pod-1"}), "run.failed"},
		"another generation has begun":     {given.Running.And(moved...), "run.failed"},
		"ending, open":                     {given.Running.And(ending), "run.cancel-requested"},
		"ending, asked to stop":            {given.Running.And(ending, stopping), "nothing"},
		"ending, its sandbox gone":         {given.Running.And(ending, stopping, session.Released{Generation: 1}), "run.finished"},
		"ending, parked":                   {parked.And(ending), "run.finished"},
		"ending, two queued":               {queue(given.Ready, false, "r-1", "r-2").And(ending), "run.finished run.finished"},
		"ending, open and queued":          {queue(given.Running, false, "r-2").And(ending), "run.finished run.cancel-requested"},
		"ended":                            {given.Ended, "nothing"},
		"not there":                        {given.Nothing, "nothing"},
		"a message before the first claim": {queue(given.Pending, false, "r-1"), "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := given.Outcome(decider.Settle("i-2")(given.Given(t, tc.past), given.Start)); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// facts is a slice of payloads, to be appended.
func facts(p ...session.Payload) given.Past { return p }

// A continuation has its parent's requester and an id that anybody would give it.
func TestContinuation(t *testing.T) {
	t.Parallel()
	records, err := decider.Settle("i-2")(given.Given(t, parked.And(yes)), given.Start)
	if err != nil {
		t.Fatal(err)
	}
	first := given.Only[session.RunStarted](t, records)
	if first.ParentRunID != "r-1" || first.Requester != "alice" || first.Instance != "i-2" || first.PodUID != "pod-1" || first.Generation != 1 {
		t.Errorf("%+v", first)
	}
	records, err = decider.Settle("i-3")(given.Given(t, parked.And(yes)), given.Start)
	if err != nil {
		t.Fatal(err)
	}
	if second := given.Only[session.RunStarted](t, records); second.RunID != first.RunID {
		t.Errorf("%s from one instance, %s from another", first.RunID, second.RunID)
	}
}

// The steps of a run are its instance's alone, while it is open.
func TestStepsAreTheInstances(t *testing.T) {
	t.Parallel()
	const notMine = "[the run is not this instance's]"
	recorded := session.RunMessageRecorded{RunID: "r-1", MessageID: "a-1", Role: "assistant", K: 3}
	interrupt := session.RunInterrupted{RunID: "r-1", LastK: 9, Calls: []string{"c-1"}}
	stopping := asked.And(session.RunCancelRequested{RunID: "r-1"})
	takenOver := asked.And(session.RunTakenOver{RunID: "r-1", Instance: "i-2"})
	over := asked.And(session.RunFinished{RunID: "r-1"})
	for name, tc := range map[string]struct {
		past   given.Past
		decide decider.Decide
		want   string
	}{
		"record":                         {asked, decider.Record("i-1", recorded), "run.message-recorded"},
		"record again":                   {asked.And(recorded), decider.Record("i-1", recorded), "nothing"},
		"record from another instance":   {asked, decider.Record("i-2", recorded), notMine},
		"record after a takeover":        {takenOver, decider.Record("i-1", recorded), notMine},
		"record of one who took over":    {takenOver, decider.Record("i-2", recorded), "run.message-recorded"},
		"record after the end":           {over, decider.Record("i-1", recorded), notMine},
		"interrupt":                      {asked, decider.Interrupt("i-1", interrupt), "run.interrupted"},
		"interrupt for what is unknown":  {given.Running, decider.Interrupt("i-1", interrupt), "run.failed"},
		"interrupt for nothing":          {asked, decider.Interrupt("i-1", session.RunInterrupted{RunID: "r-1"}), "run.failed"},
		"interrupt of what was to stop":  {stopping, decider.Interrupt("i-1", interrupt), "run.finished"},
		"interrupt of another instance":  {asked, decider.Interrupt("i-2", interrupt), notMine},
		"finish":                         {asked, decider.Finish("i-1", session.RunFinished{RunID: "r-1", Outcome: "success"}), "run.finished"},
		"finish of another instance":     {asked, decider.Finish("i-2", session.RunFinished{RunID: "r-1"}), notMine},
		"finish after the end":           {over, decider.Finish("i-1", session.RunFinished{RunID: "r-1"}), notMine},
		"fail":                           {asked, decider.Fail("i-1", session.RunFailed{RunID: "r-1"}), "run.failed"},
		"fail of another instance":       {asked, decider.Fail("i-2", session.RunFailed{RunID: "r-1"}), notMine},
		"take over":                      {asked, decider.TakeOver("r-1", "i-1", "i-2"), "run.taken-over"},
		"take over after somebody else":  {takenOver, decider.TakeOver("r-1", "i-1", "i-3"), "nothing"},
		"take over what is over":         {over, decider.TakeOver("r-1", "i-1", "i-2"), "nothing"},
		"cancel the open run":            {asked, decider.Cancel("r-1"), "run.cancel-requested"},
		"cancel it again":                {stopping, decider.Cancel("r-1"), "nothing"},
		"cancel the parked run":          {parked, decider.Cancel("r-1"), "run.finished"},
		"cancel a queued run":            {queue(given.Running, false, "r-2"), decider.Cancel("r-2"), "run.finished"},
		"cancel what was cancelled":      {given.Running.And(session.RunFinished{RunID: "r-1", Outcome: "cancelled"}), decider.Cancel("r-1"), "nothing"},
		"cancel what is over":            {over, decider.Cancel("r-1"), "[illegal-transition]"},
		"cancel what was continued":      {parked.And(yes, session.RunStarted{RunID: "r-2", ParentRunID: "r-1"}), decider.Cancel("r-1"), "[illegal-transition]"},
		"cancel an unknown run":          {asked, decider.Cancel("r-9"), "[not-found]"},
		"cancel in no session":           {given.Nothing, decider.Cancel("r-1"), "[not-found]"},
		"cancel the run of an ended one": {given.Ended, decider.Cancel("r-1"), "[not-found]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := given.Outcome(tc.decide(given.Given(t, tc.past), given.Start)); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

package decider_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/session/internal/decider"
)

var (
	one = []decider.Message{{ID: "m"}}
	two = append(one[:1:1], decider.Message{ID: "m-2"})
)

type decide = func(*session.State, time.Time) ([]events.Record, error)

// Each command in each phase: what is appended, or with which code it is refused.
func TestEveryCommandInEveryPhase(t *testing.T) {
	t.Parallel()
	hour := events.Duration(9 * time.Hour)
	const ended, illegal, missing = "[session-ended]", "[illegal-transition]", "[not-found]"
	over := func(table map[string]string) map[string]string {
		for _, phase := range []string{"failed", "ending", "released", "ended"} {
			if _, said := table[phase]; !said {
				table[phase] = ended
			}
		}
		if _, said := table["none"]; !said {
			table["none"] = missing
		}
		return table
	}
	for name, tc := range map[string]struct {
		decide decide
		want   map[string]string
	}{
		"create": {decider.Create{BodyHash: "body"}.Decide, map[string]string{
			"": "nothing", "none": "session.created",
		}},
		"create, another body": {decider.Create{BodyHash: "other"}.Decide, map[string]string{
			"": "[idempotency-conflict]", "none": "session.created",
		}},
		"send": {decider.Send{Messages: one, RunID: "r"}.Decide, over(map[string]string{
			"": "session.message-received", "suspending": "session.message-received session.resume-requested",
			"suspended": "session.message-received session.resume-requested", "lost": "session.message-received session.resume-requested",
		})},
		"suspend": {decider.Suspend{}.Decide, over(map[string]string{"": illegal, "ready": "session.suspend-requested"})},
		"resume": {decider.Resume{}.Decide, over(map[string]string{
			"": illegal, "suspending": "session.resume-requested", "suspended": "session.resume-requested", "lost": "session.resume-requested",
		})},
		"extend":         {decider.Extend{Max: &hour}.Decide, over(map[string]string{"": "session.extended"})},
		"extend nothing": {decider.Extend{}.Decide, over(map[string]string{"": "[invalid-request]"})},
		"terminate": {decider.Terminate{}.Decide, map[string]string{
			"": "session.terminated", "none": missing, "ending": "nothing", "released": "nothing", "ended": "nothing",
		}},
		"note activity": {decider.NoteActivity{Holder: "h", Until: given.Start.Add(time.Minute)}.Decide, map[string]string{
			"": illegal, "none": missing, "ready": "session.activity-noted",
		}},
		"release what isn't held": {decider.NoteActivity{Holder: "h"}.Decide, map[string]string{"": "nothing", "none": missing}},
		"settle": {decider.Settle, map[string]string{
			"": "nothing", "failed": "session.end-requested", "released": "session.ended",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given.EveryPhase(t, tc.decide, tc.want)
		})
	}
}

// What a command does depends on more than the phase.
func TestDecide(t *testing.T) {
	t.Parallel()
	minute, day := events.Duration(time.Minute), events.Duration(24*time.Hour)
	held := given.Ready.And(session.ActivityNoted{Holder: "h", Until: given.Start.Add(time.Minute)})
	parked := given.Running.And(session.CallProposed{CallID: "c-1", RunID: "r-1"}, session.CallDecided{CallID: "c-1", Decision: "ask"},
		session.CallHumanConfirmRequired{CallID: "c-1"}, session.RunInterrupted{RunID: "r-1", Calls: []string{"c-1"}})
	full := given.Ready
	for i := range decider.MaxQueue {
		full = full.And(given.Queued("r-" + string(rune('A'+i))))
	}
	unsuspendable := terms(func(t *session.Terms) { t.Suspends = false })
	endless := terms(func(t *session.Terms) { t.Max, t.Idle = 0, 0 })
	for name, tc := range map[string]struct {
		past   given.Past
		decide decide
		after  time.Duration
		want   string
	}{
		"reject while a run is open":   {given.Running, decider.Send{Messages: one, WhenBusy: decider.Reject}.Decide, 0, "[run-busy]"},
		"reject while one waits":       {given.Ready.And(given.Queued("r")), decider.Send{Messages: one, WhenBusy: decider.Reject}.Decide, 0, "[run-busy]"},
		"reject while one is parked":   {parked, decider.Send{Messages: one, WhenBusy: decider.Reject}.Decide, 0, "[run-busy]"},
		"reject while idle":            {given.Ready, decider.Send{Messages: one, WhenBusy: decider.Reject}.Decide, 0, "session.message-received"},
		"queue behind a run":           {given.Running, decider.Send{Messages: one}.Decide, 0, "session.message-received"},
		"two messages in a run":        {given.Ready, decider.Send{Messages: two, RunID: "r"}.Decide, 0, "session.message-received session.message-received"},
		"a run that was there":         {given.Running, decider.Send{Messages: one, RunID: "r-1"}.Decide, 0, "[idempotency-conflict]"},
		"a full queue":                 {full, decider.Send{Messages: one}.Decide, 0, "[quota-exceeded]"},
		"suspend in a run":             {given.Running, decider.Suspend{}.Decide, 0, "[session-in-use]"},
		"suspend while held":           {held, decider.Suspend{}.Decide, time.Minute - 1, "[session-in-use]"},
		"suspend when no more held":    {held, decider.Suspend{}.Decide, time.Minute, "session.suspend-requested"},
		"suspend, parked":              {parked, decider.Suspend{}.Decide, 0, "session.suspend-requested"},
		"suspend what can't":           {ready(unsuspendable), decider.Suspend{}.Decide, 0, "[illegal-transition]"},
		"resume twice":                 {given.Suspending.And(session.ResumeRequested{}), decider.Resume{}.Decide, 0, "nothing"},
		"extend to an earlier age":     {given.Ready, decider.Extend{Max: &minute}.Decide, 0, "[invalid-request]"},
		"extend to a shorter idleness": {given.Ready, decider.Extend{Idle: &minute}.Decide, 0, "[invalid-request]"},
		"extend both":                  {given.Ready, decider.Extend{Max: &day, Idle: &day}.Decide, 0, "session.extended"},
		"extend an age without end":    {ready(endless), decider.Extend{Max: &day}.Decide, 0, "[invalid-request]"},
		"extend idleness without end":  {ready(endless), decider.Extend{Idle: &day}.Decide, 0, "[invalid-request]"},
		"hold less than is held":       {held, decider.NoteActivity{Holder: "h", Until: given.Start.Add(30 * time.Second)}.Decide, 0, "nothing"},
		"hold until the past":          {given.Ready, decider.NoteActivity{Holder: "h", Until: given.Start}.Decide, time.Second, "nothing"},
		"release":                      {held, decider.NoteActivity{Holder: "h"}.Decide, 0, "session.activity-noted"},
		"release while suspending":     {held.And(session.SuspendRequested{}), decider.NoteActivity{Holder: "h"}.Decide, 0, "session.activity-noted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := given.Outcome(tc.decide(given.Given(t, tc.past), given.Start.Add(tc.after))); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

func terms(change func(*session.Terms)) session.Terms {
	t := given.Terms
	change(&t)
	return t
}

// ready is the ready session under other terms.
func ready(t session.Terms) given.Past {
	past := slices.Clone(given.Ready)
	past[0] = session.Created{Owner: "alice", Terms: t}
	return past
}

// A refused move says where the session is and what may be asked of it.
func TestRefusedMoveNamesTheLegalOnes(t *testing.T) {
	t.Parallel()
	_, err := decider.Suspend{}.Decide(given.Given(t, given.Suspended), given.Start)
	p := problem.From(err)
	want := []string{"message", "resume", "extend", "terminate"}
	if p.Phase != "suspended" || !slices.Equal(p.Allowed, want) {
		t.Errorf("phase %q, allowed %v; want suspended, %v", p.Phase, p.Allowed, want)
	}
}

func TestHoldersAreBounded(t *testing.T) {
	t.Parallel()
	records, err := decider.NoteActivity{Holder: "h", Until: given.Start.Add(1000 * time.Hour)}.Decide(given.Given(t, given.Ready), given.Start)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := given.Only[session.ActivityNoted](t, records).Until, given.Start.Add(decider.MaxHolderAhead); !got.Equal(want) {
		t.Errorf("until %s, want %s", got, want)
	}
}

// A message in the create is there from the first envelope on.
func TestCreateWithMessage(t *testing.T) {
	t.Parallel()
	records, err := decider.Create{Message: &decider.Send{Messages: one, RunID: "r", WhenBusy: decider.CancelFirst}}.Decide(session.New(), given.Start)
	if err != nil {
		t.Fatal(err)
	}
	if m := given.Only[session.MessageReceived](t, records); m.RunID != "r" || !m.CancelOpen {
		t.Errorf("%+v", m)
	}
}

func TestSettle(t *testing.T) {
	t.Parallel()
	endOnLoss := ready(terms(func(t *session.Terms) { t.OnLoss = "end" })).And(session.Lost{Generation: 1, PodUID: "pod-1"})
	released := session.Released{Generation: 1}
	parked := given.Running.And(session.CallProposed{CallID: "c-1", RunID: "r-1"}, session.RunInterrupted{RunID: "r-1", Calls: []string{"c-1"}})
	ending := session.Terminated{}
	for name, tc := range map[string]struct {
		past given.Past
		want string
	}{
		"terminated before anything was claimed": {given.Pending.And(ending), "session.ended"},
		"lost under onLoss end":                  {endOnLoss, "session.end-requested"},
		"lost under onLoss restart":              {given.Lost, "nothing"},
		"a message, then suspending":             {given.Ready.And(given.Queued("r"), session.SuspendRequested{}), "session.resume-requested"},
		"a message to a lost one":                {given.Lost.And(given.Queued("r")), "session.resume-requested"},
		"answered while suspended": {
			parked.And(session.CallDenied{CallID: "c-1"}, session.SuspendRequested{}, session.Suspended{Generation: 1}), "session.resume-requested",
		},
		"unanswered while suspended":      {parked.And(session.SuspendRequested{}, session.Suspended{Generation: 1}), "nothing"},
		"queued behind an unanswered one": {parked.And(given.Queued("r"), session.SuspendRequested{}, session.Suspended{Generation: 1}), "nothing"},
		"ending with an open run":         {given.Running.And(ending, released), "nothing"},
		"ending with a parked run":        {parked.And(ending, released), "nothing"},
		"ending with a queued run":        {given.Ready.And(given.Queued("r"), ending, released), "nothing"},
		"ending with an open call":        {given.Running.And(session.CallProposed{CallID: "c-1", RunID: "r-1"}, session.RunFinished{RunID: "r-1"}, ending, released), "nothing"},
		"ending, all closed":              {given.Running.And(ending, session.RunFinished{RunID: "r-1", Outcome: "cancelled"}, released), "session.ended"},
		"failed, then terminated":         {given.Failed.And(ending), "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := given.Outcome(decider.Settle(given.Given(t, tc.past), given.Start)); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

// A session ends as what first made it end.
func TestEndSaysWhatEndedIt(t *testing.T) {
	t.Parallel()
	records, err := decider.Settle(given.Given(t, given.Ready.And(session.Expired{MaxAt: given.Start}, session.Released{Generation: 1})), given.Start)
	if err != nil {
		t.Fatal(err)
	}
	if e := given.Only[session.Ended](t, records); e.Outcome != session.OutcomeExpired || e.Cause == "" {
		t.Errorf("%+v", e)
	}
}

// Each deadline at the last moment before it and at it; what has changed since the
// view listed it decides nothing.
func TestDue(t *testing.T) {
	t.Parallel()
	parked := given.Running.And(
		session.CallProposed{CallID: "c-1", RunID: "r-1"}, session.CallDecided{CallID: "c-1", Decision: "ask"},
		session.CallHumanConfirmRequired{CallID: "c-1"}, session.RunInterrupted{RunID: "r-1", Calls: []string{"c-1"}},
	)
	endOnIdle := terms(func(t *session.Terms) { t.OnIdle = "end" })
	stays := terms(func(t *session.Terms) { t.OnIdle, t.Suspends = "end", false })
	delegated := ready(endOnIdle).And(given.Queued("r-1"), given.Started("r-1"),
		session.CallProposed{CallID: "c-1", RunID: "r-1", Modes: []string{session.ModeDelegate}}, session.CallDecided{CallID: "c-1", Decision: "allow"},
		session.CallDelegated{CallID: "c-1", RunID: "r-1"}, session.RunInterrupted{RunID: "r-1", Calls: []string{"c-1"}})
	held := session.ActivityNoted{Holder: "h", Until: given.Start.Add(time.Hour)}
	draining := session.Draining{Generation: 1, PodUID: "pod-1", Cause: "node-cordoned"}
	later := given.Start.Add(100 * time.Hour)
	idle, waiting, age := 15*time.Minute, 2*time.Minute, 8*time.Hour
	for name, tc := range map[string]struct {
		past  given.Past
		kind  session.DeadlineKind
		after time.Duration
		want  string
	}{
		"before idle":               {given.Ready, session.DeadlineIdle, idle - 1, "nothing"},
		"idle":                      {given.Ready, session.DeadlineIdle, idle, "session.suspend-requested"},
		"idle ends":                 {ready(endOnIdle), session.DeadlineIdle, idle, "session.end-requested"},
		"idle with a question":      {parked, session.DeadlineIdle, idle, "session.suspend-requested"},
		"idle in a run":             {given.Running, session.DeadlineIdle, idle, "nothing"},
		"idle with a run due":       {given.Ready.And(given.Queued("r")), session.DeadlineIdle, idle, "nothing"},
		"idle while held":           {given.Ready.And(held), session.DeadlineIdle, time.Hour + idle - 1, "nothing"},
		"idle after it was held":    {given.Ready.And(held), session.DeadlineIdle, time.Hour + idle, "session.suspend-requested"},
		"idle, suspended already":   {given.Suspended, session.DeadlineIdle, idle, "nothing"},
		"draining":                  {given.Ready.And(draining), session.DeadlineIdle, time.Minute, "session.suspend-requested"},
		"draining in a run":         {given.Running.And(draining), session.DeadlineIdle, time.Hour, "nothing"},
		"draining while held":       {given.Ready.And(held, draining), session.DeadlineIdle, time.Hour - 1, "nothing"},
		"draining, ends when idle":  {ready(endOnIdle).And(draining), session.DeadlineIdle, time.Minute, "session.suspend-requested"},
		"draining, no suspending":   {ready(stays).And(draining), session.DeadlineIdle, time.Minute, "nothing"},
		"before waiting":            {parked, session.DeadlineWaiting, waiting - 1, "nothing"},
		"waiting":                   {parked, session.DeadlineWaiting, waiting, "session.suspend-requested"},
		"waiting, answered":         {parked.And(session.CallDenied{CallID: "c-1"}), session.DeadlineWaiting, waiting, "nothing"},
		"waiting for the client":    {delegated, session.DeadlineWaiting, waiting, "session.suspend-requested"},
		"idle with a client's call": {delegated, session.DeadlineIdle, idle, "session.suspend-requested"},
		"waiting while held":        {parked.And(held), session.DeadlineWaiting, waiting, "nothing"},
		"before the maximum age":    {given.Ready, session.DeadlineMax, age - 1, "nothing"},
		"maximum age":               {given.Ready, session.DeadlineMax, age, "session.expired"},
		"maximum age in a run":      {given.Running, session.DeadlineMax, age, "session.expired"},
		"maximum age, suspended":    {given.Suspended, session.DeadlineMax, age, "session.expired"},
		"maximum age was extended":  {given.Ready.And(session.Extended{MaxAt: &later}), session.DeadlineMax, age, "nothing"},
		"maximum age, ending":       {given.Ending, session.DeadlineMax, age, "nothing"},
		"another service's":         {given.Requested, session.DeadlineClaim, age, "nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := given.Outcome(decider.Due(tc.kind)(given.Given(t, tc.past), given.Start.Add(tc.after))); got != tc.want {
				t.Errorf("%s, want %s", got, tc.want)
			}
		})
	}
}

package decider_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/workload/internal/decider"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	endOnLoss := slices.Clone(given.Ready)
	terms := given.Terms
	terms.OnLoss = "end"
	endOnLoss[0] = session.Created{Terms: terms}
	message := session.ResumeRequested{Cause: "message"}
	lost := session.Lost{Generation: 1, PodUID: "pod-1"}
	ending := session.Terminated{}
	for name, tc := range map[string]struct {
		past given.Past
		want decider.Action
	}{
		"none":                           {given.Nothing, decider.Nothing},
		"pending":                        {given.Pending, decider.Request},
		"requested":                      {given.Requested, decider.Claim},
		"claimed":                        {given.Claimed, decider.Ready},
		"ready":                          {given.Ready, decider.Verify},
		"suspending":                     {given.Suspending, decider.Suspend},
		"wanted while suspending":        {given.Suspending.And(message), decider.Suspend},
		"suspended":                      {given.Suspended, decider.Nothing},
		"resuming":                       {given.Resuming, decider.Resume},
		"lost":                           {given.Lost, decider.Clear},
		"lost while suspending":          {given.Suspending.And(lost), decider.Clear},
		"lost and wanted":                {given.Lost.And(message), decider.Request},
		"lost for good":                  {endOnLoss.And(lost), decider.Clear},
		"lost for good, then a message":  {endOnLoss.And(lost, message), decider.Clear},
		"failed":                         {given.Failed, decider.Nothing},
		"failed, ending":                 {given.Failed.And(session.EndRequested{Outcome: session.OutcomeFailed}), decider.Release},
		"ended before a claim":           {given.Pending.And(ending), decider.Nothing},
		"terminated while requested":     {given.Requested.And(ending), decider.Release},
		"terminated while claimed":       {given.Claimed.And(ending), decider.Release},
		"ending":                         {given.Ending, decider.Release},
		"terminated while suspending":    {given.Suspending.And(ending), decider.Release},
		"terminated while suspended":     {given.Suspended.And(ending), decider.Release},
		"terminated while resuming":      {given.Resuming.And(ending), decider.Release},
		"terminated while lost":          {given.Lost.And(ending), decider.Release},
		"released":                       {given.Released, decider.Nothing},
		"ended":                          {given.Ended, decider.Nothing},
		"second generation is requested": {given.Lost.And(message, session.ClaimRequested{Generation: 2}), decider.Claim},
	} {
		if got := decider.Plan(given.Given(t, tc.past)); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// What a carried-out effect comes to in each phase: it counts where the session is
// still where the effect was decided, else the loop has to look again.
func TestEveryStepInEveryPhase(t *testing.T) {
	t.Parallel()
	const overtaken = "[the session has moved on]"
	only := func(phase, outcome string) map[string]string { return map[string]string{"": overtaken, phase: outcome} }
	for name, tc := range map[string]struct {
		decide func(*session.State, time.Time) ([]events.Record, error)
		want   map[string]string
	}{
		"request": {decider.RequestNext, only("pending", "workload.claim-requested")},
		"claimed": {decider.Claimed(session.Claimed{Generation: 1, PodUID: "pod-1"}), map[string]string{
			"": overtaken, "requested": "workload.claimed", "claimed": "nothing",
		}},
		"claimed again": {decider.Claimed(session.Claimed{Generation: 1, PodUID: "pod-2"}), map[string]string{
			"": overtaken, "requested": "workload.claimed", "claimed": "workload.claimed",
		}},
		"claimed, older generation": {decider.Claimed(session.Claimed{Generation: 0, PodUID: "pod-1"}), only("", overtaken)},
		"ready":                     {decider.BecameReady(session.Ready{Generation: 1, PodUID: "pod-1"}), only("claimed", "workload.ready")},
		"ready, another pod":        {decider.BecameReady(session.Ready{Generation: 1, PodUID: "pod-2"}), only("", overtaken)},
		"suspended":                 {decider.Suspended(1), only("suspending", "workload.suspended")},
		"resumed":                   {decider.Resumed(session.Resumed{Generation: 1, PodUID: "pod-2"}), only("resuming", "workload.resumed")},
		"released":                  {decider.Released(1), only("ending", "workload.released")},
		"failed": {decider.Failed(session.Failed{Generation: 1, Cause: decider.CauseTimeout}, true), map[string]string{
			"": overtaken, "requested": "workload.failed", "claimed": "workload.failed",
		}},
		"lost": {decider.Lost(session.Lost{Generation: 1, PodUID: "pod-1"}), map[string]string{
			"": "nothing", "ready": "workload.lost", "suspending": "workload.lost",
		}},
		"lost, another pod": {decider.Lost(session.Lost{Generation: 1, PodUID: "pod-0"}), only("", "nothing")},
		"not resumed": {decider.Lost(session.Lost{Generation: 1}), map[string]string{
			"": "nothing", "suspended": "workload.lost", "resuming": "workload.lost",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			given.EveryPhase(t, tc.decide, tc.want)
		})
	}
}

// A session that has worked survives claims and resumes that come to nothing, but not
// an endless row of them: a run that is due asks for the next at once.
func TestFruitlessClaimsOfASessionThatWorked(t *testing.T) {
	t.Parallel()
	again := session.ResumeRequested{Cause: "run"}
	lost := func(generation uint64) session.Payload {
		return session.Lost{Generation: generation, Cause: decider.CauseStart}
	}
	claim := func(generation uint64) session.Payload {
		return session.ClaimRequested{Generation: generation, Deadline: given.Start.Add(given.Terms.Claim.D())}
	}
	claimed := func(generation uint64) session.Payload {
		return session.Claimed{Generation: generation, PodUID: "pod-n"}
	}
	second := given.Lost.And(again, claim(2))
	third := second.And(lost(2), again, claim(3))
	for name, tc := range map[string]struct {
		past       given.Past
		generation uint64
		want       string
	}{
		"the first claim of all":  {given.Requested, 1, "workload.failed"},
		"one after a loss":        {second, 2, "workload.lost"},
		"one that was claimed":    {second.And(claimed(2)), 2, "workload.lost"},
		"two in a row":            {third, 3, "workload.lost"},
		"three in a row":          {third.And(lost(3), again, claim(4)), 4, "workload.failed"},
		"a resume and one claim":  {given.Resuming.And(lost(1), again, claim(2)), 2, "workload.lost"},
		"a resume and two claims": {given.Resuming.And(lost(1), again, claim(2), lost(2), again, claim(3)), 3, "workload.failed"},
		"ready in between": {
			third.And(claimed(3), session.Ready{Generation: 3, PodUID: "pod-n"}, session.Lost{Generation: 3, PodUID: "pod-n"}, again, claim(4)), 4, "workload.lost",
		},
	} {
		st := given.Given(t, tc.past)
		failed := decider.Failed(session.Failed{Generation: tc.generation, Cause: decider.CauseStart}, true)
		if got := given.Outcome(failed(st, given.Start)); got != tc.want {
			t.Errorf("%s: failed: %s, want %s", name, got, tc.want)
		}
		records, err := decider.Due(true, decider.CauseTimeout, "")(st, given.Start.Add(given.Terms.Claim.D()))
		if got := given.Outcome(records, err); got != tc.want {
			t.Errorf("%s: due: %s, want %s", name, got, tc.want)
		}
		if tc.want == "workload.lost" && !given.Only[session.Lost](t, records).WorkspaceKept {
			t.Errorf("%s: its workspace is not kept", name)
		}
	}
}

// A node's fault is a loss, also for a session that never worked: it has another try
// elsewhere, but not for ever.
func TestPlaceAtFault(t *testing.T) {
	t.Parallel()
	again := session.ResumeRequested{}
	second := given.Requested.And(session.Lost{Generation: 1, Cause: decider.CausePlace}, again, session.ClaimRequested{Generation: 2})
	for name, tc := range map[string]struct {
		past       given.Past
		generation uint64
		want       string
	}{
		"requested": {given.Requested, 1, "workload.lost"},
		"claimed":   {given.Claimed, 1, "workload.lost"},
		"again":     {second, 2, "workload.lost"},
		"thrice":    {second.And(session.Lost{Generation: 2, Cause: decider.CausePlace}, again, session.ClaimRequested{Generation: 3}), 3, "workload.failed"},
	} {
		st := given.Given(t, tc.past)
		failed := decider.Failed(session.Failed{Generation: tc.generation, Cause: decider.CausePlace}, true)
		if got := given.Outcome(failed(st, given.Start)); got != tc.want {
			t.Errorf("%s: failed: %s, want %s", name, got, tc.want)
		}
		due := decider.Due(true, decider.CausePlace, "")
		if got := given.Outcome(due(st, given.Start.Add(given.Terms.Claim.D()))); got != tc.want {
			t.Errorf("%s: due: %s, want %s", name, got, tc.want)
		}
	}
}

// Only a failure that followed work leaves files behind.
func TestKeepsWorkspace(t *testing.T) {
	t.Parallel()
	failed := session.EndRequested{Outcome: session.OutcomeFailed}
	endOnLoss := slices.Clone(given.Lost)
	terms := given.Terms
	terms.OnLoss = "end"
	endOnLoss[0] = session.Created{Terms: terms}
	for name, tc := range map[string]struct {
		past given.Past
		want bool
	}{
		"never worked":  {given.Failed.And(failed), false},
		"worked":        {given.Lost.And(failed), true},
		"lost for good": {endOnLoss.And(failed), false},
		"terminated":    {given.Lost.And(session.Terminated{}), false},
		"completed":     {given.Ready.And(session.EndRequested{Outcome: session.OutcomeCompleted}), false},
	} {
		if got := decider.KeepsWorkspace(given.Given(t, tc.past)); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A claim's deadline is ours and counts from the request; a resume's from when it
// was wanted.
func TestDue(t *testing.T) {
	t.Parallel()
	claim := given.Terms.Claim.D()
	for name, tc := range map[string]struct {
		past  given.Past
		after time.Duration
		want  string
	}{
		"before":                   {given.Requested, claim - 1, "nothing"},
		"requested":                {given.Requested, claim, "workload.failed"},
		"claimed":                  {given.Claimed, claim, "workload.failed"},
		"ready":                    {given.Ready, claim, "nothing"},
		"resuming, before":         {given.Resuming, claim - 1, "nothing"},
		"resuming":                 {given.Resuming, claim, "workload.lost"},
		"suspended":                {given.Suspended, claim, "nothing"},
		"terminated while claimed": {given.Claimed.And(session.Terminated{}), claim, "nothing"},
		"failed already":           {given.Failed, claim, "nothing"},
	} {
		if got := given.Outcome(decider.Due(true, decider.CauseTimeout, "")(given.Given(t, tc.past), given.Start.Add(tc.after))); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestRequestNamesTheNextGenerationAndItsDeadline(t *testing.T) {
	t.Parallel()
	records, err := decider.RequestNext(given.Given(t, given.Lost.And(session.ResumeRequested{})), given.Start)
	if err != nil {
		t.Fatal(err)
	}
	if c := given.Only[session.ClaimRequested](t, records); c.Generation != 2 || !c.Deadline.Equal(given.Start.Add(given.Terms.Claim.D())) {
		t.Errorf("%+v", c)
	}
}

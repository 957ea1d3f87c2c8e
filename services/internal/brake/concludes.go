package brake

import (
	"slices"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/events/sweep"
)

// concludes says whether all that an envelope holds ends something or records what
// has already happened. They take effect together, so one that begins something
// holds all of them back.
func concludes(env events.Envelope) bool {
	return !slices.ContainsFunc(env.Events, func(r events.Record) bool { return !recordConcludes(r, env.Service) })
}

func recordConcludes(r events.Record, by events.Service) bool {
	switch r.Type {
	case runtime.TypeRemoved, policy.TypeRemoved, sweep.TypeRequested, sweep.TypeRemoved, sweep.TypeFailed:
		return true
	}
	p, err := session.Decode(r, by)
	return err == nil && payloadConcludes(p)
}

// payloadConcludes judges each fact about a session. A claim that was asked for
// before, a run that is under way and what its agent has said are written down as
// they come; what would ask for a sandbox, begin a run, put a question or let a call
// run waits.
func payloadConcludes(p session.Payload) bool {
	switch p := p.(type) {
	case session.Expired, session.Terminated, session.EndRequested, session.Ended, session.SuspendRequested,
		session.Claimed, session.Ready, session.Suspended, session.Resumed, session.Draining, session.Stayed,
		session.Lost, session.Failed, session.Released,
		session.RunTakenOver, session.RunMessageRecorded, session.RunCancelRequested, session.RunInterrupted,
		session.RunFinished, session.RunFailed,
		session.CallAnswerRefused, session.CallDenied, session.CallExpired, session.CallCancelled, session.CallSuperseded,
		session.CallCompleted, session.CallLapsed:
		return true
	case session.ActivityNoted:
		return p.Until.IsZero() // a holder lets go
	case session.CallVoteCast:
		return p.Decision == "deny"
	case session.Created, session.MessageReceived, session.ResumeRequested, session.Extended,
		session.ClaimRequested, session.RunStarted,
		session.CallProposed, session.CallDecided, session.CallHumanConfirmRequired, session.CallApproved, session.CallStarted,
		session.CallDelegated:
		return false
	default:
		return false // what a later version adds has to be judged before it passes
	}
}

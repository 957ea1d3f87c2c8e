package session

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/events"
)

// The types of event on a session's subject.
const (
	TypeCreated          = "session.created"
	TypeMessageReceived  = "session.message-received"
	TypeActivityNoted    = "session.activity-noted"
	TypeSuspendRequested = "session.suspend-requested"
	TypeResumeRequested  = "session.resume-requested"
	TypeExtended         = "session.extended"
	TypeExpired          = "session.expired"
	TypeTerminated       = "session.terminated"
	TypeEndRequested     = "session.end-requested"
	TypeEnded            = "session.ended"

	TypeClaimRequested = "workload.claim-requested"
	TypeClaimed        = "workload.claimed"
	TypeReady          = "workload.ready"
	TypeSuspended      = "workload.suspended"
	TypeResumed        = "workload.resumed"
	TypeDraining       = "workload.draining"
	TypeStayed         = "workload.stayed"
	TypeLost           = "workload.lost"
	TypeFailed         = "workload.failed"
	TypeReleased       = "workload.released"

	TypeRunStarted         = "run.started"
	TypeRunTakenOver       = "run.taken-over"
	TypeRunMessageRecorded = "run.message-recorded"
	TypeRunCancelRequested = "run.cancel-requested"
	TypeRunInterrupted     = "run.interrupted"
	TypeRunFinished        = "run.finished"
	TypeRunFailed          = "run.failed"

	TypeCallProposed             = "call.proposed"
	TypeCallDecided              = "call.decided"
	TypeCallHumanConfirmRequired = "call.human-confirm-required"
	TypeCallVoteCast             = "call.vote-cast"
	TypeCallAnswerRefused        = "call.answer-refused"
	TypeCallApproved             = "call.approved"
	TypeCallDenied               = "call.denied"
	TypeCallExpired              = "call.expired"
	TypeCallCancelled            = "call.cancelled"
	TypeCallSuperseded           = "call.superseded"
	TypeCallStarted              = "call.started"
	TypeCallDelegated            = "call.delegated"
	TypeCallCompleted            = "call.completed"
	TypeCallLapsed               = "call.lapsed"
)

// kind is what the registry knows of a type of event.
type kind struct {
	owner events.Service
	// version is what is written today; older ones are upcast by decode.
	version int
	decode  func(v int, data json.RawMessage) (Payload, error)
}

func v1[P Payload](owner events.Service) kind { return grown[P](owner, 1) }

// grown is a type whose later versions only added fields that may be absent, so
// that each of them is read as today's.
func grown[P Payload](owner events.Service, version int) kind {
	return kind{owner: owner, version: version, decode: func(v int, data json.RawMessage) (Payload, error) {
		var p P
		if v < 1 || v > version {
			return nil, &events.UnknownTypeError{Type: p.eventType(), V: v}
		}
		if string(data) == "null" { // which Unmarshal takes for any struct
			return nil, fmt.Errorf("%s: no payload", p.eventType())
		}
		if err := json.Unmarshal(data, &p); err != nil {
			return nil, fmt.Errorf("%s: %w", p.eventType(), err)
		}
		return p, nil
	}}
}

var registry = map[string]kind{
	TypeCreated:          v1[Created](events.ServiceSession),
	TypeMessageReceived:  grown[MessageReceived](events.ServiceSession, 2),
	TypeActivityNoted:    v1[ActivityNoted](events.ServiceSession),
	TypeSuspendRequested: v1[SuspendRequested](events.ServiceSession),
	TypeResumeRequested:  v1[ResumeRequested](events.ServiceSession),
	TypeExtended:         v1[Extended](events.ServiceSession),
	TypeExpired:          v1[Expired](events.ServiceSession),
	TypeTerminated:       v1[Terminated](events.ServiceSession),
	TypeEndRequested:     v1[EndRequested](events.ServiceSession),
	TypeEnded:            v1[Ended](events.ServiceSession),

	TypeClaimRequested: v1[ClaimRequested](events.ServiceWorkload),
	TypeClaimed:        v1[Claimed](events.ServiceWorkload),
	TypeReady:          v1[Ready](events.ServiceWorkload),
	TypeSuspended:      v1[Suspended](events.ServiceWorkload),
	TypeResumed:        v1[Resumed](events.ServiceWorkload),
	TypeDraining:       v1[Draining](events.ServiceWorkload),
	TypeStayed:         v1[Stayed](events.ServiceWorkload),
	TypeLost:           v1[Lost](events.ServiceWorkload),
	TypeFailed:         v1[Failed](events.ServiceWorkload),
	TypeReleased:       v1[Released](events.ServiceWorkload),

	TypeRunStarted:         v1[RunStarted](events.ServiceRunner),
	TypeRunTakenOver:       v1[RunTakenOver](events.ServiceRunner),
	TypeRunMessageRecorded: v1[RunMessageRecorded](events.ServiceRunner),
	TypeRunCancelRequested: v1[RunCancelRequested](events.ServiceRunner),
	TypeRunInterrupted:     v1[RunInterrupted](events.ServiceRunner),
	TypeRunFinished:        v1[RunFinished](events.ServiceRunner),
	TypeRunFailed:          v1[RunFailed](events.ServiceRunner),

	TypeCallProposed:             v1[CallProposed](events.ServicePolicy),
	TypeCallDecided:              v1[CallDecided](events.ServicePolicy),
	TypeCallHumanConfirmRequired: v1[CallHumanConfirmRequired](events.ServicePolicy),
	TypeCallVoteCast:             v1[CallVoteCast](events.ServicePolicy),
	TypeCallAnswerRefused:        v1[CallAnswerRefused](events.ServicePolicy),
	TypeCallApproved:             v1[CallApproved](events.ServicePolicy),
	TypeCallDenied:               v1[CallDenied](events.ServicePolicy),
	TypeCallExpired:              v1[CallExpired](events.ServicePolicy),
	TypeCallCancelled:            v1[CallCancelled](events.ServicePolicy),
	TypeCallSuperseded:           v1[CallSuperseded](events.ServicePolicy),
	TypeCallStarted:              v1[CallStarted](events.ServicePolicy),
	TypeCallDelegated:            v1[CallDelegated](events.ServicePolicy),
	TypeCallCompleted:            v1[CallCompleted](events.ServicePolicy),
	TypeCallLapsed:               v1[CallLapsed](events.ServicePolicy),
}

// Types lists every known type of event, sorted.
func Types() []string {
	types := make([]string, 0, len(registry))
	for t := range registry {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}

// Owner gives the one service that appends a type of event.
func Owner(eventType string) (events.Service, bool) {
	k, ok := registry[eventType]
	return k.owner, ok
}

// Decode reads a stored record that service wrote. Errors:
// *events.UnknownTypeError, *events.ForeignTypeError, *events.LostError, or a
// payload that can't be read.
func Decode(r events.Record, service events.Service) (Payload, error) {
	k, ok := registry[r.Type]
	if !ok {
		return nil, &events.UnknownTypeError{Type: r.Type, V: r.V}
	}
	if k.owner != service {
		return nil, &events.ForeignTypeError{Type: r.Type, Service: service, Owner: k.owner}
	}
	data, err := r.Contents()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Type, err)
	}
	return k.decode(r.V, data)
}

// TypeOf gives a payload's type of event.
func TypeOf(p Payload) string { return p.eventType() }

// Records turns what service decided into what is stored, in today's versions.
func Records(service events.Service, payloads ...Payload) ([]events.Record, error) {
	records := make([]events.Record, len(payloads))
	for i, p := range payloads {
		t := p.eventType()
		if owner := registry[t].owner; owner != service {
			return nil, &events.ForeignTypeError{Type: t, Service: service, Owner: owner}
		}
		data, err := events.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t, err)
		}
		records[i] = events.Record{Type: t, V: registry[t].version, Data: data}
	}
	return records, nil
}

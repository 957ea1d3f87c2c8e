package view

import (
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/events/sweep"
)

// AuditEntry is one event in the audit log: who did what to what, why, and how it
// came out. Data is the event's payload, masked.
type AuditEntry struct {
	Seq    uint64 `json:"seq"`
	N      uint64 `json:"n"`
	Tenant string `json:"tenant"`
	// Kind is what it happened to, Subject its id or name.
	Kind        events.Aggregate `json:"kind"`
	Subject     string           `json:"subject"`
	Time        time.Time        `json:"time"`
	Type        string           `json:"type"`
	V           int              `json:"v"`
	Actor       string           `json:"actor"`
	Service     events.Service   `json:"service"`
	Command     string           `json:"command"`
	Cause       string           `json:"cause,omitempty"`
	Outcome     AuditOutcome     `json:"outcome"`
	Enforcement string           `json:"enforcement,omitempty"`
	Data        json.RawMessage  `json:"data"`
}

// AuditOutcome is how something came out.
type AuditOutcome string

// The outcomes: done; a refused attempt; what a policy or a person denied; what
// nobody answered in time; what went wrong.
const (
	OutcomeDone    AuditOutcome = "done"
	OutcomeRefused AuditOutcome = "refused"
	OutcomeDenied  AuditOutcome = "denied"
	OutcomeExpired AuditOutcome = "expired"
	OutcomeFailed  AuditOutcome = "failed"
)

// OutcomeOf says how an event came out, from its type and, where the type alone
// doesn't tell, its payload.
func OutcomeOf(r events.Record) AuditOutcome {
	switch r.Type {
	case session.TypeCallAnswerRefused:
		return OutcomeRefused
	case session.TypeCallDenied:
		return OutcomeDenied
	case session.TypeCallExpired, session.TypeExpired:
		return OutcomeExpired
	case session.TypeFailed, session.TypeLost, session.TypeRunFailed, session.TypeCallLapsed, sweep.TypeFailed:
		return OutcomeFailed
	case session.TypeCallDecided, session.TypeEnded, session.TypeEndRequested, session.TypeCallCompleted:
		return outcomeInside(r.Data)
	}
	return OutcomeDone
}

func outcomeInside(data json.RawMessage) AuditOutcome {
	var p struct {
		Decision string `json:"decision"`
		Outcome  string `json:"outcome"`
		Error    string `json:"error"`
	}
	if json.Unmarshal(data, &p) != nil {
		return OutcomeDone // the fold refuses it; the audit keeps that it was written
	}
	switch {
	case p.Decision == "deny":
		return OutcomeDenied
	case p.Outcome == string(session.OutcomeFailed), p.Error != "":
		return OutcomeFailed
	case p.Outcome == string(session.OutcomeExpired):
		return OutcomeExpired
	}
	return OutcomeDone
}

// EnforcementOf gives how a call's decision is enforced, where the event says it.
func EnforcementOf(r events.Record) string {
	if r.Type != session.TypeCallDecided {
		return ""
	}
	var p struct {
		Enforcement string `json:"enforcement"`
	}
	_ = json.Unmarshal(r.Data, &p) // what can't be read says nothing
	return p.Enforcement
}

// payloadOf gives an event's payload, masked; one that is lost says so in its place:
// the audit log goes on without it, but not as if it hadn't been.
func payloadOf(mask Masker, r events.Record) json.RawMessage {
	data, err := r.Contents()
	if err != nil {
		return mustJSON(map[string]string{"lost": err.Error()})
	}
	return mask.Payload(data)
}

// AuditEntries gives the audit entries of a message, masked with mask. A message
// that isn't an aggregate's has none.
func AuditEntries(mask Masker, m events.Message) []AuditEntry {
	a, ok := events.ParseSubject(m.Subject)
	if !ok {
		return nil
	}
	e := m.Envelope
	entries := make([]AuditEntry, len(e.Events))
	for i, r := range e.Events {
		meta := m.MetaAt(i)
		entries[i] = AuditEntry{
			Seq: m.Seq, N: meta.N, Tenant: a.Tenant, Kind: a.Aggregate, Subject: a.Key, Time: meta.Time,
			Type: r.Type, V: r.V, Actor: Principal(e.Actor), Service: e.Service, Command: e.Command, Cause: e.Cause,
			Outcome: OutcomeOf(r), Enforcement: EnforcementOf(r), Data: payloadOf(mask, r),
		}
	}
	return entries
}

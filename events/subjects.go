package events

import (
	"fmt"
	"regexp"
	"strings"
)

// Streams of Holdfast. EVENTS keeps decisions for ever and BLOBS what is too large
// to stand in them; OUTPUT keeps what agents stream for a bounded age, TRANSIT what
// is too large for a command or its answer while these are on their way.
const (
	StreamEvents  = "EVENTS"
	StreamBlobs   = "BLOBS"
	StreamOutput  = "OUTPUT"
	StreamTransit = "TRANSIT"
)

// Patterns of the streams' subjects and of the reactors' filter.
const (
	SubjectsEvents   = "ev.>"
	SubjectsBlobs    = "blob.>"
	SubjectsTransit  = "transit.>"
	SubjectsOutput   = "out.>"
	SubjectsSessions = "ev.*.s.*"
	// SubjectGenesis holds the log's first message.
	SubjectGenesis = "ev.genesis"
)

// Aggregate is a kind of thing that has a subject of its own.
type Aggregate string

// The aggregates.
const (
	AggregateSession Aggregate = "session"
	AggregateRuntime Aggregate = "runtime"
	AggregatePolicy  Aggregate = "policy"
	AggregateSweep   Aggregate = "sweep"
)

var tokenPattern = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// ValidToken says whether s can be a token of a subject.
func ValidToken(s string) bool { return tokenPattern.MatchString(s) }

// BadTokenError names a value that can't be a token of a subject.
type BadTokenError struct{ What, Value string }

// Error says which characters are allowed.
func (e *BadTokenError) Error() string {
	return fmt.Sprintf("%s %q: use 1 to 63 of a-z, 0-9 and -", e.What, e.Value)
}

// SubjectOf builds the subject of an aggregate: ev.<tenant>.s.<session>,
// ev.<tenant>.runtime.<name>, ev.<tenant>.policy.<name> or ev.<tenant>.sweep.<id>.
func SubjectOf(agg Aggregate, tenant, key string) (string, error) {
	if !ValidToken(tenant) {
		return "", &BadTokenError{What: "tenant", Value: tenant}
	}
	if !ValidToken(key) {
		return "", &BadTokenError{What: string(agg), Value: key}
	}
	kind := string(agg)
	if agg == AggregateSession {
		kind = "s"
	}
	return "ev." + tenant + "." + kind + "." + key, nil
}

// SessionSubject is SubjectOf for a session.
func SessionSubject(tenant, session string) (string, error) {
	return SubjectOf(AggregateSession, tenant, session)
}

// Address is a subject taken apart.
type Address struct {
	Aggregate Aggregate
	Tenant    string
	Key       string
}

// ParseSubject takes an aggregate's subject apart; ok is false for any other,
// genesis too.
func ParseSubject(subject string) (a Address, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 4 || parts[0] != "ev" || !ValidToken(parts[1]) || !ValidToken(parts[3]) {
		return Address{}, false
	}
	a = Address{Tenant: parts[1], Key: parts[3]}
	switch parts[2] {
	case "s":
		a.Aggregate = AggregateSession
	case "runtime":
		a.Aggregate = AggregateRuntime
	case "policy":
		a.Aggregate = AggregatePolicy
	case "sweep":
		a.Aggregate = AggregateSweep
	default:
		return Address{}, false
	}
	return a, true
}

// OutputSubject is where a session's agent output goes: out.<tenant>.<session>.
func OutputSubject(tenant, session string) (string, error) {
	if !ValidToken(tenant) {
		return "", &BadTokenError{What: "tenant", Value: tenant}
	}
	if !ValidToken(session) {
		return "", &BadTokenError{What: "session", Value: session}
	}
	return "out." + tenant + "." + session, nil
}

// ParseOutputSubject takes an OutputSubject apart.
func ParseOutputSubject(subject string) (tenant, session string, ok bool) {
	parts := strings.Split(subject, ".")
	if len(parts) != 3 || parts[0] != "out" || !ValidToken(parts[1]) || !ValidToken(parts[2]) {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// Patterns of what a host (a process that runs sandboxes) and the workload service
// say to each other: what the host is to do, what it asks, what it tells.
const (
	SubjectsHostDo   = "host.*.do.*"
	SubjectsHostAsk  = "host.*.ask.*"
	SubjectsHostTell = "host.*.tell.*"
)

// HostSubject is where something is said to or by the host of a name:
// host.<host>.<manner>.<verb>, the manner being "do", "ask" or "tell" and the verb
// "*" for all.
func HostSubject(host, manner, verb string) (string, error) {
	if !ValidToken(host) {
		return "", &BadTokenError{What: "host", Value: host}
	}
	return "host." + host + "." + manner + "." + verb, nil
}

// CommandSubject is where a service takes a verb: cmd.<service>.<tenant>.<verb>.
func CommandSubject(service Service, tenant, verb string) (string, error) {
	if !ValidToken(tenant) {
		return "", &BadTokenError{What: "tenant", Value: tenant}
	}
	return "cmd." + string(service) + "." + tenant + "." + verb, nil
}

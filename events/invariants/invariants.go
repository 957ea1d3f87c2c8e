// Package invariants holds a whole log to the design's invariants, as far as a
// log alone can show them. It runs after every end-to-end test, and over a log
// that is suspected.
//
// It judges by trackers of its own, small and apart from each other, and not by
// the fold that services decide on: a fault in the fold would hide in itself. From
// events/session it takes only the payloads and the tables that are data.
//
//	tracker    invariant  holds
//	chain      Chain      prev and n link each subject once, a command is there once
//	records    Types      each event is known, and written by the service that owns it
//	life       Life       the phase changes only as session.PhaseChanges says, nothing follows the end
//	workload   Owner      one session for a Pod UID, one generation after the other, nothing left at the end
//	use        Use        no suspend is decided while the sandbox is in use
//	turn       Turn       at most one open run, its messages in the order of k, one end
//	calls      Calls      one final answer, at most one start, only of what was allowed or approved
package invariants

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

// Invariant names what was broken, after design.md's list.
type Invariant string

// The invariants that a log alone can show. Types and Life are what the others
// rest on.
const (
	Chain Invariant = "chain"
	Types Invariant = "types"
	Life  Invariant = "life"
	Owner Invariant = "one owner"
	Use   Invariant = "use"
	Turn  Invariant = "one turn"
	Calls Invariant = "calls"
)

// Violation is one place where a log breaks an invariant.
type Violation struct {
	Invariant Invariant
	Subject   string
	// Seq is the stream sequence of the message that broke it.
	Seq    uint64
	Detail string
}

// String gives it on one line.
func (v Violation) String() string {
	return fmt.Sprintf("%s: %s at %d: %s", v.Invariant, v.Subject, v.Seq, v.Detail)
}

// errRead ends the tail at the log's last message.
var errRead = errors.New("read to the end")

// Check reads the log from its genesis to its last message as of the call, and
// gives the violations in the log's order; none is what a sound log has. An error
// means that the log could not be read.
func Check(ctx context.Context, log eventlog.Log) ([]Violation, error) {
	info, err := log.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("check the log: %w", err)
	}
	c := newChecker()
	err = log.Tail(ctx, 1, func(m events.Message) error {
		c.message(m)
		if m.Seq >= info.LastSeq {
			return errRead
		}
		return nil
	})
	if !errors.Is(err, errRead) {
		return c.violations, fmt.Errorf("check the log: %w", err)
	}
	return c.violations, nil
}

// checker reads messages in the log's order.
type checker struct {
	violations []Violation
	chains     map[string]*chain
	sessions   map[string]*sessionTracker
	revised    map[string]*revisedTracker
	swept      map[string]*sweptTracker
	pods       pods
}

func newChecker() *checker {
	return &checker{
		chains:   map[string]*chain{},
		sessions: map[string]*sessionTracker{},
		revised:  map[string]*revisedTracker{},
		swept:    map[string]*sweptTracker{},
		pods:     pods{},
	}
}

// report is how a tracker names what it found at the message in hand.
type report func(inv Invariant, format string, args ...any)

func (c *checker) message(m events.Message) {
	found := func(inv Invariant, format string, args ...any) {
		c.violations = append(c.violations, Violation{Invariant: inv, Subject: m.Subject, Seq: m.Seq, Detail: fmt.Sprintf(format, args...)})
	}
	if (m.Subject == events.SubjectGenesis) != (m.Seq == 1) {
		found(Chain, "genesis is the first message and no other")
		return
	}
	if m.Seq == 1 {
		return
	}
	address, ok := events.ParseSubject(m.Subject)
	if !ok {
		found(Chain, "not the subject of an aggregate")
		return
	}
	ch := c.chains[m.Subject]
	if ch == nil {
		ch = &chain{commands: map[string]bool{}}
		c.chains[m.Subject] = ch
	}
	if !ch.message(m, found) {
		return
	}
	switch address.Aggregate {
	case events.AggregateSession:
		s := c.sessions[m.Subject]
		if s == nil {
			s = newSessionTracker(m.Subject, c.pods)
			c.sessions[m.Subject] = s
		}
		s.message(m, found)
	case events.AggregateRuntime, events.AggregatePolicy:
		r := c.revised[m.Subject]
		if r == nil {
			r = newRevisedTracker(address.Aggregate)
			c.revised[m.Subject] = r
		}
		r.message(m, found)
	case events.AggregateSweep:
		s := c.swept[m.Subject]
		if s == nil {
			s = newSweptTracker()
			c.swept[m.Subject] = s
		}
		s.message(m, found)
	}
}

// chain tracks one subject's links.
type chain struct {
	seq, n   uint64
	commands map[string]bool
}

// message says whether m is an envelope, so that its events can be judged at all.
func (c *chain) message(m events.Message, found report) bool {
	e := m.Envelope
	if e.N == 0 {
		found(Chain, "not an envelope")
		return false
	}
	if e.Prev != c.seq {
		found(Chain, "prev is %d, but the message before stands at %d", e.Prev, c.seq)
	}
	if e.N != c.n+1 {
		found(Chain, "n is %d, but the event before has %d", e.N, c.n)
	}
	if c.commands[e.Command] {
		found(Chain, "command %s is there twice", e.Command)
	}
	c.commands[e.Command] = true
	c.seq, c.n = m.Seq, e.LastN()
	return true
}

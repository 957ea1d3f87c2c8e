// Package eventlog is the log: append with compare-and-set on one literal
// subject, leader reads, loading an aggregate, and tailing the stream.
//
// [Log] is the port; natslog implements it on JetStream and memlog in memory,
// and one suite (eventlogtest) holds both to the same behaviour. [Store] is what
// services use: it loads an aggregate, lets a pure decider decide, appends, and
// retries on conflict.
//
// # Append
//
// A message's place is fixed by the stream sequence of the subject's message
// before it (its prev). The log takes it only if that is still the subject's
// last. A reply that doesn't come says nothing: natslog sends the identical bytes
// at the same expected sequence again until there is an acknowledgement or a
// conflict. A conflict may be our own first attempt, so the Store reloads and
// looks for the command's id before it decides again. When time runs out before
// that, the answer is [OutcomeUnknownError], never a refusal: a definite refusal
// never takes effect later, because the subject has moved past the expected
// sequence.
//
// # Answers without an append
//
// A refusal, a repeated command or a plain read decides on a cached state that
// another process may have outdated. The Store confirms each with a leader read
// of the subject's last sequence; compare-and-set protects only what is appended.
package eventlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/events"
)

// Log is the port to the stream of decisions.
type Log interface {
	// Append stores the encoded envelope on subject if the subject's last message
	// is the envelope's Prev, and gives its stream sequence. Errors:
	// *ConflictError and *OutcomeUnknownError; *NoRoomError, ErrSubject,
	// events.ErrEnvelope, events.ErrTooLarge, ctx's and the server's refusals, after
	// which nothing is stored now or later.
	Append(ctx context.Context, subject string, env events.Envelope) (seq uint64, err error)
	// Last reads the subject's last message from the stream's leader, as it is stored;
	// ok is false when it has none.
	Last(ctx context.Context, subject string) (m events.Message, ok bool, err error)
	// Get reads the message at a stream sequence, as it is stored. ErrNotFound when it
	// isn't there.
	Get(ctx context.Context, seq uint64) (events.Message, error)
	// Tail calls handle with every message from sequence from on, in order, and
	// goes on with new ones until ctx ends or handle returns an error, which it
	// gives back. Messages that aren't envelopes (genesis) are passed too, with
	// Envelope zero: only Subject, Seq and Raw are set. Other errors:
	// *TruncatedError, *EpochError and ErrNoGenesis where the log isn't, or is not
	// any more, the one that from was taken from.
	Tail(ctx context.Context, from uint64, handle func(events.Message) error) error
	// Whole gives a message as Tail does: with the data that isn't in Raw in its place,
	// or Lost. Last, Get and a Copy give it without, for most readers want only its
	// place: whoever applies or shows it asks.
	Whole(ctx context.Context, m events.Message) (events.Message, error)
	// Info tells the log's identity and extent.
	Info(ctx context.Context) (Info, error)
}

// Info is the identity and extent of a log.
type Info struct {
	Genesis  Genesis
	FirstSeq uint64
	LastSeq  uint64
}

// Genesis is the body of the log's first message, written by the installer.
type Genesis struct {
	LogID string `json:"logId"`
	// Epoch changes when a log is restored or made anew; what is kept beside the
	// log carries it and is refused under another.
	Epoch string `json:"epoch"`
}

// ErrNotFound says that there is no message at a sequence.
var ErrNotFound = errors.New("no message at that sequence")

// ErrNoGenesis says that the log was never installed, or was emptied.
var ErrNoGenesis = errors.New("the log has no genesis: run 'holdfast install'")

// ErrSubject says that a subject isn't an aggregate's literal one. Compare-and-set
// was measured to leak where patterns are mixed in, so nothing else is appended.
var ErrSubject = errors.New("not an aggregate's subject")

// ConflictError says that the subject's last message isn't the expected one.
type ConflictError struct {
	Subject  string
	Expected uint64
}

// Error names subject and expectation.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s: last sequence is not %d any more", e.Subject, e.Expected)
}

// OutcomeUnknownError says that it could not be learnt in time whether the
// append took effect. It becomes 503 outcome-unknown; the client repeats the
// command under the same id.
type OutcomeUnknownError struct {
	Subject string
	Command string
	Err     error
}

// Error names the command.
func (e *OutcomeUnknownError) Error() string {
	return fmt.Sprintf("outcome of command %s on %s is not known: %v", e.Command, e.Subject, e.Err)
}

// Unwrap gives what stood in the way.
func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// NoRoomError says that the log has no room for a message, or none left for one of
// its kind. Nothing is stored, now or later, and the same may work once there is room.
type NoRoomError struct {
	Subject string
	// Err says whose limit it is.
	Err error
}

// Error names the subject.
func (e *NoRoomError) Error() string { return fmt.Sprintf("no room for %s: %v", e.Subject, e.Err) }

// Unwrap gives whose limit it is.
func (e *NoRoomError) Unwrap() error { return e.Err }

// ChainError says that a subject's chain of prev and n is broken, or that a
// message is not an envelope where one must be.
type ChainError struct {
	Subject string
	Seq     uint64
	Detail  string
}

// Error names the place.
func (e *ChainError) Error() string {
	return fmt.Sprintf("%s: broken chain at sequence %d: %s", e.Subject, e.Seq, e.Detail)
}

// TruncatedError says that the log ends before what was read of it earlier: it
// was emptied or restored from an older copy. Whoever meets it is not ready and
// does nothing on what it knows.
type TruncatedError struct {
	// Next is the sequence that was to be read next, LastSeq the log's last.
	Next, LastSeq uint64
}

// Error names both sequences.
func (e *TruncatedError) Error() string {
	return fmt.Sprintf("the log ends at sequence %d but was read up to %d before: it was emptied, or restored from an older copy",
		e.LastSeq, e.Next-1)
}

// EpochError says that the log is another one than before, or was restored under
// a new epoch.
type EpochError struct{ Want, Got Genesis }

// Error names both epochs.
func (e *EpochError) Error() string {
	return fmt.Sprintf("the log is %s in epoch %s, not %s in epoch %s", e.Got.LogID, e.Got.Epoch, e.Want.LogID, e.Want.Epoch)
}

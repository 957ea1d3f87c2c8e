// Package memoutput is the output stream in memory with the behaviour of the
// JetStream one, for tests that need many of them fast.
package memoutput

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/output"
)

// Stream is an in-memory output.Stream; make one by New.
type Stream struct {
	mu       sync.Mutex
	grown    chan struct{} // closed and replaced at each publish
	first    uint64        // sequence of messages[0]
	messages []output.Message
}

var _ output.Stream = (*Stream)(nil)

// New gives an empty stream.
func New() *Stream { return &Stream{first: 1, grown: make(chan struct{})} }

// Publish implements output.Stream.
func (s *Stream) Publish(ctx context.Context, tenant, session string, b output.Batch) (uint64, error) {
	if _, err := events.OutputSubject(tenant, session); err != nil {
		return 0, err
	}
	raw, err := b.Encode()
	if err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	stored, err := output.Decode(raw) // what readers of the real one get: nothing shared with the caller
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := s.first + uint64(len(s.messages))
	s.messages = append(s.messages, output.Message{Tenant: tenant, Session: session, Seq: seq, Batch: stored})
	close(s.grown)
	s.grown = make(chan struct{})
	return seq, nil
}

// Expire drops the messages before a sequence, as age does.
func (s *Stream) Expire(before uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before > s.first {
		n := min(before-s.first, uint64(len(s.messages)))
		s.messages = s.messages[n:]
		s.first += n
	}
}

// Last implements output.Stream.
func (s *Stream) Last(_ context.Context, tenant, session string) (output.Batch, uint64, bool, error) {
	if _, err := events.OutputSubject(tenant, session); err != nil {
		return output.Batch{}, 0, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range slices.Backward(s.messages) {
		if m.Tenant == tenant && m.Session == session {
			return m.Batch, m.Seq, true, nil
		}
	}
	return output.Batch{}, 0, false, nil
}

// Info implements output.Stream.
func (s *Stream) Info(context.Context) (first, last uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first, s.first + uint64(len(s.messages)) - 1, nil
}

// Tail implements output.Stream.
func (s *Stream) Tail(ctx context.Context, from uint64, handle func(output.Message) error) error {
	next := max(from, 1)
	if _, last, _ := s.Info(ctx); next > last+1 {
		return &output.TruncatedError{Next: next, Last: last}
	}
	for {
		batch, grown := s.since(next)
		for _, m := range batch {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := handle(m); err != nil {
				return err
			}
			next = m.Seq + 1
		}
		if len(batch) > 0 {
			continue
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *Stream) since(next uint64) ([]output.Message, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	skip := min(max(next, s.first)-s.first, uint64(len(s.messages)))
	return s.messages[skip:], s.grown
}

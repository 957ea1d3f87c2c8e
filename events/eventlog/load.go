package eventlog

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-io/holdfast/events"
)

// refresh brings a cached entry (nil for none) up to the subject's last message,
// as its leader knows it. A cache that is ahead of its subject is dropped: the
// log was restored from an older copy.
func (s *Store[A]) refresh(ctx context.Context, subject string, e *entry[A]) (*entry[A], error) {
	last, ok, err := s.cfg.Log.Last(ctx, subject)
	if err != nil {
		return nil, fmt.Errorf("last of %s: %w", subject, err)
	}
	if e == nil || !ok || e.seq > last.Seq {
		e = s.empty()
	}
	switch {
	case !ok:
		s.cache.Remove(subject)
		return e, nil
	case e.seq == last.Seq:
		return e, nil
	}
	if e.seq == 0 {
		s.warm(ctx, subject, e)
		if e.seq > last.Seq {
			e = s.empty() // the copy is ahead of the log: of no use
		}
	}
	missing, err := s.walk(ctx, subject, last, e.seq)
	if err != nil {
		s.cache.Remove(subject)
		return nil, err
	}
	if len(missing) > 0 && missing[0].Envelope.Prev != e.seq {
		// The chain passes over what we hold, so it isn't this log's.
		s.cache.Remove(subject)
		e = s.empty()
		if missing, err = s.walk(ctx, subject, last, 0); err != nil {
			return nil, err
		}
	}
	for _, m := range missing {
		if err := e.apply(m); err != nil {
			s.cache.Remove(subject)
			return nil, err
		}
	}
	s.cache.Add(subject, e)
	return e, nil
}

func (s *Store[A]) empty() *entry[A] {
	return &entry[A]{state: s.cfg.New(), commands: map[string]ref{}}
}

// warm applies what the copy has. The copy is only a shortcut: without it, or
// where it can't be read, everything comes from the log.
func (s *Store[A]) warm(ctx context.Context, subject string, e *entry[A]) {
	for _, m := range s.copied(ctx, subject) {
		if err := e.apply(m); err != nil {
			*e = *s.empty()
			return
		}
	}
}

// copied gives what the copy has of a subject; nothing where it can't be read.
func (s *Store[A]) copied(ctx context.Context, subject string) []events.Message {
	if s.cfg.Copy == nil {
		return nil
	}
	ms, err := s.cfg.Copy.Envelopes(ctx, s.cfg.Epoch, subject)
	if err != nil {
		return nil
	}
	return ms
}

// walk follows prev from last back to after (exclusive) and gives the messages in
// order.
func (s *Store[A]) walk(ctx context.Context, subject string, last events.Message, after uint64) ([]events.Message, error) {
	var ms []events.Message
	for m := last; ; {
		if m.Subject != subject {
			return nil, &ChainError{Subject: subject, Seq: m.Seq, Detail: "prev leads to subject " + m.Subject}
		}
		if m.Envelope.N == 0 {
			return nil, &ChainError{Subject: subject, Seq: m.Seq, Detail: "not an envelope"}
		}
		ms = append(ms, m)
		prev := m.Envelope.Prev
		if prev <= after {
			break
		}
		if prev >= m.Seq {
			return nil, &ChainError{Subject: subject, Seq: m.Seq, Detail: "prev does not point back"}
		}
		var err error
		if m, err = s.cfg.Log.Get(ctx, prev); err != nil {
			return nil, fmt.Errorf("%s: walk to %d: %w", subject, prev, err)
		}
	}
	slices.Reverse(ms)
	return ms, nil
}

// apply folds a message in and checks the chain.
func (e *entry[A]) apply(m events.Message) error {
	if m.Envelope.Prev != e.seq || m.Envelope.N != e.n+1 {
		return &ChainError{
			Subject: m.Subject, Seq: m.Seq,
			Detail: fmt.Sprintf("prev %d and n %d do not follow sequence %d and n %d", m.Envelope.Prev, m.Envelope.N, e.seq, e.n),
		}
	}
	if err := e.state.Apply(m); err != nil {
		return err
	}
	e.seq, e.n = m.Seq, m.Envelope.LastN()
	e.commands[m.Envelope.Command] = ref{n: e.n, seq: m.Seq}
	return nil
}

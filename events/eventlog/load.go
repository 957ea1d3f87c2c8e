package eventlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

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
	if !ok {
		s.cache.Remove(subject)
		return s.empty(), nil
	}
	if e != nil && e.endsWith(last) {
		return e, nil
	}
	if e, err = s.upTo(ctx, subject, e, last); err != nil {
		s.cache.Remove(subject)
		return nil, err
	}
	s.cache.Add(subject, e)
	return e, nil
}

// upTo gives the aggregate as of last, a message of its subject, from what is
// held of it (nil for nothing), else from the copy, and the rest from the log.
// What is held or copied and doesn't fit the log's chain is dropped: it is of
// another log, or of this one before it was restored. A chain that goes on from the
// very sequence that is held is taken for the same one: to read the message there
// again at every catching up would cost each conflict a round trip, and a restored
// log has another epoch, under which processes start anew.
func (s *Store[A]) upTo(ctx context.Context, subject string, held *entry[A], last events.Message) (*entry[A], error) {
	e := held
	if e == nil || e.seq > last.Seq {
		e = s.warm(ctx, subject, last)
	}
	started := e.seq > 0
	err := s.catchUp(ctx, subject, e, last)
	var broken *ChainError
	if started && errors.As(err, &broken) {
		e = s.empty()
		err = s.catchUp(ctx, subject, e, last)
	}
	return e, err
}

// catchUp applies what the log has from the entry's place to last.
func (s *Store[A]) catchUp(ctx context.Context, subject string, e *entry[A], last events.Message) error {
	if e.endsWith(last) {
		return nil
	}
	if e.seq == last.Seq {
		return &ChainError{Subject: subject, Seq: last.Seq, Detail: "another message was held under this sequence"}
	}
	missing, err := s.walk(ctx, subject, last, e.seq)
	if err != nil {
		return err
	}
	for _, m := range missing {
		whole, err := s.cfg.Log.Whole(ctx, m)
		if err != nil {
			return err
		}
		if err := e.apply(whole); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store[A]) empty() *entry[A] {
	return &entry[A]{state: s.cfg.New(), commands: map[string]ref{}}
}

// warm starts an aggregate from what the copy has up to last. The copy is only a
// shortcut: without it, or where it can't be read, everything comes from the log.
func (s *Store[A]) warm(ctx context.Context, subject string, last events.Message) *entry[A] {
	e := s.empty()
	for _, m := range s.copied(ctx, subject) {
		if m.Seq > last.Seq {
			break
		}
		m, err := s.cfg.Log.Whole(ctx, m)
		if err != nil || m.Subject != subject || e.apply(m) != nil {
			return s.empty()
		}
	}
	return e
}

const (
	// copyWithin is how long a load waits for the copy, enough for the longest of
	// sessions: one that hangs must not eat the time of the command.
	copyWithin = 2 * time.Second
	// copyPause is how long a copy that failed isn't asked, so that the loads of that
	// time don't each wait for it.
	copyPause = 5 * time.Second
	// copiesAtOnce is how many aggregates are read from the copy at a time. After a pause
	// all that happened meanwhile is loaded at once, and more would finish none sooner:
	// they would take Postgres and the processor from the views that have to catch up.
	copiesAtOnce = 4
)

// copied gives what the copy has of a subject; nothing where it can't be read, or
// couldn't a moment ago.
func (s *Store[A]) copied(ctx context.Context, subject string) []events.Message {
	if s.cfg.Copy == nil || time.Now().UnixNano() < s.copyAgain.Load() {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, copyWithin)
	defer cancel()
	select {
	case s.copying <- struct{}{}:
		defer func() { <-s.copying }()
	case <-within.Done():
		return nil // the log has it all, too
	}
	ms, err := s.cfg.Copy.Envelopes(within, s.cfg.Epoch, subject)
	if err != nil {
		if ctx.Err() == nil {
			s.copyAgain.Store(time.Now().Add(copyPause).UnixNano())
		}
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

// endsWith says whether m is the last message that was applied.
func (e *entry[A]) endsWith(m events.Message) bool {
	return e.seq == m.Seq && e.n == m.Envelope.LastN() && e.commands[m.Envelope.Command].seq == m.Seq
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
	for _, r := range m.Envelope.Events {
		e.bytes += len(r.Data)
	}
	e.seq, e.n = m.Seq, m.Envelope.LastN()
	e.commands[m.Envelope.Command] = ref{n: e.n, seq: m.Seq}
	return nil
}

// Package spool keeps what an agent said in one run: a file of
// [sandboxapi.SpoolLine]s that is appended to, numbered, and followed live by
// any number of readers. Readers wait on a broadcast, never by polling.
//
// The file lives as long as the sandbox, so that a reader which died can be
// replaced by one that goes on at the next k. It is not synced: when the
// machine goes, the sandbox and its run are gone too.
package spool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// ErrEnded refuses an append to a spool that has its last line.
var ErrEnded = errors.New("the spool has ended")

// chunkBytes is how much of a spool is read at once.
const chunkBytes = 64 << 10

// Spool is the output of one run. It is safe for concurrent use.
type Spool struct {
	path string

	mu      sync.Mutex
	file    *os.File // for appending; nil once ended
	size    int64
	starts  []int64 // where the line of k = index+1 starts
	ended   bool
	endAt   int64         // where the end's line starts
	err     error         // the reason why appending stopped, for readers
	changed chan struct{} // closed and replaced when any of the above changes
}

// Create makes the spool of a new run. It fails with [os.ErrExist] where there is one.
func Create(path string) (*Spool, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	return &Spool{path: path, file: f, changed: make(chan struct{})}, nil
}

// Open takes up the spool that an earlier sandboxd of this sandbox left. A line
// that was cut by its end is dropped; whether the run had ended, [Spool.Ended] tells.
func Open(path string) (*Spool, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return nil, fmt.Errorf("open spool: %w", err)
	}
	s := &Spool{path: path, file: f, changed: make(chan struct{})}
	if err := s.load(f); err != nil {
		return nil, errors.Join(fmt.Errorf("open spool: %w", err), f.Close())
	}
	if s.ended {
		s.file = nil
		return s, f.Close()
	}
	return s, nil
}

func (s *Spool) load(f *os.File) error {
	r := bufio.NewReader(f)
	for {
		raw, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return f.Truncate(s.size)
		}
		if err != nil {
			return err
		}
		var line sandboxapi.SpoolLine
		if err := json.Unmarshal(raw, &line); err != nil {
			return fmt.Errorf("line %d: %w", len(s.starts)+1, err)
		}
		if line.End {
			s.ended, s.endAt = true, s.size
		} else {
			s.starts = append(s.starts, s.size)
		}
		s.size += int64(len(raw))
	}
}

// Append adds events, all or none, and returns the k of the last one. An event
// is valid JSON and kept as it is, but for line breaks between its tokens.
func (s *Spool) Append(events ...[]byte) (k uint64, err error) {
	return s.append(events, nil)
}

// Finish adds the run's last events and the end in one step, so that no reader
// sees the terminal event without the end.
func (s *Spool) Finish(outcome, reason string, events ...[]byte) (k uint64, err error) {
	return s.append(events, &sandboxapi.SpoolLine{End: true, Outcome: outcome, Reason: reason})
}

func (s *Spool) append(events [][]byte, end *sandboxapi.SpoolLine) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return 0, ErrEnded
	case s.err != nil:
		return 0, s.err
	}
	var buf bytes.Buffer
	starts := s.starts
	for _, event := range events {
		starts = append(starts, s.size+int64(buf.Len()))
		buf.WriteString(`{"k":`)
		buf.WriteString(strconv.Itoa(len(starts)))
		buf.WriteString(`,"event":`)
		if err := writeOneLine(&buf, event); err != nil {
			return 0, fmt.Errorf("append to spool: %w", err)
		}
		buf.WriteString("}\n")
	}
	endAt := s.size + int64(buf.Len())
	if end != nil {
		if err := json.NewEncoder(&buf).Encode(end); err != nil {
			return 0, fmt.Errorf("append to spool: %w", err)
		}
	}
	if _, err := s.file.Write(buf.Bytes()); err != nil {
		// What is half written must never be read: readers stop at size. They learn
		// the reason, and where spools lie is nothing to them.
		if at, ok := errors.AsType[*os.PathError](err); ok {
			err = at.Err
		}
		s.err = fmt.Errorf("append to spool: %w", err)
		s.broadcast()
		return 0, s.err
	}
	s.starts = starts
	s.size += int64(buf.Len())
	s.broadcast()
	if end == nil {
		return uint64(len(starts)), nil
	}
	s.ended, s.endAt = true, endAt
	file := s.file
	s.file = nil
	if err := file.Close(); err != nil {
		return uint64(len(starts)), fmt.Errorf("close spool: %w", err)
	}
	return uint64(len(starts)), nil
}

// writeOneLine takes line breaks out of JSON, and nothing else.
func writeOneLine(buf *bytes.Buffer, event []byte) error {
	if bytes.IndexByte(event, '\n') < 0 {
		buf.Write(event)
		return nil
	}
	return json.Compact(buf, event)
}

func (s *Spool) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Size is how many bytes the spool has.
func (s *Spool) Size() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size
}

// Ended says whether the spool has its last line.
func (s *Spool) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Broken says why a spool will never have its end; nil for one that has it, or
// may still get it.
func (s *Spool) Broken() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil
	}
	return s.err
}

// Close gives up on a spool that can't be ended any more; its readers get an error.
func (s *Spool) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	file := s.file
	s.file = nil
	if s.err == nil {
		s.err = fmt.Errorf("spool closed: %w", os.ErrClosed)
	}
	s.broadcast()
	return file.Close()
}

// Follow writes every line with k ≥ from, then new ones as they come, until the
// end was written. write gets whole and partial lines as they lie in the file,
// and a lone line break when nothing was written for the time of a heartbeat.
func (s *Spool) Follow(ctx context.Context, from uint64, heartbeat time.Duration, write func([]byte) error) error {
	f, err := os.Open(s.path)
	if err != nil {
		return fmt.Errorf("follow spool: %w", err)
	}
	defer func() { _ = f.Close() }() // only read from
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	buf := make([]byte, chunkBytes)
	at := int64(-1) // not known while k = from is still to come
	for {
		v := s.view(from)
		if at < 0 && v.start >= 0 {
			at = v.start
		}
		if at >= 0 && at < v.size {
			n, err := f.ReadAt(buf[:min(int64(len(buf)), v.size-at)], at)
			if err != nil {
				return fmt.Errorf("follow spool: %w", err)
			}
			if err := write(buf[:n]); err != nil {
				return err
			}
			at += int64(n)
			beat.Reset(heartbeat)
			continue
		}
		if v.over {
			return v.err
		}
		select {
		case <-v.changed:
		case <-beat.C:
			if err := write([]byte("\n")); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// view is what a reader sees at one moment.
type view struct {
	size    int64
	start   int64 // of the line of k = from, or -1
	over    bool
	err     error
	changed <-chan struct{}
}

func (s *Spool) view(from uint64) view {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := view{size: s.size, start: -1, over: s.ended || s.err != nil, err: s.err, changed: s.changed}
	switch last := uint64(len(s.starts)); {
	case from <= 1:
		v.start = 0
	case from <= last:
		v.start = s.starts[from-1]
	case s.ended:
		v.start = s.endAt
	}
	return v
}

package entrypoint

import (
	"context"
	"fmt"
	"net/url"
	"sync"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// Status is how far the entrypoint is.
type Status struct {
	State sandboxapi.EntrypointState
	// Restarts counts the starts after the first.
	Restarts int
	// Reason says why it failed, or how it last died; never in the agent's words.
	Reason string
	// Said is the end of what the process printed that died last, at most 4 KiB
	// of text. It is the agent's, for whoever develops it; it belongs into no log.
	Said string
}

// Incarnation is one life of the process.
type Incarnation struct {
	// URL is where it serves.
	URL *url.URL
	// Done is closed when it has ended.
	Done <-chan struct{}
	// Exit says in words how it ended; only after Done.
	Exit func() string
}

// standing is how an entrypoint stands, for those who wait for it.
type standing struct {
	mu      sync.Mutex
	status  Status
	ready   *Incarnation // set in state ready
	stopped bool
	changed chan struct{}
}

func newStanding() *standing {
	return &standing{status: Status{State: sandboxapi.EntrypointStarting}, changed: make(chan struct{})}
}

// Status tells the state, and gives a channel that is closed at its next change.
func (s *standing) Status() (Status, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status, s.changed
}

// WaitReady waits for an incarnation that answers. It fails with [ErrFailed],
// [ErrStopped] or the context's cause.
func (s *standing) WaitReady(ctx context.Context) (*Incarnation, error) {
	for {
		s.mu.Lock()
		status, ready, changed, stopped := s.status, s.ready, s.changed, s.stopped
		s.mu.Unlock()
		switch {
		case stopped:
			return nil, ErrStopped
		case ready != nil:
			return ready, nil
		case status.State == sandboxapi.EntrypointFailed:
			return nil, fmt.Errorf("%w: %s", ErrFailed, status.Reason)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *standing) answer(inc *Incarnation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = inc
	s.status.State, s.status.Reason = sandboxapi.EntrypointReady, ""
	s.broadcast()
}

// end is the end of an incarnation, and how it came.
func (s *standing) end(how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = nil
	s.status.State, s.status.Reason = sandboxapi.EntrypointStarting, how
	s.broadcast()
}

func (s *standing) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.broadcast()
}

func (s *standing) set(change func(*Status)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.status)
	s.broadcast()
}

// broadcast tells those who wait. The caller holds mu.
func (s *standing) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

package kube_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// slowWay is the way to the API server on which the first suspend is lost from sight: who
// sent it has an error at once, and it arrives when the test lets it.
type slowWay struct {
	mu   sync.Mutex
	next http.RoundTripper
	held *http.Request
}

// errOutOfSight is what the sender has.
var errOutOfSight = errors.New("the connection is lost")

// wrap is for rest.Config.Wrap.
func (s *slowWay) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPatch || !strings.Contains(r.URL.Path, "/sandboxes/") {
			return next.RoundTrip(r)
		}
		body, err := io.ReadAll(r.Body)
		if err = errors.Join(err, r.Body.Close()); err != nil {
			return nil, err
		}
		r = r.Clone(context.WithoutCancel(r.Context()))
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(`"operatingMode":"Suspended"`)) && s.hold(next, r) {
			return nil, errOutOfSight
		}
		return next.RoundTrip(r)
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// hold keeps the first of all.
func (s *slowWay) hold(next http.RoundTripper, r *http.Request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		return false
	}
	s.next, s.held = next, r
	return true
}

// arrive has what is held come to the API server, and gives its answer.
func (s *slowWay) arrive(t *testing.T) (status int, said string) {
	t.Helper()
	s.mu.Lock()
	next, held := s.next, s.held
	s.mu.Unlock()
	if held == nil {
		t.Fatal("no suspend was sent")
	}
	resp, err := next.RoundTrip(held)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(raw)
}

// TestOlderIntentComesLate: a suspend was sent, its sender took it for lost and sent it
// again, the session slept and was woken; then the first one arrives. The API server refuses
// it, and the session goes on in the sandbox that it has.
func TestOlderIntentComesLate(t *testing.T) {
	t.Parallel()
	in := prepare(t)
	way := &slowWay{}
	in.access.Wrap(way.wrap)
	in.run("projector", "session", "policy", "workload", "runner", "gateway")
	in.begun()
	in.shell("late", 0, allowing)
	s := in.CreateOf("alice", api.CreateSession{Runtime: "late"})
	in.tell(s.ID, "echo kept > note")
	in.suspend(s.ID)
	in.tell(s.ID, "echo and more >> note") // wakes it
	pod := in.pod(s.ID)

	if status, said := way.arrive(t); status != http.StatusConflict {
		t.Errorf("the API server answers %d: %s", status, said)
	}
	if said := in.tell(s.ID, "cat note"); !strings.Contains(said, "kept") || !strings.Contains(said, "and more") {
		t.Errorf("after it: %q", said)
	}
	facts := in.Facts(s.ID)
	if n := len(harness.Of[session.Suspended](facts)); n != 1 || len(harness.Of[session.Lost](facts)) > 0 {
		t.Errorf("it was put away %d times, and lost %+v", n, harness.Of[session.Lost](facts))
	}
	if again := in.pod(s.ID); again.UID != pod.UID || in.sandbox(s.ID).Spec.OperatingMode != "Running" {
		t.Errorf("it goes on in Pod %s, before %s", again.UID, pod.UID)
	}
	in.end(s.ID)
	in.remove("late")
	in.nothingLeft()
}

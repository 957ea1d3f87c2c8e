package hostapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/hostapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

// over gives an error as it comes out on the other end.
func over(t *testing.T, err error) error {
	t.Helper()
	raw, encodeErr := json.Marshal(hostapi.FailureOf(err))
	if encodeErr != nil {
		t.Fatal(encodeErr)
	}
	var f hostapi.Failure
	if err := json.Unmarshal(raw, &f); err != nil {
		t.Fatal(err)
	}
	return f.Err()
}

// What callers tell apart they tell apart on the other end too, and nothing more.
func TestErrorsSurviveTheWire(t *testing.T) {
	t.Parallel()
	all := []error{
		driver.ErrOlderIntent, driver.ErrNotFound, driver.ErrWorkspaceGone, driver.ErrNotRunning, driver.ErrBusy,
		driver.ErrIsolationUnavailable, driver.ErrInvalid, driver.ErrStart, driver.ErrEntrypoint, driver.ErrBindRefused,
		driver.ErrInUse, driver.ErrUnreachable, driver.ErrClosed, context.DeadlineExceeded, context.Canceled,
	}
	for _, want := range all {
		sent := fmt.Errorf("session s-1: %w: why", want)
		got := over(t, sent)
		for _, other := range all {
			if errors.Is(got, other) != (other == want) { //nolint:errorlint // the very same
				t.Errorf("%v came as %v: is %v", sent, got, other)
			}
		}
		if got.Error() != sent.Error() {
			t.Errorf("%v came as %v", sent, got)
		}
	}
	older := &driver.OlderIntentError{Ref: driver.Ref{Tenant: "default", Session: "s-1", Generation: 2}, Intent: 3, Recorded: 4}
	if got, ok := errors.AsType[*driver.OlderIntentError](over(t, fmt.Errorf("x: %w", older))); !ok || *got != *older {
		t.Errorf("older intent came as %+v", got)
	}
	isolation := &driver.IsolationError{Missing: "user namespaces", WayOut: "allow them"}
	if got, ok := errors.AsType[*driver.IsolationError](over(t, isolation)); !ok || *got != *isolation {
		t.Errorf("isolation came as %+v", got)
	}
	problem := sandboxapi.NewProblem(409, sandboxapi.CodeBoundToAnother, "of another")
	got := over(t, fmt.Errorf("%w: %w", driver.ErrBindRefused, problem))
	if p, ok := errors.AsType[*sandboxapi.Problem](got); !ok || *p != *problem || !errors.Is(got, driver.ErrBindRefused) {
		t.Errorf("problem came as %v", got)
	}
}

// echo answers claims on a NATS of its own.
func echo(t *testing.T, handle hostapi.Handler) (call func(context.Context, driver.Ref) (driver.Ref, error), stop func()) {
	t.Helper()
	s := brokertest.Start(t)
	nc := s.NC(broker.UserHost)
	all, err := hostapi.AllDo("h-1")
	if err != nil {
		t.Fatal(err)
	}
	a, err := hostapi.Answer(nc, all, "h-1", map[hostapi.Verb]hostapi.Handler{hostapi.VerbLocate: handle}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	stop = func() {
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	asking := s.NC(broker.UserWorkload)
	subject, err := hostapi.DoSubject("h-1", hostapi.VerbLocate)
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, r driver.Ref) (driver.Ref, error) {
		return hostapi.Call[driver.Ref](ctx, asking, subject, r)
	}, stop
}

func TestCall(t *testing.T) {
	t.Parallel()
	call, stop := echo(t, hostapi.Handle(func(_ context.Context, r driver.Ref) (driver.Ref, error) { return r, nil }))
	ref := driver.Ref{Tenant: "default", Session: "s-1", Generation: 7}
	if got, err := call(t.Context(), ref); err != nil || got != ref {
		t.Errorf("%+v, %v", got, err)
	}
	stop()
	if _, err := call(t.Context(), ref); !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("of nobody: %v", err)
	}
}

// The other end works for as long as the caller waits, and no longer.
func TestCallIsBounded(t *testing.T) {
	t.Parallel()
	given := make(chan time.Duration, 1)
	call, _ := echo(t, hostapi.Handle(func(ctx context.Context, r driver.Ref) (driver.Ref, error) {
		at, _ := ctx.Deadline()
		given <- time.Until(at)
		<-ctx.Done()
		return r, ctx.Err()
	}))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := call(ctx, driver.Ref{}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("%v", err)
	}
	if left := <-given; left > 300*time.Millisecond {
		t.Errorf("the other end had %s", left)
	}
}

// A fault in one request is that request's alone.
func TestPanicIsAnAnswer(t *testing.T) {
	t.Parallel()
	call, _ := echo(t, hostapi.Handle(func(_ context.Context, r driver.Ref) (driver.Ref, error) {
		if r.Generation == 0 {
			panic("a fault")
		}
		return r, nil
	}))
	if _, err := call(t.Context(), driver.Ref{}); err == nil || errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("%v", err)
	}
	if _, err := call(t.Context(), driver.Ref{Generation: 1}); err != nil {
		t.Errorf("the next: %v", err)
	}
}

// Who stops answers what it has taken.
func TestStopAnswersWhatWasTaken(t *testing.T) {
	t.Parallel()
	taken := make(chan struct{})
	call, stop := echo(t, hostapi.Handle(func(ctx context.Context, r driver.Ref) (driver.Ref, error) {
		close(taken)
		<-ctx.Done()
		return r, ctx.Err()
	}))
	answer := make(chan error, 1)
	go func() {
		_, err := call(t.Context(), driver.Ref{})
		answer <- err
	}()
	<-taken
	stop()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// An answer goes to an inbox and nowhere else: who may answer may write where the
// request says.
func TestRepliesGoToInboxes(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	nc := s.NC(broker.UserHost)
	a, err := hostapi.Answer(nc, "host.h-1.do.*", "h-1", nil, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Stop() }) // of a test that failed before it did
	asking := s.NC(broker.UserWorkload)
	sub, err := asking.SubscribeSync("host.h-1.tell.ended")
	if err != nil {
		t.Fatal(err)
	}
	if err := asking.PublishRequest("host.h-1.do.locate", "host.h-1.tell.ended", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	m, err := asking.Request("host.h-1.do.nonsense", []byte(`{"timeoutMs":1000}`), 10*time.Second) // behind it
	if err != nil || !strings.Contains(string(m.Data), "unknown verb") {
		t.Fatalf("%s, %v", m.Data, err)
	}
	// All answers are given, and have come, once these have.
	if err := errors.Join(a.Stop(), nc.FlushTimeout(10*time.Second), asking.FlushTimeout(10*time.Second)); err != nil {
		t.Fatal(err)
	}
	if pending, _, err := sub.Pending(); err != nil || pending != 0 {
		t.Errorf("%d answers went elsewhere, %v", pending, err)
	}
}

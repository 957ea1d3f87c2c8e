package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

const (
	// exitWait is how long a broken stream waits for the news that the agent
	// died, which explains it better.
	exitWait = 500 * time.Millisecond
	// drainWait lets an agent that has said its last event end in peace.
	drainWait = 2 * time.Second
	// quoteBytes is how much of an agent's refusal is repeated.
	quoteBytes = 300
)

// Target is an agent that answers.
type Target struct {
	// URL is its base.
	URL *url.URL
	// Done is closed when it has died, Exit says how.
	Done <-chan struct{}
	Exit func() string
}

// Called is the adapter agui: the input is POSTed to an agent that serves, and its
// answer is a stream of server-sent events. A cancel closes the request. All fields
// are required.
type Called struct {
	// WaitReady waits for an agent that answers, ReadyWait bounds it.
	WaitReady func(context.Context) (Target, error)
	ReadyWait time.Duration
	// RunPath is where the agent takes RunAgentInput.
	RunPath string
	// CancelGrace is left to the agent after its request was closed, to tell
	// Holdfast how the calls ended that it had started.
	CancelGrace time.Duration
	// MaxEvent bounds an event, in bytes.
	MaxEvent int
}

// Converse implements [Agent].
func (c Called) Converse(ctx context.Context, t *Turn) error {
	target, err := waitReady(ctx, c.WaitReady, c.ReadyWait)
	if err != nil {
		return err
	}
	// A child of the agent may hold the connection open after the agent died.
	alive, hangUp := context.WithCancel(ctx)
	defer hangUp()
	go func() {
		select {
		case <-target.Done:
			hangUp()
		case <-alive.Done():
		}
	}()
	err = c.exchange(alive, hangUp, t, target)
	switch {
	case err == nil:
		return nil
	case ctx.Err() == nil:
		return explain(err, target)
	case errors.Is(context.Cause(ctx), errCancelled):
		pause(c.CancelGrace, target.Done)
	}
	return context.Cause(ctx)
}

// waitReady waits for an agent within a bound.
func waitReady(ctx context.Context, wait func(context.Context) (Target, error), atMost time.Duration) (Target, error) {
	ctx, stop := context.WithTimeoutCause(ctx, atMost, errors.New("it didn't answer in time"))
	defer stop()
	target, err := wait(ctx)
	if err != nil {
		return target, faultf(codeNotReady, "the agent isn't ready: %v", err)
	}
	return target, nil
}

// exchange is the request itself, up to the end of its answer.
func (c Called) exchange(ctx context.Context, hangUp func(), t *Turn, target Target) error {
	resp, err := post(ctx, target.URL.JoinPath(c.RunPath).String(), t.Input)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := t.read(agui.NewReader(resp.Body, c.MaxEvent).Next); err != nil {
		return err
	}
	timer := time.AfterFunc(drainWait, hangUp)
	defer timer.Stop()
	// What comes after the terminal event has no meaning, and how it ends neither.
	_, _ = io.Copy(io.Discard, resp.Body)
	return nil
}

// post sends the input and checks that events will come back.
func post(ctx context.Context, to string, input json.RawMessage) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(input))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	// A connection of its own for each run: one that was kept could lead to an
	// agent that died since.
	tr := &http.Transport{DisableKeepAlives: true, DisableCompression: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && err == nil && kind == "text/event-stream" {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(io.LimitReader(resp.Body, quoteBytes))
	if err != nil {
		return nil, err
	}
	return nil, faultf(codeRefused, "the agent answered %d with %.64q instead of a stream of events: %q",
		resp.StatusCode, resp.Header.Get("Content-Type"), said)
}

// explain says why a conversation broke off.
func explain(err error, target Target) error {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	if pause(exitWait, target.Done) {
		return died(target)
	}
	if errors.Is(err, io.EOF) {
		return faultf(codeBrokeOff, "the agent's stream ended without RUN_FINISHED or RUN_ERROR")
	}
	return faultf(codeBrokeOff, "the agent's stream broke: %v", err)
}

func died(target Target) *fault {
	return faultf(codeDied, "the agent died in the middle of the run: it %s", target.Exit())
}

// pause waits, but not longer than until done is closed; it says whether it was.
func pause(d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

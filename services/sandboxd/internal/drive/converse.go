package drive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

// fault is why a run ends in sandboxd's words instead of the agent's.
type fault struct {
	code   string // kebab-case, the RUN_ERROR's code
	reason string
}

// Error implements error.
func (f *fault) Error() string { return f.code + ": " + f.reason }

func faultf(code, format string, args ...any) *fault {
	return &fault{code: code, reason: fmt.Sprintf(format, args...)}
}

const (
	// exitWait is how long a broken stream waits for the news that the agent
	// died, which explains it better.
	exitWait = 500 * time.Millisecond
	// drainWait lets an agent that has said its last event end in peace.
	drainWait = 2 * time.Second
	// quoteBytes is how much of an agent's refusal is repeated.
	quoteBytes = 300
)

// result is how a conversation ended: by the agent's terminal event, not yet
// spooled, or by a fault.
type result struct {
	terminal []byte
	ending   *agui.Ending
	err      error
}

// converse has the agent do the run and spools all that it says but the end.
func (d *Driver) converse(ctx context.Context, r *run) result {
	ready, stop := context.WithTimeoutCause(ctx, d.cfg.ReadyWait, errors.New("it didn't answer in time"))
	defer stop()
	target, err := d.cfg.WaitReady(ready)
	if err != nil {
		return result{err: faultf("agent-not-ready", "the agent isn't ready: %v", err)}
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
	res := d.exchange(alive, hangUp, r, target)
	switch {
	case res.err == nil:
	case ctx.Err() != nil: // we closed the request, and know why
		res.err = context.Cause(ctx)
	default:
		res.err = explain(res.err, target)
	}
	return res
}

// exchange is the request itself, up to the end of its answer.
func (d *Driver) exchange(ctx context.Context, hangUp func(), r *run, target Target) result {
	resp, err := post(ctx, target.URL.JoinPath(d.cfg.RunPath).String(), r.input)
	if err != nil {
		return result{err: err}
	}
	defer func() { _ = resp.Body.Close() }()
	res := d.listen(r, resp.Body)
	if res.err == nil {
		timer := time.AfterFunc(drainWait, hangUp)
		defer timer.Stop()
		// What comes after the terminal event has no meaning, and how it ends neither.
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	return res
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
	return nil, faultf("agent-refused", "the agent answered %d with %.64q instead of a stream of events: %q",
		resp.StatusCode, resp.Header.Get("Content-Type"), said)
}

// listen spools the events up to the terminal one.
func (d *Driver) listen(r *run, body io.Reader) result {
	events := agui.NewReader(body, d.cfg.MaxEvent)
	for {
		event, err := events.Next()
		switch {
		case errors.Is(err, agui.ErrTooLarge):
			return result{err: faultf("event-too-large", "the agent sent an event of more than %d bytes", d.cfg.MaxEvent)}
		case err != nil:
			return result{err: err}
		}
		ending, err := r.order.Accept(event)
		switch {
		case err != nil:
			return result{err: faultf("protocol-broken", "%v", err)}
		case ending != nil:
			return result{terminal: event, ending: ending}
		case r.spool.Size()+int64(len(event)) > d.cfg.MaxSpool:
			return result{err: faultf("output-too-large", "the run said more than %d bytes", d.cfg.MaxSpool)}
		}
		if _, err := r.spool.Append(event); err != nil {
			return result{err: faultf("spool-failed", "%v", err)}
		}
	}
}

// explain says why a conversation broke off.
func explain(err error, target Target) error {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	timer := time.NewTimer(exitWait)
	defer timer.Stop()
	select {
	case <-target.Done:
		return faultf("agent-died", "the agent died in the middle of the run: it %s", target.Exit())
	case <-timer.C:
	}
	if errors.Is(err, io.EOF) {
		return faultf("agent-broke-off", "the agent's stream ended without RUN_FINISHED or RUN_ERROR")
	}
	return faultf("agent-broke-off", "the agent's stream broke: %v", err)
}

// finish writes the end. The run is closed first, so that whoever reads the end
// can start the next one.
func (d *Driver) finish(ctx context.Context, r *run, res result) {
	var last [][]byte
	var outcome, reason string
	switch cause := context.Cause(ctx); {
	case res.err == nil:
		last = [][]byte{res.terminal}
		outcome, reason = res.ending.Outcome, res.ending.Reason
	case errors.Is(cause, errCancelled):
		d.pause(d.cfg.CancelGrace)
		if !r.order.Started() {
			last = append(last, agui.RunStarted(r.threadID, r.id))
		}
		last = append(last, r.order.Abandon()...)
		last = append(last, agui.RunFinished(r.threadID, r.id, agui.Outcome{Type: agui.OutcomeCancelled}))
		outcome = agui.OutcomeCancelled
	default:
		var f *fault
		if !errors.As(res.err, &f) || errors.Is(cause, ErrStopping) {
			f = faultf("sandbox-stopped", "%v", ErrStopping)
		}
		last = append(r.order.Abandon(), agui.RunError(f.code, f.reason))
		outcome, reason = agui.OutcomeError, f.reason
		// The reason may quote the agent; it is the run's, and not for our log.
		d.cfg.Log.Warn("run ended in a fault", "run", r.id, "code", f.code)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open = nil
	if _, err := r.spool.Finish(outcome, reason, last...); err != nil {
		// Readers are cut off, and get ErrGone when they come again.
		d.cfg.Log.Error("end of a run not spooled", "run", r.id, "err", errors.Join(err, r.spool.Close()))
	}
	if err := d.retire(r.id); err != nil {
		d.cfg.Log.Error("old spools not retired", "err", err)
	}
}

// pause waits, but not longer than the driver lives.
func (d *Driver) pause(t time.Duration) {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.ctx.Done():
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// holdfast is the agent's way to Holdfast. Every call may be repeated: the same ids get
// the same answer, so that a lost answer is asked for again.
type holdfast struct{ base string }

// problem is a refusal.
type problem struct {
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Error implements error.
func (p *problem) Error() string { return fmt.Sprintf("%s (%d): %s", p.Code, p.Status, p.Detail) }

// tries is how often a call is made that isn't answered, or answered that it be made
// again later.
const tries = 20

// call makes a call until there is a definite answer. out stays as it is where there is
// no content.
func (h holdfast) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	for try := 1; ; try++ {
		again, err := h.once(ctx, method, path, body, out)
		if !again || try == tries {
			return err
		}
		select {
		case <-time.After(min(time.Duration(try)*100*time.Millisecond, time.Second)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// once makes a call. again says that another try may end otherwise.
func (h holdfast) once(ctx context.Context, method, path string, body []byte, out any) (again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, method, h.base+path, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ctx.Err() == nil, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return ctx.Err() == nil, err
	case resp.StatusCode == http.StatusNoContent || resp.StatusCode/100 == 2 && out == nil:
		return false, nil
	case resp.StatusCode/100 == 2:
		return false, json.Unmarshal(raw, out)
	}
	refused := &problem{}
	if json.Unmarshal(raw, refused) != nil || refused.Status == 0 {
		refused = &problem{Status: resp.StatusCode, Detail: string(raw)}
	}
	return resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, refused
}

// input waits for the run that is due; nil when there is none for a while.
func (h holdfast) input(ctx context.Context) (*input, error) {
	var in *input
	err := h.call(ctx, http.MethodGet, "/input?wait=60", nil, &in)
	return in, err
}

// events sends events of a run; k is the number of the first of them in the run.
func (h holdfast) events(ctx context.Context, run string, k uint64, events []event) error {
	return h.call(ctx, http.MethodPost, "/events", map[string]any{"runId": run, "k": k, "events": events}, nil)
}

// awaitEnd returns when a run isn't wanted any more: it has ended or was cancelled.
func (h holdfast) awaitEnd(ctx context.Context, run string) {
	for ctx.Err() == nil {
		var is struct{ Open bool }
		if err := h.call(ctx, http.MethodGet, "/runs/"+run+"?wait=60", nil, &is); err == nil && !is.Open {
			return
		}
	}
}

// config is the session's own.
func (h holdfast) config(ctx context.Context) (json.RawMessage, error) {
	var session struct{ Config json.RawMessage }
	err := h.call(ctx, http.MethodGet, "/session", nil, &session)
	return session.Config, err
}

// verdict is what Holdfast says of a call; no decision means that a person is asked.
type verdict struct {
	Call, ArgsHash, Decision, Reason, Mode string
}

// ask asks whether a call may be made. In mode hold it waits for the answer.
func (h holdfast) ask(ctx context.Context, run, callID string, args json.RawMessage, mode string) (verdict, error) {
	var v verdict
	err := h.call(ctx, http.MethodPost, "/calls", map[string]any{
		"agentCallId": callID, "runId": run, "tool": "write_note", "args": args, "modes": []string{mode},
	}, &v)
	for err == nil && v.Decision == "" && v.Mode == "hold" {
		err = h.call(ctx, http.MethodGet, "/calls/"+v.Call+"?wait=30", nil, &v)
	}
	return v, err
}

// start claims a call, once: the nonce tells this execution from any other.
func (h holdfast) start(ctx context.Context, call, run, argsHash, nonce string) error {
	return h.call(ctx, http.MethodPost, "/calls/"+call+"/start",
		map[string]string{"runId": run, "argsHash": argsHash, "nonce": nonce}, nil)
}

// result reports what came of a call.
func (h holdfast) result(ctx context.Context, call, run, nonce string) error {
	return h.call(ctx, http.MethodPost, "/calls/"+call+"/result",
		map[string]any{"runId": run, "nonce": nonce, "exitCode": 0, "output": "written"}, nil)
}

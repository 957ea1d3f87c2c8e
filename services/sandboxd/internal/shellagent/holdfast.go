package shellagent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

const (
	// retryFor is how long Holdfast may be away, for a restart or an upgrade.
	retryFor = 60 * time.Second
	// The pause between two tries doubles from the first to the last of these.
	firstRetry, lastRetry = 50 * time.Millisecond, 2 * time.Second
	// holdSeconds is how long one look at a held question waits for its answer.
	holdSeconds = 30
	// tryTimeout bounds one try; it is longer than any wait.
	tryTimeout = 75 * time.Second
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 1 << 20
)

// The decisions and modes of the agent API.
const (
	decisionAllow = "allow"
	modeHold      = "hold"
	modePark      = "park"
)

// refusal is a definite no of the agent API: trying again would not help.
type refusal struct {
	Status int    `json:"-"`
	Code   string `json:"code"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

// Error implements error.
func (r *refusal) Error() string {
	text := r.Detail
	if text == "" {
		text = r.Title
	}
	if text == "" {
		text = http.StatusText(r.Status)
	}
	return fmt.Sprintf("Holdfast refused (%d): %s", r.Status, text)
}

// errAway says that Holdfast didn't answer for as long as we try.
var errAway = errors.New("Holdfast can't be reached")

// verdict is what Holdfast says to a proposed call.
type verdict struct {
	// Decision is "allow" or "deny" once there is one.
	Decision string `json:"decision"`
	Call     string `json:"call"`
	ArgsHash string `json:"argsHash"`
	Reason   string `json:"reason"`
	Rule     string `json:"rule"`
	// Approval is set, and Mode, while people are asked.
	Approval string `json:"approval"`
	Mode     string `json:"mode"`
}

func (v verdict) waits() bool { return v.Decision == "" }

// proposal asks whether a call may be made.
type proposal struct {
	AgentCallID string   `json:"agentCallId"`
	RunID       string   `json:"runId"`
	Tool        string   `json:"tool"`
	Args        callArgs `json:"args"`
	Modes       []string `json:"modes"`
}

// callArgs are the arguments of the tool `shell`.
type callArgs struct {
	Command string `json:"command"`
}

// execution claims an allowed call, once: the nonce tells this execution from
// any other.
type execution struct {
	RunID    string `json:"runId"`
	ArgsHash string `json:"argsHash"`
	Nonce    string `json:"nonce"`
}

// report is how an execution ended.
type report struct {
	RunID     string `json:"runId"`
	Nonce     string `json:"nonce"`
	ExitCode  int    `json:"exitCode"`
	Output    string `json:"output"`
	Truncated bool   `json:"truncated"`
}

// holdfast is the agent's side of the control plane. Every request may be
// repeated: the same ids get the same answer.
type holdfast struct {
	base     *url.URL
	http     *http.Client
	retryFor time.Duration
}

func (h *holdfast) propose(ctx context.Context, p proposal) (verdict, error) {
	var v verdict
	err := h.call(ctx, http.MethodPost, []string{"calls"}, p, &v)
	if err == nil && v.waits() && v.Approval == "" {
		return v, errors.New("Holdfast answered a proposal with neither a decision nor a question")
	}
	if v.Call == "" {
		v.Call = v.Approval
	}
	return v, err
}

// wait looks at a held question until it is answered.
func (h *holdfast) wait(ctx context.Context, v verdict) (verdict, error) {
	for v.waits() {
		next := verdict{Call: v.Call, ArgsHash: v.ArgsHash}
		path := []string{"calls", v.Call}
		if err := h.call(ctx, http.MethodGet, path, nil, &next); err != nil {
			return v, err
		}
		v = next
	}
	return v, nil
}

func (h *holdfast) start(ctx context.Context, call string, e execution) error {
	var answer struct {
		Go bool `json:"go"`
	}
	if err := h.call(ctx, http.MethodPost, []string{"calls", call, "start"}, e, &answer); err != nil {
		return err
	}
	if !answer.Go {
		return &refusal{Status: http.StatusConflict, Detail: "not to be started"}
	}
	return nil
}

func (h *holdfast) result(ctx context.Context, call string, r report) error {
	return h.call(ctx, http.MethodPost, []string{"calls", call, "result"}, r, nil)
}

// call tries until there is a definite answer, with the same bytes each time.
func (h *holdfast) call(ctx context.Context, method string, path []string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encode request: %w", err)
		}
	}
	to := h.base.JoinPath("v1", "agent").JoinPath(path...)
	if method == http.MethodGet {
		to.RawQuery = fmt.Sprintf("wait=%d", holdSeconds)
	}
	deadline := time.Now().Add(h.retryFor)
	for pause := firstRetry; ; pause = min(2*pause, lastRetry) {
		err := h.try(ctx, method, to.String(), body, out)
		var no *refusal
		switch {
		case err == nil, errors.As(err, &no):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case time.Now().After(deadline):
			return fmt.Errorf("%w: %w", errAway, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// try makes one request. A [*refusal] is final, every other error is not.
func (h *holdfast) try(ctx context.Context, method, to string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	switch {
	case resp.StatusCode/100 == 2:
		if out == nil {
			return nil
		}
		return json.Unmarshal(raw, out)
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("%s %s: %s", method, to, resp.Status)
	}
	no := &refusal{}
	if json.Unmarshal(raw, no) != nil {
		no = &refusal{} // a body that isn't a problem says nothing
	}
	no.Status = resp.StatusCode
	return no
}

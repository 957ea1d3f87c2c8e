package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// envReport names the UDP address on this machine that the agent reports to.
const envReport = "BENCH_REPORT"

// arrival is what the agent reports of a turn, when its question is put.
type arrival struct {
	// At is when the turn's POST /run was read, in nanoseconds of the machine's clock.
	At       int64  `json:"at"`
	Session  string `json:"session"`
	Run      string `json:"run"`
	Call     string `json:"call"`
	ArgsHash string `json:"argsHash"`
}

// agentChild is the agent inside of the sandbox: each of its turns asks the same
// question and ends with it, so that each answer begins another turn.
func agentChild(ctx context.Context) error {
	to, err := net.Dial("udp", os.Getenv(envReport)) //nolint:noctx,gosec // a datagram's address is only noted; ours
	if err != nil {
		return err
	}
	defer to.Close()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /run", func(w http.ResponseWriter, r *http.Request) {
		at := time.Now()
		if err := takeTurn(r, w, at, to); err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
		}
	})
	server := &http.Server{Addr: "127.0.0.1:" + os.Getenv("PORT"), Handler: mux, ReadHeaderTimeout: headerTimeout}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // Serve tells
	defer stop()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// takeTurn asks, says AG-UI's events, and reports.
func takeTurn(r *http.Request, w http.ResponseWriter, at time.Time, to io.Writer) error {
	var in struct {
		ThreadID string `json:"threadId"`
		RunID    string `json:"runId"`
		Messages []struct {
			Content json.RawMessage `json:"content"`
		} `json:"messages"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		return err
	}
	var said string
	if n := len(in.Messages); n > 0 {
		_ = json.Unmarshal(in.Messages[n-1].Content, &said) // contents may be parts
	}
	if size, ok := strings.CutPrefix(said, floodOf); ok {
		return flood(w, in.ThreadID, in.RunID, size)
	}
	question, err := ask(r.Context(), in.RunID)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, event := range []any{
		map[string]any{"type": "RUN_STARTED", "threadId": in.ThreadID, "runId": in.RunID},
		map[string]any{"type": "RUN_FINISHED", "threadId": in.ThreadID, "runId": in.RunID, "outcome": map[string]any{
			"type": "interrupt", "interrupts": []any{map[string]any{"id": question.Approval, "reason": "tool_call"}},
		}},
	} {
		if _, err := fmt.Fprintf(w, "data: %s\n\n", mustJSON(event)); err != nil {
			return err
		}
	}
	_, err = to.Write(mustJSON(arrival{
		At: at.UnixNano(), Session: in.ThreadID, Run: in.RunID, Call: question.Approval, ArgsHash: question.ArgsHash,
	}))
	return err
}

// flood says so many events as fast as it can.
func flood(w http.ResponseWriter, thread, run, size string) error {
	count, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := bufio.NewWriter(w)
	say := func(event []byte) error {
		_, err := fmt.Fprintf(out, "data: %s\n\n", event)
		return err
	}
	message := "m-" + run
	err = errors.Join(
		say(mustJSON(map[string]any{"type": "RUN_STARTED", "threadId": thread, "runId": run})),
		say(mustJSON(map[string]any{"type": "TEXT_MESSAGE_START", "messageId": message, "role": "assistant"})),
	)
	for i := range count {
		err = errors.Join(err, say(delta(message, i)))
	}
	return errors.Join(
		err,
		say(mustJSON(map[string]any{"type": "TEXT_MESSAGE_END", "messageId": message})),
		say(mustJSON(map[string]any{"type": "RUN_FINISHED", "threadId": thread, "runId": run, "outcome": map[string]any{"type": "success"}})),
		out.Flush(),
	)
}

// asked is the answer to a proposal that a person has to decide.
type asked struct {
	Approval string `json:"approval"`
	ArgsHash string `json:"argsHash"`
}

// ask proposes what the policy of dev asks people about.
func ask(ctx context.Context, run string) (asked, error) {
	body := mustJSON(map[string]any{
		"agentCallId": run, "runId": run, "tool": "shell", "args": map[string]string{"command": "make release"}, "modes": []string{"park"},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("HOLDFAST_URL")+"/v1/agent/calls", bytes.NewReader(body)) //nolint:gosec // what sandboxd tells its agent
	if err != nil {
		return asked{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req) //nolint:gosec // the same
	if err != nil {
		return asked{}, err
	}
	defer resp.Body.Close()
	var q asked
	if err := json.NewDecoder(resp.Body).Decode(&q); err != nil {
		return asked{}, err
	}
	if q.Approval == "" {
		return asked{}, fmt.Errorf("proposal: %s, and nobody is asked", resp.Status)
	}
	return q, nil
}

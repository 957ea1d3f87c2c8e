package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

// floodOf is the message that makes our agent say so many events.
const floodOf = "flood of "

// delta is one of the events that an agent streams, as a model's tokens come.
func delta(message string, i int) []byte {
	return mustJSON(map[string]any{"type": "TEXT_MESSAGE_CONTENT", "messageId": message, "delta": fmt.Sprintf("token %d of many ", i)})
}

// measureFlow compares how many of an agent's events a second reach a viewer.
func measureFlow(ctx context.Context, l *lab) (f finding, err error) {
	p, err := l.newProgram(ctx, "none")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	nobody, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return f, err
	}
	defer nobody.Close()
	if err := p.applyAgent(ctx, nobody.LocalAddr().String()); err != nil {
		return f, err
	}
	size, count := l.size(50_000, 200), l.size(5, 1)
	var ours, base []time.Duration
	for round := range count + 1 {
		o, err := p.flood(ctx, size)
		if err != nil {
			return f, err
		}
		b, err := pipe(ctx, size)
		if err != nil {
			return f, err
		}
		if round > 0 { // the first warms up
			ours, base = append(ours, o), append(base, b)
		}
	}
	return finding{
		title:    "Agent output → viewer",
		baseline: "a bare SSE pipe: the same events from a handler to a reader over one loopback connection, kept nowhere",
		samples:  fmt.Sprintf("%d rounds of %d events of about 95 bytes, as fast as the agent can say them", count, size),
		figures:  []figure{rate("one agent, one viewer", "events", size, ours, base, aim{})},
		notes: []string{
			"Ours is checked by sandboxd for AG-UI's order, numbered and spooled on the disk, read by the runner, published to OUTPUT and synced there, masked, and sent by the hub; what the viewer gets can be resumed and replayed.",
		},
	}, nil
}

// flood has the agent of a new session say so many events and gives how long it took
// from the first to the last that a viewer got.
func (p *program) flood(ctx context.Context, size int) (time.Duration, error) {
	prefer := "wait=30"
	made, err := p.client.CreateSessionWithResponse(ctx, &api.CreateSessionParams{Prefer: &prefer}, api.CreateSession{Runtime: recipe})
	if err != nil {
		return 0, err
	}
	id := made.JSON201.ID
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	stream, err := p.client.StreamSession(ctx, id, nil)
	if err != nil {
		return 0, err
	}
	sent := fmt.Sprintf("%s%d", floodOf, size)
	if _, err := p.client.SendMessageWithResponse(ctx, id, nil, api.SendMessage{Content: sent}); err != nil {
		return 0, errors.Join(err, stream.Body.Close())
	}
	var begin time.Time
	got := 0
	for frame, err := range apiclient.Frames(stream.Body) {
		if err != nil {
			return 0, err
		}
		if frame.Kind != api.FrameKindAgui {
			continue
		}
		var batch []struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(frame.Data, &batch); err != nil {
			return 0, err
		}
		for _, e := range batch {
			if e.Type != "TEXT_MESSAGE_CONTENT" {
				continue
			}
			if got++; got == 1 {
				begin = time.Now()
			}
		}
		if got == size {
			took := time.Since(begin)
			_, err := p.client.TerminateSessionWithResponse(ctx, id, nil, api.TerminateSession{})
			return took, err
		}
	}
	return 0, fmt.Errorf("the viewer got %d events of %d", got, size)
}

// pipe sends the same events through nothing but a connection.
func pipe(ctx context.Context, size int) (time.Duration, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	server := &http.Server{ReadHeaderTimeout: headerTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range size {
			if _, err := fmt.Fprintf(w, "data: %s\n\n", delta("m-1", i)); err != nil {
				return
			}
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
		}
	})}
	go func() { _ = server.Serve(l) }() // ends by Close
	defer server.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+l.Addr().String(), nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	var begin time.Time
	for got := 0; lines.Scan(); {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return 0, err
		}
		if got++; got == 1 {
			begin = time.Now()
		}
		if got == size {
			return time.Since(begin), nil
		}
	}
	return 0, errors.Join(errors.New("the pipe was cut"), lines.Err())
}

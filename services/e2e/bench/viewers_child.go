package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
)

// audience is what a process of viewers is told on its standard input: each viewer
// of Hub subscribes at the gateway, each of Bare is sent frames by the broadcaster.
type audience struct {
	Hub  []seat `json:"hub"`
	Bare []seat `json:"bare"`
}

// seat is one viewer's.
type seat struct {
	URL     string `json:"url"`
	Token   string `json:"token"`
	Session string `json:"session"`
}

// reception is what viewers got since the last report. Times are from just before
// the frame was given away until it was read from the socket.
type reception struct {
	Frames int           `json:"frames"`
	P50    time.Duration `json:"p50"`
	P99    time.Duration `json:"p99"`
	Max    time.Duration `json:"max"`
	// CPU is what this process has used since it started.
	CPU time.Duration `json:"cpu"`
}

// receptions is a report of both.
type receptions struct {
	Hub  reception `json:"hub"`
	Bare reception `json:"bare"`
}

// sentMark precedes the nanoseconds at which a frame was given away; exactly
// sentDigits of them, so that all frames have one length.
const (
	sentMark   = `"sent":`
	sentDigits = 19
)

// viewersChild is the main of the process in which the viewers are, so that the
// memory and the processor time of the gateway are its own. It says "ready", then
// answers each line on its input with a report.
func viewersChild(ctx context.Context) error {
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return err
	}
	var a audience
	if err := json.Unmarshal(line, &a); err != nil {
		return err
	}
	hub, bare := &crowd{}, &crowd{}
	defer hub.leave()
	defer bare.leave()
	if err := hub.attend(ctx, a.Hub, subscribe); err != nil {
		return fmt.Errorf("viewers of the hub: %w", err)
	}
	if err := bare.attend(ctx, a.Bare, nil); err != nil {
		return fmt.Errorf("viewers of the broadcaster: %w", err)
	}
	if _, err := fmt.Println("ready"); err != nil { //nolint:forbidigo // the protocol with the parent
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for {
		if _, err := in.ReadBytes('\n'); err != nil {
			return nil // the parent is done
		}
		if err := out.Encode(receptions{Hub: hub.report(), Bare: bare.report()}); err != nil {
			return err
		}
	}
}

// crowd is many viewers.
type crowd struct {
	viewers []*viewer
	reading errgroup.Group
}

// viewer is one socket and what came over it.
type viewer struct {
	ws *websocket.Conn

	mu   sync.Mutex
	took series
}

// attend connects everybody, some at a time. greet may be nil.
func (c *crowd) attend(ctx context.Context, seats []seat, greet func(context.Context, *websocket.Conn, seat) error) error {
	c.viewers = make([]*viewer, len(seats))
	var joining errgroup.Group
	joining.SetLimit(16)
	for i, s := range seats {
		joining.Go(func() error {
			header := http.Header{"Authorization": {"Bearer " + s.Token}}
			ws, _, err := websocket.Dial(ctx, s.URL, &websocket.DialOptions{HTTPHeader: header, CompressionMode: websocket.CompressionDisabled}) //nolint:bodyclose // the library's
			if err != nil {
				return err
			}
			ws.SetReadLimit(1 << 20)
			c.viewers[i] = &viewer{ws: ws}
			if greet != nil {
				return greet(ctx, ws, s)
			}
			return nil
		})
	}
	if err := joining.Wait(); err != nil {
		return err
	}
	for _, v := range c.viewers {
		c.reading.Go(func() error { return v.read(ctx) })
	}
	return nil
}

// subscribe follows the seat's session, and returns when the gateway says so.
func subscribe(ctx context.Context, ws *websocket.Conn, s seat) error {
	request, err := api.EncodeWS(&api.WSSubscribe{Ref: "1", Session: s.Session})
	if err != nil {
		return err
	}
	if err := ws.Write(ctx, websocket.MessageText, request); err != nil {
		return err
	}
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			return err
		}
		m, err := api.DecodeWS(data)
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *api.WSSubscribed:
			return nil
		case *api.WSProblem:
			return fmt.Errorf("subscribe: %s: %s", m.Problem.Code, m.Problem.Detail)
		default: // a frame of the history
		}
	}
}

// read takes the time of every frame that has one.
func (v *viewer) read(ctx context.Context) error {
	for {
		_, data, err := v.ws.Read(ctx)
		now := time.Now().UnixNano()
		if err != nil {
			return err
		}
		sent, ok := sentAt(data)
		if !ok {
			continue
		}
		v.mu.Lock()
		v.took = append(v.took, time.Duration(now-sent))
		v.mu.Unlock()
	}
}

// sentAt finds when a frame was given away.
func sentAt(frame []byte) (nanoseconds int64, ok bool) {
	_, after, found := bytes.Cut(frame, []byte(sentMark))
	if !found || len(after) < sentDigits {
		return 0, false
	}
	nanoseconds, err := strconv.ParseInt(string(after[:sentDigits]), 10, 64)
	return nanoseconds, err == nil
}

// report gives what came since the last report.
func (c *crowd) report() reception {
	var all series
	for _, v := range c.viewers {
		v.mu.Lock()
		all = append(all, v.took...)
		v.took = v.took[:0]
		v.mu.Unlock()
	}
	return reception{Frames: len(all), P50: all.quantile(0.5), P99: all.quantile(0.99), Max: all.quantile(1), CPU: processorTime()}
}

func (c *crowd) leave() {
	for _, v := range c.viewers {
		if v != nil {
			_ = v.ws.CloseNow() // nobody listens any more
		}
	}
	_ = c.reading.Wait() // each ends with its socket
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/natsoutput"
	"github.com/holdfast-io/holdfast/services/internal/broker"
)

const headerTimeout = 10 * time.Second

// show is the measurement of viewers: some sessions, each watched by as many.
type show struct {
	*stand

	sessions    []string
	perSession  int
	perSecond   int
	seconds     int
	broadcaster *broadcaster
	publisher   output.Publisher
	// sample is a message as a viewer of the gateway gets it.
	sample []byte
	// k counts each session's events of output.
	k []uint64
}

// deltas is how many token deltas a frame has: what an agent says in 40 ms.
const deltas = 4

// publishers is how many goroutines give frames away, as runners do.
const publishers = 8

// measureViewers compares how frames reach many viewers.
func measureViewers(ctx context.Context, l *lab) (f finding, err error) {
	s := &show{perSession: l.size(20, 2), perSecond: l.size(500, 50), seconds: l.size(4, 1)}
	if s.stand, err = l.newStand(ctx); err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.prepare(ctx, l.size(100, 4)); err != nil {
		return f, err
	}
	bare := s.seats(func(session string, _ int) seat {
		return seat{URL: s.broadcaster.url + "/" + session, Session: session}
	})
	hub := s.seats(func(session string, i int) seat {
		return seat{URL: s.socketURL(), Session: session, Token: s.people[i%len(s.people)].Token}
	})
	bareCost, err := s.cost(ctx, audience{Bare: bare})
	if err != nil {
		return f, err
	}
	hubCost, err := s.cost(ctx, audience{Hub: hub})
	if err != nil {
		return f, err
	}
	played, err := s.play(ctx, audience{Hub: hub, Bare: bare}, l.size(4, 1))
	if err != nil {
		return f, err
	}
	return s.finding(played, hubCost, bareCost), nil
}

func (s *show) socketURL() string { return "ws" + strings.TrimPrefix(s.url, "http") + "/v1/ws" }

// prepare makes the sessions and takes a sample of a frame.
func (s *show) prepare(ctx context.Context, sessions int) error {
	client, err := s.client()
	if err != nil {
		return err
	}
	for range sessions {
		id, err := createSession(ctx, client)
		if err != nil {
			return err
		}
		s.sessions = append(s.sessions, id)
	}
	s.k = make([]uint64, sessions)
	c, err := s.connect(ctx, broker.UserRunner)
	if err != nil {
		return err
	}
	if s.publisher, err = natsoutput.New(c.js, c.nc, natsoutput.Options{}); err != nil {
		return err
	}
	if s.broadcaster, err = newBroadcaster(ctx); err != nil {
		return err
	}
	s.onClose(s.broadcaster.stop)
	return s.takeSample(ctx)
}

// takeSample watches the first session until a frame has come.
func (s *show) takeSample(ctx context.Context) error {
	header := http.Header{"Authorization": {"Bearer " + s.people[0].Token}}
	ws, _, err := websocket.Dial(ctx, s.socketURL(), &websocket.DialOptions{HTTPHeader: header}) //nolint:bodyclose // the library's
	if err != nil {
		return err
	}
	defer ws.CloseNow() //nolint:errcheck // it has served
	if err := subscribe(ctx, ws, seat{Session: s.sessions[0]}); err != nil {
		return err
	}
	if err := s.publish(ctx, 0); err != nil {
		return err
	}
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			return err
		}
		if _, ok := sentAt(data); ok {
			s.sample = data
			return nil
		}
	}
}

func (s *show) seats(of func(session string, i int) seat) []seat {
	all := make([]seat, 0, s.perSession*len(s.sessions))
	for range s.perSession {
		for _, session := range s.sessions {
			all = append(all, of(session, len(all)))
		}
	}
	return all
}

// publish gives the next batch of a session to OUTPUT, as its runner would.
func (s *show) publish(ctx context.Context, session int) error {
	b := output.Batch{Run: "r-show-" + strconv.Itoa(session), FirstK: s.k[session] + 1, LastK: s.k[session] + deltas, After: 1}
	for range deltas {
		b.Events = append(b.Events, json.RawMessage(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m-k3v5d2m7q4x6z2b7c5aa","delta":" and then the lexer","rawEvent":null}`))
	}
	b.Time = time.Now().UTC()
	b.Events[0] = fmt.Appendf(nil, `{"type":"CUSTOM","name":"bench",%s%d}`, sentMark, b.Time.UnixNano())
	if _, err := s.publisher.Publish(ctx, tenant, s.sessions[session], b); err != nil {
		return err
	}
	s.k[session] += deltas
	return nil
}

// broadcast gives the same frame to the broadcaster.
func (s *show) broadcast(_ context.Context, session int) error {
	at := bytes.Index(s.sample, []byte(sentMark)) + len(sentMark)
	frame := bytes.Clone(s.sample)
	strconv.AppendInt(frame[at:at], time.Now().UnixNano(), 10)
	s.broadcaster.send(s.sessions[session], frame)
	return nil
}

// emit gives frames away at the agreed pace, to one session after the other. A
// session's frames come from one goroutine, so they are in order.
func (s *show) emit(ctx context.Context, give func(ctx context.Context, session int) error) error {
	pace := time.Second * publishers / time.Duration(s.perSecond)
	each := s.perSecond * s.seconds / publishers
	_, err := together(ctx, publishers, func(ctx context.Context, worker int) error {
		var mine []int
		for session := worker; session < len(s.sessions); session += publishers {
			mine = append(mine, session)
		}
		if len(mine) == 0 {
			return nil
		}
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for i := range each {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := give(ctx, mine[i%len(mine)]); err != nil {
				return err
			}
		}
		return nil
	})
	return err
}

// given is how many frames a round gives away.
func (s *show) given() int {
	return s.perSecond * s.seconds / publishers * min(publishers, len(s.sessions))
}

// cost is what an audience costs this process, which serves it.
type cost struct{ heap, resident float64 } // KiB a viewer

// cost lets an audience come in and sit, and weighs it.
func (s *show) cost(ctx context.Context, a audience) (c cost, err error) {
	viewers := float64(len(a.Hub) + len(a.Bare))
	heap, resident := weigh()
	p, err := s.invite(ctx, a)
	if err != nil {
		return c, err
	}
	heapAfter, residentAfter := weigh()
	c = cost{heap: (heapAfter - heap) / 1024 / viewers, resident: (residentAfter - resident) / 1024 / viewers}
	return c, p.stop()
}

// weigh gives the bytes of this process's live heap and stacks, and what of it is
// resident.
func weigh() (live, resident float64) {
	debug.FreeOSMemory() // a collection, and what it freed is given back
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse), residentBytes()
}

// invite starts a process of viewers and returns when all of them watch.
func (s *show) invite(ctx context.Context, a audience) (*process, error) {
	p, err := startChild(ctx, "as-viewers")
	if err != nil {
		return nil, err
	}
	if err := p.say(mustJSON(a)); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	if line, err := p.hear(); err != nil || strings.TrimSpace(string(line)) != "ready" {
		return nil, errors.Join(fmt.Errorf("viewers said %q", line), err, p.stop())
	}
	return p, nil
}

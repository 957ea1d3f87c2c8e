package hub

import (
	"context"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// connection is a viewer's: one server-sent stream or one WebSocket.
type connection struct {
	out *outbox
	who person
	// beat says that the connection is still there; it doesn't block.
	beat func(now time.Time)
}

// enter admits a connection; leave it afterwards. Errors are problems: not-ready,
// quota-exceeded.
func (h *Hub) enter(who auth.Principal) (*connection, error) {
	if err := h.ready(); err != nil {
		return nil, err
	}
	c := &connection{out: &outbox{limit: h.cfg.QueueBytes}, who: person{who.Tenant, who.Name}}
	c.out.wrote.Store(h.cfg.Now().UnixNano())
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.persons[c.who] >= h.cfg.ViewersPerPrincipal {
		p := problem.Newf(api.CodeQuotaExceeded, "You have %d streams open here; close one first.", h.persons[c.who])
		p.RetryAfter = h.cfg.Heartbeat
		return nil, p
	}
	if h.stopping {
		return nil, problem.New(api.CodeNotReady, "The gateway stops.")
	}
	h.persons[c.who]++
	h.conns[c] = struct{}{}
	h.serving.Add(1)
	return c, nil
}

func (h *Hub) exit(c *connection) {
	h.mu.Lock()
	if h.persons[c.who]--; h.persons[c.who] == 0 {
		delete(h.persons, c.who)
	}
	delete(h.conns, c)
	h.mu.Unlock()
	h.metrics.left(c.out.code())
	h.serving.Done()
}

// sweep gives silent connections a heartbeat and asks about output that has waited
// too long, until ctx ends. One goroutine does it for all.
func (h *Hub) sweep(ctx context.Context) {
	tick := time.NewTicker(min(h.cfg.Heartbeat, h.cfg.HoldFor) / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := h.cfg.Now()
		silent, waiting := h.overdue(now)
		for _, c := range silent {
			c.beat(now)
		}
		for _, t := range waiting {
			go h.ask(t) //nolint:contextcheck // it ends with the hub, as what it asks for does
		}
	}
}

// overdue lists the connections that were silent and the topics that held output
// for too long.
func (h *Hub) overdue(now time.Time) (silent []*connection, waiting []*topic) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		if c.beat != nil && now.UnixNano()-c.out.wrote.Load() >= int64(h.cfg.Heartbeat) {
			silent = append(silent, c)
		}
	}
	for _, t := range h.topics {
		if t.overdue(now) {
			waiting = append(waiting, t)
		}
	}
	return silent, waiting
}

// overdue says that output waits for too long and that nobody asks about it yet.
func (t *topic) overdue(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.held) == 0 || t.asking || now.Sub(t.heldSince) < t.hub.cfg.HoldFor {
		return false
	}
	t.asking = true
	return true
}

// ask asks the log's leader whether the event that output waits for exists. If it
// does, the tail is only late and the output goes on waiting.
func (h *Hub) ask(t *topic) {
	ctx, cancel := context.WithTimeout(h.ctx, openTimeout)
	defer cancel()
	var n uint64
	err := h.cfg.Sessions.Session(ctx, t.key.tenant, t.key.session, func(s *session.State) error {
		n = s.N
		return nil
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking = false
	if err == nil {
		t.giveUp(n)
	}
}

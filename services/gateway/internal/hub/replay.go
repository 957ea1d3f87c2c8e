package hub

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// ServeReplay sends what happened in a session so far, at its own pace, ?speed=
// times as fast (1 by default, 0 without waiting): GET
// /v1/sessions/{id}/replay. The first frame is a control of type replay, the last
// one of type end. It shows and decides nothing.
func (h *Hub) ServeReplay(w http.ResponseWriter, r *http.Request, who auth.Principal, session string) {
	after, err := cursor.ParseSession(placeOf(r))
	if err != nil {
		h.cfg.Fail(w, r, invalidCursor())
		return
	}
	speed, err := speedOf(r)
	if err != nil {
		h.cfg.Fail(w, r, err)
		return
	}
	conn, err := h.enter(who)
	if err != nil {
		h.cfg.Fail(w, r, err)
		return
	}
	defer h.exit(conn)
	past, release, err := h.past(r.Context(), sessionKey{who.Tenant, session}, after)
	if err != nil {
		h.cfg.Fail(w, r, err)
		return
	}
	defer release()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	conn.out.open(cancel) // nothing is queued: it is woken to be closed
	p := &replay{past: past, speed: speed, out: &sseWriter{w: w, control: http.NewResponseController(w), hub: h}}
	if p.run(ctx) != nil {
		p.out.goodbye(conn.out.code())
	}
}

// speedOf reads ?speed=, whose bounds the document says.
func speedOf(r *http.Request) (float64, error) {
	text := r.URL.Query().Get("speed")
	if text == "" {
		return 1, nil
	}
	speed, err := strconv.ParseFloat(text, 64)
	if err != nil || !(speed >= 0 && speed <= 1000) {
		return 0, problem.New(api.CodeInvalidRequest, "The speed has to be a number from 0 to 1000.").At("query/speed", "not a number from 0 to 1000")
	}
	return speed, nil
}

// past prepares to read what is behind a cursor up to now; release ends it.
func (h *Hub) past(ctx context.Context, key sessionKey, after cursor.Session) (*history, func(), error) {
	if err := h.ready(); err != nil {
		return nil, nil, err
	}
	t, err := h.acquire(ctx, key.tenant, key.session)
	if err != nil {
		return nil, nil, notReady(err)
	}
	release := func() { h.release(t) }
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	foreign, err := t.foreign(opening, after)
	if err == nil && foreign {
		err = problem.New(api.CodeInvalidCursor, "This cursor is of another log, or of more than this one has.")
	}
	var past *history
	if err == nil {
		t.mu.Lock()
		to := stand{n: t.n, seq: t.seq, out: t.out}
		t.mu.Unlock()
		past, err = t.newHistory(opening, after, to)
	}
	if err != nil {
		release()
		return nil, nil, notReady(err)
	}
	return past, release, nil
}

// replay is one replay under way.
type replay struct {
	past  *history
	speed float64
	out   *sseWriter
	// began is when the first frame was sent, whose time is first.
	began, first time.Time
}

func (p *replay) run(ctx context.Context) error {
	h := p.past.hub
	if err := p.out.begin(); err != nil {
		return err
	}
	speed := p.speed
	mark := controlFrame(p.past.at.String(), p.past.key.session, h.cfg.Now(), control{Type: controlReplay, Speed: &speed})
	if err := p.send(mark, true); err != nil {
		return err
	}
	for {
		f, ok, err := p.past.next(ctx)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := p.wait(ctx, f); err != nil {
			return err
		}
		if err := p.send(f, p.speed > 0); err != nil {
			return err
		}
	}
	return p.send(controlFrame(p.past.at.String(), p.past.key.session, h.cfg.Now(), control{Type: controlEnd}), true)
}

// send writes a frame; without a flush it goes out with a later one.
func (p *replay) send(f view.Frame, flush bool) error {
	event := newFrame(f).event()
	if err := p.out.extend(len(event)); err != nil {
		return err
	}
	if _, err := p.out.w.Write(event); err != nil || !flush {
		return err
	}
	return p.out.control.Flush()
}

// wait waits until it is a frame's turn, with heartbeats. What stands before the
// frame before it in time, as output may, doesn't wait.
func (p *replay) wait(ctx context.Context, f view.Frame) error {
	if p.speed == 0 || f.Kind == view.FrameControl {
		return ctx.Err()
	}
	now := time.Now()
	if p.began.IsZero() {
		p.began, p.first = now, f.Time
		return ctx.Err()
	}
	due := p.began.Add(time.Duration(float64(f.Time.Sub(p.first)) / p.speed))
	for now.Before(due) {
		timer := time.NewTimer(min(due.Sub(now), p.past.hub.cfg.Heartbeat))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case now = <-timer.C:
		}
		if !now.Before(due) {
			break
		}
		if err := p.heartbeat(); err != nil {
			return err
		}
	}
	return nil
}

func (p *replay) heartbeat() error {
	if err := p.out.extend(0); err != nil {
		return err
	}
	if _, err := p.out.w.Write(api.AppendSSEComment(nil, "heartbeat")); err != nil {
		return err
	}
	return p.out.control.Flush()
}

package hub

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// ServeSession streams a session over SSE: GET /v1/sessions/{id}/stream. Where it
// begins is Last-Event-ID, else ?after=, else the beginning.
func (h *Hub) ServeSession(w http.ResponseWriter, r *http.Request, who auth.Principal, session string) {
	after, err := cursor.ParseSession(placeOf(r))
	if err != nil {
		h.cfg.Fail(w, r, invalidCursor())
		return
	}
	h.serve(w, r, who, func(ctx context.Context, sub *subscription) (source, error) {
		return h.attach(ctx, sessionKey{who.Tenant, session}, after, sub)
	})
}

// ServeInbox streams all sessions that one may see over SSE: GET /v1/stream. It
// begins after Last-Event-ID, else ?after=, else now.
func (h *Hub) ServeInbox(w http.ResponseWriter, r *http.Request, who auth.Principal) {
	after, err := cursor.ParseInbox(placeOf(r))
	if err != nil {
		h.cfg.Fail(w, r, invalidCursor())
		return
	}
	h.serve(w, r, who, func(ctx context.Context, sub *subscription) (source, error) {
		return h.attachInbox(ctx, who.Tenant, after, sub)
	})
}

// placeOf is where the client wants to go on: what a browser sends by itself when
// it reconnects is newer than the URL that it was given.
func placeOf(r *http.Request) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return r.URL.Query().Get("after")
}

func invalidCursor() error {
	return problem.New(api.CodeInvalidCursor, "This cursor isn't one of this stream.").At("query/after", "not a cursor of this stream")
}

// serve is one connection from begin to end.
func (h *Hub) serve(w http.ResponseWriter, r *http.Request, who auth.Principal, attach func(context.Context, *subscription) (source, error)) {
	conn, err := h.enter(who)
	if err != nil {
		h.cfg.Fail(w, r, err)
		return
	}
	defer h.exit(conn)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	src, err := attach(ctx, &subscription{out: conn.out})
	if err != nil {
		h.cfg.Fail(w, r, err)
		return
	}
	defer src.detach()

	s := &sseWriter{w: w, control: http.NewResponseController(w), hub: h, cursor: placeOf(r)}
	if s.begin() != nil {
		return
	}
	wake := make(chan struct{}, 1)
	conn.out.open(func() {
		select {
		case wake <- struct{}{}:
		default: // it has been told
		}
	})
	h.mu.Lock() // the sweep looks at it
	conn.beat = func(time.Time) { conn.out.put(item{raw: api.AppendSSEComment(nil, "heartbeat")}) }
	h.mu.Unlock()
	running := make(chan struct{})
	go func() { defer close(running); src.run(ctx) }()
	defer func() { cancel(); <-running }()
	s.loop(ctx, conn.out, wake)
}

// sseWriter writes server-sent events.
type sseWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	hub     *Hub
	// cursor is that of the last frame that was written.
	cursor string
}

// begin writes the head of the stream. retry spreads out those who come back after
// a restart.
func (s *sseWriter) begin() error {
	head := s.w.Header()
	head.Set("Content-Type", "text/event-stream")
	head.Set("Cache-Control", "no-store")
	head.Set("X-Accel-Buffering", "no") // proxies would collect frames
	if err := s.extend(0); err != nil {
		return err
	}
	s.w.WriteHeader(http.StatusOK)
	if _, err := fmt.Fprintf(s.w, "retry: %d\n\n", 1000+rand.IntN(2000)); err != nil { //nolint:gosec // jitter
		return err
	}
	return s.control.Flush()
}

// extend gives the next write of size bytes its time.
func (s *sseWriter) extend(size int) error {
	return s.control.SetWriteDeadline(time.Now().Add(s.hub.timeToWrite(size)))
}

// loop writes what is queued until the stream ends.
func (s *sseWriter) loop(ctx context.Context, out *outbox, wake <-chan struct{}) {
	var items []item
	for {
		select {
		case <-wake:
		case <-ctx.Done():
			return
		}
		for {
			var closed api.CloseCode
			if items, closed = out.take(items); closed != 0 {
				s.goodbye(closed)
				return
			}
			if len(items) == 0 {
				break
			}
			if last, err := s.write(items, out); last || err != nil {
				return
			}
			clear(items)
		}
	}
}

// write writes items with one flush.
func (s *sseWriter) write(items []item, out *outbox) (last bool, err error) {
	size := 0
	for _, i := range items {
		size += i.size()
	}
	if err := s.extend(size); err != nil {
		return false, err
	}
	for _, i := range items {
		b := i.raw
		if i.frame != nil {
			b, s.cursor, last = i.frame.event(), i.frame.cursor, i.frame.last
		}
		if _, err := s.w.Write(b); err != nil {
			return false, err
		}
	}
	if err := s.control.Flush(); err != nil {
		return false, err
	}
	for _, i := range items {
		out.written(s.hub.cfg.Now(), i.size())
	}
	return last, nil
}

// timeToWrite is how long size bytes may take to a client: WriteTimeout for what isn't
// large, and as much again for each part of that size.
func (h *Hub) timeToWrite(size int) time.Duration {
	return h.cfg.WriteTimeout * time.Duration(1+size/h.cfg.QueueBytes)
}

// goodbye says why the stream ends; who comes back with its last id loses nothing.
func (s *sseWriter) goodbye(code api.CloseCode) {
	if s.extend(0) != nil {
		return
	}
	last := api.AppendSSEComment(nil, code.String())
	if code == api.CloseTooSlow && s.cursor != "" {
		last = newFrame(s.hub.gapFrame("", s.hub.cfg.Now(), s.cursor, s.cursor, gapOverflow, nil)).event()
	}
	if _, err := s.w.Write(last); err == nil {
		_ = s.control.Flush() // the stream ends either way
	}
}

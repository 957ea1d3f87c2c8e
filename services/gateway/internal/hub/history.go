package hub

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// pageSize is how many frames or batches are read at once.
const pageSize = 256

// stand is a place up to which history is read: n is that of the message at seq.
type stand struct{ n, seq, out uint64 }

// history reads a session's frames between two places, merged.
type history struct {
	hub     *Hub
	key     sessionKey
	subject string
	created time.Time
	mask    view.Masker
	at      cursor.Session // of the last frame that was given
	to      stand
	// highest is the running maximum of after.
	highest uint64
	seen    seen

	events     []view.Frame
	eventsFrom uint64 // n of the last event that was read
	fromLog    bool   // whether the projections are left aside
	batches    []output.Message
	outputFrom uint64 // sequence up to which output was read
	// expired is the floor that a gap has to be told of.
	expired uint64
}

// newHistory prepares to read what is behind a cursor up to a place, and reads the
// first pages, so that what can't be read is known before a stream begins.
func (t *topic) newHistory(ctx context.Context, from cursor.Session, to stand) (*history, error) {
	h := &history{
		hub: t.hub, key: t.key, subject: t.subject, created: t.created, mask: t.mask, at: from, to: to,
		eventsFrom: from.N, outputFrom: from.Out,
		seen: seen{known: from.Out == 0},
	}
	h.at.Epoch = t.hub.cfg.Epoch
	if from.Out > 0 {
		h.outputFrom-- // the batch at the cursor says what of its run was seen
	}
	if err := h.fill(ctx); err != nil {
		return nil, err
	}
	return h, nil
}

// fill reads the next page of whichever has none.
func (h *history) fill(ctx context.Context) error {
	if len(h.events) == 0 && h.eventsFrom < h.to.n {
		if err := h.readEvents(ctx); err != nil {
			return err
		}
	}
	for len(h.batches) == 0 && h.outputFrom < h.to.out {
		if err := h.readOutput(ctx); err != nil {
			return err
		}
	}
	return nil
}

// next gives the next frame; ok is false at the end.
func (h *history) next(ctx context.Context) (f view.Frame, ok bool, err error) {
	for {
		if err := h.fill(ctx); err != nil {
			return view.Frame{}, false, err
		}
		if h.expired > h.at.Out {
			return h.gap(ctx, h.expired, gapExpired), true, nil
		}
		if len(h.batches) > 0 {
			h.highest = max(h.highest, h.batches[0].Batch.After)
		}
		switch {
		case len(h.events) > 0 && (len(h.batches) == 0 || h.events[0].N <= h.highest):
			f = h.events[0]
			h.events = h.events[1:]
			h.at.N = f.N
			f.Cursor = h.at.String()
			return f, true, nil
		case len(h.batches) > 0:
			if f, ok = h.batch(ctx); ok {
				return f, true, nil
			}
		default:
			return view.Frame{}, false, nil
		}
	}
}

// batch gives the frame of the next batch; ok is false for one that was seen.
func (h *history) batch(ctx context.Context) (f view.Frame, ok bool) {
	m := h.batches[0]
	switch {
	case m.Seq <= h.at.Out: // a gap has passed it
		h.batches = h.batches[1:]
		return view.Frame{}, false
	case m.Batch.After > h.to.n: // its event isn't in the log
		h.batches = h.batches[1:]
		return h.gap(ctx, m.Seq, gapUnavailable), true
	}
	v := h.seen.next(m.Batch)
	if v.hole && m.Seq-1 > h.at.Out {
		h.seen = seen{} // said by the gap; the batch comes next
		return h.gap(ctx, m.Seq-1, gapUnavailable), true
	}
	h.batches = h.batches[1:]
	if !v.fresh {
		return view.Frame{}, false
	}
	h.at.Out = m.Seq
	return aguiFrame(h.key.session, h.at, h.mask, v.rest), true
}

// gap moves on to a place of the output and says so.
func (h *history) gap(ctx context.Context, out uint64, reason gapReason) view.Frame {
	from := h.at.String()
	h.at.Out = max(h.at.Out, out)
	return h.hub.gapFrame(h.key.session, h.hub.cfg.Now(), from, h.at.String(), reason, h.hub.snapshotOf(ctx, h.key))
}

// readEvents reads the next page of frames: from the projections, and from the log
// what those don't have yet, or all of it while they can't be read.
func (h *history) readEvents(ctx context.Context) error {
	if h.hub.cfg.History != nil && !h.fromLog {
		frames, more, err := h.hub.cfg.History.Timeline(ctx, h.key.tenant, h.key.session, h.eventsFrom, pageSize)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			h.hub.cfg.Logger.Debug("history from the log", "session", h.key.session, "err", err)
		}
		h.fromLog = err != nil || !more
		for _, f := range frames {
			if f.N == h.eventsFrom+1 && f.N <= h.to.n {
				h.events = append(h.events, f)
				h.eventsFrom = f.N
			}
		}
		if len(h.events) > 0 {
			return nil
		}
	}
	h.fromLog = true
	frames, err := h.hub.walk(ctx, h.subject, h.eventsFrom, h.to.seq)
	if err != nil {
		return unavailable(err)
	}
	h.events, h.eventsFrom = frames, h.to.n
	return nil
}

// readOutput reads the next page of batches: from the ring where it reaches back
// to here, else from the projections, else from the stream.
func (h *history) readOutput(ctx context.Context) error {
	h.hub.mu.Lock()
	batches, ok := h.hub.recent.of(h.key, h.created, h.outputFrom, h.to.out)
	h.hub.mu.Unlock()
	if ok {
		h.takeBatches(batches, h.to.out)
		return nil
	}
	copied := h.hub.cfg.History == nil // whether there is no copy, or it has said all that it has
	if h.hub.cfg.History != nil {
		page, err := h.hub.cfg.History.Output(ctx, h.key.tenant, h.key.session, h.outputFrom, pageSize)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && (len(page.Batches) > 0 || page.Reached > h.outputFrom) {
			h.floor(page.Floor)
			h.takeBatches(page.Batches, page.complete(h.outputFrom))
			return nil
		}
		copied = err == nil
	}
	return h.readStream(ctx, copied)
}

// complete is up to which sequence the page has everything behind after. Its last
// batch may be newer than what was copied when that was asked.
func (p OutputPage) complete(after uint64) uint64 {
	if len(p.Batches) == 0 {
		return max(p.Reached, after)
	}
	newest := p.Batches[len(p.Batches)-1].Seq
	if len(p.Batches) >= pageSize {
		return newest
	}
	return max(p.Reached, newest)
}

// readStream reads the rest of the batches from the stream itself. What is gone
// from there, and isn't in a copy that can be read, has aged out.
func (h *history) readStream(ctx context.Context, copied bool) error {
	first, _, err := h.hub.cfg.Output.Info(ctx)
	if err != nil {
		return unavailable(err)
	}
	from := h.outputFrom
	if from+1 < first {
		if h.at.Out+1 < first && !copied {
			return unavailable(errTooFar)
		}
		h.floor(first - 1)
		from = min(first-1, h.to.out)
	}
	batches, err := h.hub.scanOutput(ctx, h.key, from, h.to.out)
	if err != nil {
		return unavailable(err)
	}
	h.takeBatches(batches, h.to.out)
	return nil
}

// floor notes up to where output has aged out.
func (h *history) floor(floor uint64) { h.expired = max(h.expired, min(floor, h.to.out)) }

// takeBatches takes what was read up to a sequence. The batch at the cursor was
// delivered before and only says where its run stands.
func (h *history) takeBatches(batches []output.Message, reached uint64) {
	for _, m := range batches {
		switch {
		case m.Seq > h.to.out:
		case m.Seq <= h.at.Out && m.Seq > h.outputFrom && h.at.Out > 0 && !h.seen.known:
			h.seen.anchor(m.Batch)
			h.highest = max(h.highest, m.Batch.After)
		case m.Seq > h.at.Out:
			h.batches = append(h.batches, m)
		}
	}
	h.outputFrom = min(reached, h.to.out)
}

// unavailable words a failure to read history.
func unavailable(err error) error {
	if _, ok := errors.AsType[*problem.Error](err); ok || errors.Is(err, context.Canceled) {
		return err
	}
	p := problem.Wrap(api.CodeHistoryUnavailable, "What happened before can't be read now; commands work.", err)
	p.RetryAfter = time.Second
	return p
}

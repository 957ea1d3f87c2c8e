package hub

import (
	"context"
	"errors"
	"math"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
)

// inbox is what the viewers of a tenant's inbox share.
type inbox struct {
	fanout

	hub    *Hub
	tenant string
	refs   int // guarded by hub.mu
	// at is the sequence of EVENTS up to which everything was passed on.
	at uint64
}

// whole is the index of a cursor that is behind all of a message.
const whole = math.MaxInt32

func (h *Hub) inboxCursor(seq uint64, index int) string {
	return cursor.Inbox{Epoch: h.cfg.Epoch, Seq: seq, Index: index}.String()
}

// event passes the frames of a message on.
func (in *inbox) event(m events.Message, a events.Address, made madeFrames) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if made.broken {
		in.deliver(newFrame(in.hub.gapFrame(a.Key, m.Envelope.Time, in.hub.inboxCursor(m.Seq-1, whole), in.hub.inboxCursor(m.Seq, whole), gapUnavailable, nil)))
	}
	for i, f := range made.frames {
		f.Cursor = in.hub.inboxCursor(m.Seq, i)
		in.deliver(newFrame(f))
	}
	in.at = m.Seq
}

// inboxAttachment is a subscription to an inbox.
type inboxAttachment struct {
	inbox *inbox
	sub   *subscription
	from  cursor.Inbox
	to    uint64
	// first comes before everything: where the viewer stands, or a gap.
	first *frame
}

// attachInbox registers a subscription with a tenant's inbox. Errors are problems.
func (h *Hub) attachInbox(ctx context.Context, tenant string, after cursor.Inbox, sub *subscription) (*inboxAttachment, error) {
	if err := h.ready(); err != nil {
		return nil, err
	}
	a := &inboxAttachment{inbox: h.acquireInbox(tenant), sub: sub, from: after}
	foreign, err := h.foreign(ctx, after)
	if err != nil {
		a.detach()
		return nil, notReady(err)
	}
	a.register()
	here := cursor.Inbox{Epoch: h.cfg.Epoch, Seq: a.to, Index: whole}
	switch {
	case after.Epoch == "":
		// It has to be able to come back before anything happened.
		a.from = here
		a.first = newFrame(controlFrame(here.String(), "", h.cfg.Now(), control{Type: controlHeartbeat}))
	case foreign:
		a.skip(ctx, here, gapEpoch)
	case a.to > after.Seq && a.to-after.Seq > uint64(h.cfg.ScanMessages):
		a.skip(ctx, here, gapExpired)
	}
	return a, nil
}

// foreign says that an inbox's cursor is of another log, or of more than this one
// has. One that another gateway gave, which is a little ahead, is waited for.
func (h *Hub) foreign(ctx context.Context, c cursor.Inbox) (bool, error) {
	if c.Epoch != h.cfg.Epoch {
		return c.Epoch != "", nil
	}
	h.mu.Lock()
	at := h.handled
	h.mu.Unlock()
	if c.Seq <= at {
		return false, nil
	}
	info, err := h.cfg.Log.Info(ctx)
	if err != nil || c.Seq > info.LastSeq {
		return true, err
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return false, h.awaitEvents(ctx, c.Seq)
}

// skip goes on from a place and says why, with the questions that are open there.
func (a *inboxAttachment) skip(ctx context.Context, to cursor.Inbox, reason gapReason) {
	h := a.inbox.hub
	var s *snapshot
	if h.cfg.History != nil {
		if open, err := h.cfg.History.Pending(ctx, a.inbox.tenant, pageSize); err == nil {
			s = &snapshot{Approvals: append([]view.Approval{}, open...)}
		}
	}
	a.first = newFrame(h.gapFrame("", h.cfg.Now(), a.from.String(), to.String(), reason, s))
	a.from = to
}

func (h *Hub) acquireInbox(tenant string) *inbox {
	h.mu.Lock()
	defer h.mu.Unlock()
	in, found := h.inboxes[tenant]
	if !found {
		in = &inbox{hub: h, tenant: tenant, at: h.eventsAt.seq}
		h.inboxes[tenant] = in
	}
	in.refs++
	return in
}

// register joins the inbox and notes where it stands.
func (a *inboxAttachment) register() {
	a.inbox.mu.Lock()
	defer a.inbox.mu.Unlock()
	a.inbox.join(a.sub)
	a.to = a.inbox.at
}

// run implements source.
func (a *inboxAttachment) run(ctx context.Context) {
	if a.first != nil && !a.put(ctx, a.first) {
		return
	}
	for {
		if err := a.send(ctx); err != nil {
			if ctx.Err() == nil {
				a.inbox.hub.cfg.Logger.Warn("history of inbox broke off", "tenant", a.inbox.tenant, "err", err)
				a.sub.out.close(api.CloseSourceLost)
			}
			return
		}
		if a.inbox.goLive(ctx, a.sub) || a.inbox.modeOf(a.sub) != lagged {
			return
		}
		a.register()
	}
}

func (a *inboxAttachment) put(ctx context.Context, f *frame) bool {
	return a.sub.out.putWhenRoom(ctx, item{sub: a.sub, frame: f})
}

// send sends what is between the cursor and the registration, from the log.
func (a *inboxAttachment) send(ctx context.Context) error {
	h := a.inbox.hub
	if a.from.Seq > a.to || a.from.Seq == a.to && a.from.Index == whole {
		return nil
	}
	done, err := h.slot(ctx)
	if err != nil {
		return err
	}
	defer done()
	follower := h.newFollower(followedAtOnce)
	err = h.cfg.Log.Tail(ctx, a.from.Seq, func(m events.Message) error {
		address, ok := events.ParseSubject(m.Subject)
		if ok && address.Aggregate == events.AggregateSession && address.Tenant == a.inbox.tenant && m.Envelope.N > 0 && m.Seq <= a.to {
			st, err := follower.Follow(ctx, m)
			switch {
			case err == nil:
				if !a.show(ctx, m, view.Frames(st, m)) {
					return errDone
				}
			case faulted(err):
				gap := h.gapFrame(address.Key, m.Envelope.Time, a.from.String(), h.inboxCursor(m.Seq, whole), gapUnavailable, nil)
				if !a.put(ctx, newFrame(gap)) {
					return errDone
				}
			default:
				return err
			}
		}
		a.from = cursor.Inbox{Epoch: h.cfg.Epoch, Seq: m.Seq, Index: whole}
		if m.Seq >= a.to {
			return errDone
		}
		return nil
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// followedAtOnce is how many sessions stay in memory while an inbox is read.
const followedAtOnce = 256

// show puts the frames of a message that are behind the cursor.
func (a *inboxAttachment) show(ctx context.Context, m events.Message, frames []view.Frame) bool {
	for i, f := range frames {
		if m.Seq == a.from.Seq && i <= a.from.Index {
			continue
		}
		f.Cursor = a.inbox.hub.inboxCursor(m.Seq, i)
		if !a.put(ctx, newFrame(f)) {
			return false
		}
	}
	return true
}

// detach implements source.
func (a *inboxAttachment) detach() {
	a.inbox.leave(a.sub)
	h := a.inbox.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if a.inbox.refs--; a.inbox.refs == 0 && h.inboxes[a.inbox.tenant] == a.inbox {
		delete(h.inboxes, a.inbox.tenant)
	}
}

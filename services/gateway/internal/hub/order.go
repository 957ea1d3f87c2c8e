package hub

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/session"
)

// arrival is a message of EVENTS that goes to a topic's viewers.
type arrival struct {
	m    events.Message
	made madeFrames
	// before is the output that belongs before it, until when it waits for that at most.
	before spoken
	until  time.Time
}

func (a arrival) size() int {
	size := 0
	for _, f := range a.made.frames {
		size += len(f.Data)
	}
	return size
}

// spoken is a place in what the agent says: event k of a run. The zero value is none.
type spoken struct {
	run string
	k   uint64
}

// everything is behind all that is in OUTPUT. The end of a run that isn't its runner's to
// tell, since its sandbox was lost, doesn't say how far the agent had spoken.
const everything = math.MaxUint64

// spokenBefore is how far the agent had spoken when events were decided, where they say
// so: a runner publishes what it has read before it records what came of it.
func spokenBefore(e events.Envelope) spoken {
	var last spoken
	for _, r := range e.Events {
		if at := spokenAt(r); at.k > 0 && last.k != everything {
			last = at
		}
	}
	return last
}

func spokenAt(r events.Record) spoken {
	switch r.Type {
	case session.TypeRunMessageRecorded, session.TypeRunInterrupted, session.TypeRunFinished, session.TypeRunFailed:
	default:
		return spoken{}
	}
	var p struct {
		RunID string `json:"runId"`
		K     uint64 `json:"k"`
		LastK uint64 `json:"lastK"`
	}
	if json.Unmarshal(r.Data, &p) != nil {
		return spoken{} // the fold has refused it: there is a gap instead of its frame
	}
	at := spoken{run: p.RunID, k: max(p.K, p.LastK)}
	if at.k == 0 && (r.Type == session.TypeRunFinished || r.Type == session.TypeRunFailed) {
		at.k = everything
	}
	return at
}

// pass passes a message on, or has it wait for what was said before it.
func (t *topic) pass(a arrival) {
	if a.m.Seq <= t.seq {
		return // it was there before the topic: history has it
	}
	t.waiting = append(t.waiting, a)
	t.waitingBytes += a.size()
	t.advance()
	for len(t.waiting) > 0 && t.waitingBytes-t.waiting[0].size() > t.hub.cfg.HeldBytes {
		t.goOn()
	}
	t.seek()
}

// take passes a batch on, or has it wait for its event.
func (t *topic) take(m output.Message) {
	if m.Seq <= t.out {
		return
	}
	if len(t.held) == 0 {
		t.heldSince = t.hub.cfg.Now()
	}
	t.held = append(t.held, m)
	t.heldBytes += weight(m.Batch)
	t.advance()
	if t.heldBytes > t.hub.cfg.HeldBytes && t.heldBytes-t.heaviest() > t.hub.cfg.HeldBytes {
		// The events are far behind. Who comes back later loses nothing.
		for s := range t.subs {
			s.out.close(api.CloseSourceLost)
			t.drop(s, over)
		}
		t.forget(len(t.held))
	}
	t.seek()
}

// advance passes on what may go. Where each waits for the other, the output is behind
// the event that it names: what the event waits for won't come, since output of one
// session is in its order.
func (t *topic) advance() {
	for {
		switch {
		case len(t.held) > 0 && t.held[0].Batch.After <= t.n:
			m := t.held[0]
			t.forget(1)
			t.emit(m)
		case len(t.waiting) > 0 && (len(t.held) > 0 || t.seen.reached(t.waiting[0].before)):
			t.next()
		default:
			return
		}
	}
}

// next passes on the first message that waits.
func (t *topic) next() {
	a := t.waiting[0]
	t.waiting = slices.Delete(t.waiting, 0, 1)
	t.waitingBytes -= a.size()
	t.show(a)
}

// goOn passes on the first message that waits, though what was said before it is
// missing, and what may go then.
func (t *topic) goOn() {
	t.next()
	t.advance()
}

// seek looks for the output that a message waits for.
func (t *topic) seek() {
	if len(t.waiting) == 0 || t.sought == t.waiting[0].m.Seq {
		return
	}
	a := t.waiting[0]
	t.sought = a.m.Seq
	go t.hub.seek(t, a.m.Seq, a.until)
}

// seek has the message that waits at seq go on once all output of its session was
// passed on that there is: what it still waits for has aged out. A stream that can't be
// read, or followed to there, is waited for until the time that is given and no longer:
// prompts come behind that message.
func (h *Hub) seek(t *topic, seq uint64, until time.Time) {
	ctx, cancel := context.WithDeadline(h.ctx, until)
	defer cancel()
	_, out, _, err := t.newest(ctx)
	if err == nil {
		err = h.awaitOutput(ctx, out)
	}
	if err != nil {
		<-ctx.Done()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == 0 || t.waiting[0].m.Seq != seq {
		return
	}
	if err != nil && h.ctx.Err() == nil {
		h.cfg.Logger.Warn("output not followed, events go on without it", "session", t.key.session, "seq", seq, "err", err)
	}
	t.goOn()
	t.seek()
}

// heaviest is the weight of the largest batch that is held. It doesn't count: what an
// agent says in one event may be larger than the bound, and a moment early.
func (t *topic) heaviest() int {
	most := 0
	for _, m := range t.held {
		most = max(most, weight(m.Batch))
	}
	return most
}

// forget drops the first held batches.
func (t *topic) forget(count int) {
	for _, m := range t.held[:count] {
		t.heldBytes -= weight(m.Batch)
	}
	t.held = slices.Delete(t.held, 0, count)
	t.heldSince = t.hub.cfg.Now()
}

// giveUp says of what is held, while its event isn't in the log, that it can't be
// delivered in its order.
func (t *topic) giveUp(n uint64) {
	for len(t.held) > 0 && t.held[0].Batch.After > n {
		m, from := t.held[0], t.cursor()
		t.forget(1)
		t.out = m.Seq
		t.deliver(newFrame(t.hub.gapFrame(t.key.session, m.Batch.Time, from, t.cursor(), gapUnavailable, nil)))
	}
	t.advance()
	t.maybeEnd()
}

package hub

import (
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
)

// topic is a watched session: where its viewers stand, and what waits.
type topic struct {
	fanout // its lock guards what is below ready and err

	hub     *Hub
	key     sessionKey
	subject string
	refs    int // guarded by hub.mu

	// ready is closed when the topic was opened, or couldn't be (err).
	ready chan struct{}
	err   error

	loading bool
	early   []func() // what came while loading
	// n and seq are of the last event that was passed on, out of the last batch.
	n, seq, out uint64
	mask        view.Masker
	created     time.Time
	seen        seen
	// held is the output that waits for its event, waiting the messages that wait for
	// output, or behind one that does (order.go).
	held         []output.Message
	heldBytes    int
	heldSince    time.Time
	waiting      []arrival
	waitingBytes int
	sought       uint64 // sequence of the message whose output was asked for last
	// ending says that session.ended was passed on, over that all output was too.
	ending, over bool
	asking       bool          // whether somebody is asking the log about what is held
	moved        chan struct{} // closed when n or out moves; nil if nobody waits
}

// cursor is where the topic's live viewers stand.
func (t *topic) cursor() string { return t.at().String() }

func (t *topic) at() cursor.Session {
	return cursor.Session{Epoch: t.hub.cfg.Epoch, N: t.n, Out: t.out}
}

// event passes the frames of a message on, once the output that belongs before it was.
func (t *topic) event(m events.Message, made madeFrames) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := arrival{m: m, made: made, before: spokenBefore(m.Envelope), until: time.Now().Add(t.hub.cfg.HoldFor)}
	if t.loading {
		t.early = append(t.early, func() { t.pass(a) })
		return
	}
	t.pass(a)
}

// output passes a batch on, or holds it until its event was passed on.
func (t *topic) output(m output.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.loading {
		t.early = append(t.early, func() { t.take(m) })
		return
	}
	t.take(m)
}

// show delivers the frames of a message.
func (t *topic) show(a arrival) {
	m := a.m
	if a.made.broken {
		from := t.cursor()
		t.n = m.Envelope.LastN()
		t.deliver(newFrame(t.hub.gapFrame(t.key.session, m.Envelope.Time, from, t.cursor(), gapUnavailable, nil)))
	}
	for _, f := range a.made.frames {
		t.n = f.N
		f.Cursor = t.cursor()
		t.deliver(newFrame(f))
	}
	t.seq = m.Seq
	t.stir()
	if slices.ContainsFunc(m.Envelope.Events, func(r events.Record) bool { return r.Type == session.TypeEnded }) {
		t.ending = true
		go t.hub.finish(t)
	}
}

// stir wakes those who wait for the topic to move.
func (t *topic) stir() {
	if t.moved != nil {
		close(t.moved)
		t.moved = nil
	}
}

// emit passes a batch on, less what was seen of it.
func (t *topic) emit(m output.Message) {
	v := t.seen.next(m.Batch)
	if !v.fresh {
		return
	}
	if v.hole {
		from, to := t.at(), t.at()
		to.Out = m.Seq - 1
		t.deliver(newFrame(t.hub.gapFrame(t.key.session, m.Batch.Time, from.String(), to.String(), gapUnavailable, nil)))
	}
	t.out = m.Seq
	t.stir()
	t.deliver(newFrame(aguiFrame(t.key.session, t.at(), t.mask, v.rest)))
}

// aguiFrame is the frame of a batch. n is how far the viewer is behind it.
func aguiFrame(session string, at cursor.Session, mask view.Masker, b output.Batch) view.Frame {
	return view.Frame{
		Cursor: at.String(), Session: session, N: at.N, Time: b.Time.UTC(), Kind: view.FrameAgui, Data: view.Agui(mask, b.Events),
		Run: b.Run, LastK: b.LastK,
	}
}

// maybeEnd says the end once everything was passed on.
func (t *topic) maybeEnd() {
	if t.ending && t.over && len(t.held) == 0 {
		t.deliver(t.endFrame())
	}
}

// endFrame says that nothing follows.
func (t *topic) endFrame() *frame {
	f := newFrame(controlFrame(t.cursor(), t.key.session, t.hub.cfg.Now(), control{Type: controlEnd}))
	f.last = true
	return f
}

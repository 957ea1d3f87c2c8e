package hub

import (
	"time"

	"github.com/holdfast-io/holdfast/events/output"
)

// ring keeps the newest output of all sessions, bounded in bytes.
type ring struct {
	limit int
	// lo says that everything above it, up to the hub's place, is here.
	lo       uint64
	messages []output.Message
	head     int // of messages; what is before was dropped
	bytes    int
}

// overhead is about what a batch costs beside its events.
const overhead = 256

func weight(b output.Batch) int {
	w := overhead
	for _, e := range b.Events {
		w += len(e)
	}
	return w
}

func (r *ring) add(m output.Message) {
	r.messages = append(r.messages, m)
	r.bytes += weight(m.Batch)
	for r.bytes > r.limit && r.head < len(r.messages) {
		old := &r.messages[r.head]
		r.bytes -= weight(old.Batch)
		r.lo = old.Seq
		*old = output.Message{}
		r.head++
	}
	if r.head > len(r.messages)/2 {
		r.messages = append(r.messages[:0:0], r.messages[r.head:]...)
		r.head = 0
	}
}

// reset empties the ring at a place of the stream.
func (r *ring) reset(at uint64) { *r = ring{limit: r.limit, lo: at} }

// clockSkew is how far the clocks of those who write batches and events may differ.
const clockSkew = time.Minute

// of gives a session's batches in (after, to], if the ring reaches back so far: to
// that sequence, or to before the session was there.
func (r *ring) of(key sessionKey, created time.Time, after, to uint64) (batches []output.Message, ok bool) {
	older := len(r.messages) > r.head && r.messages[r.head].Batch.Time.Add(clockSkew).Before(created)
	if after < r.lo && !older {
		return nil, false
	}
	for _, m := range r.messages[r.head:] {
		if m.Seq > after && m.Seq <= to && m.Session == key.session && m.Tenant == key.tenant {
			batches = append(batches, m)
		}
	}
	return batches, true
}

package hub

import (
	"context"
	"sync"
)

// mode is how far a subscription is.
//
//	piling ──history sent, pile sent──▶ live ──▶ over
//	  └─ pile too large ──▶ lagged ──registers again──▶ piling
type mode int

const (
	piling mode = iota
	live
	lagged
	over
)

// subscription is one viewer's interest in one source. Its fields below out are
// guarded by the source's lock.
type subscription struct {
	out *outbox
	// name is the WebSocket's name for it; "" over SSE.
	name string

	mode mode
	pile []*frame
	heap int // bytes of pile
}

// fanout hands frames to the subscriptions of one source.
type fanout struct {
	mu   sync.Mutex
	subs map[*subscription]struct{}
}

// join registers a subscription, with the lock held.
func (f *fanout) join(s *subscription) {
	s.mode, s.pile, s.heap = piling, nil, 0
	if f.subs == nil {
		f.subs = map[*subscription]struct{}{}
	}
	f.subs[s] = struct{}{}
}

// leave takes a subscription out. No frame is delivered to it afterwards.
func (f *fanout) leave(s *subscription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drop(s, over)
}

func (f *fanout) drop(s *subscription, m mode) {
	delete(f.subs, s)
	s.mode, s.pile, s.heap = m, nil, 0
}

// deliver gives a frame to everybody, with the lock held.
func (f *fanout) deliver(fr *frame) {
	for s := range f.subs {
		switch s.mode {
		case live:
			if !s.out.put(item{sub: s, frame: fr}) || fr.last {
				f.drop(s, over)
			}
		case piling:
			s.pile = append(s.pile, fr)
			if s.heap += len(fr.json); s.heap > s.out.limit {
				f.drop(s, lagged)
			}
		case lagged, over: // not among the subscriptions any more
		}
	}
}

// goLive sends the pile and makes the subscription live. False says that it
// lagged meanwhile, or that nobody is there any more.
func (f *fanout) goLive(ctx context.Context, s *subscription) bool {
	for {
		f.mu.Lock()
		if s.mode != piling {
			f.mu.Unlock()
			return false
		}
		pile := s.pile
		if len(pile) == 0 {
			s.mode = live
			f.mu.Unlock()
			return true
		}
		s.pile, s.heap = nil, 0
		f.mu.Unlock()
		for _, fr := range pile {
			if !s.out.putWhenRoom(ctx, item{sub: s, frame: fr}) || fr.last {
				f.leave(s)
				return false
			}
		}
	}
}

// modeOf reads a subscription's mode.
func (f *fanout) modeOf(s *subscription) mode {
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.mode
}

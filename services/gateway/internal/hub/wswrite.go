package hub

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-io/holdfast/api"
)

// buffers hold one message while it is written.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 2<<10); return &b }}

// keepBuffer is the largest buffer that is kept for the next message.
const keepBuffer = 64 << 10

// wake starts writing. The queue calls it once for each time that it wasn't empty,
// so there is one writer at most, and an idle connection has none.
func (s *socket) wake() { s.work.Go(s.drain) }

// drain writes what is queued until there is nothing.
func (s *socket) drain() {
	var items []item
	for {
		var closed api.CloseCode
		if items, closed = s.conn.out.take(items); closed != 0 {
			s.sayClosed(closed)
			return
		}
		if len(items) == 0 {
			return
		}
		for _, i := range items {
			if err := s.write(i); err != nil {
				s.conn.out.close(whyNotWritten(err))
				_ = s.ws.CloseNow() // reading ends too
				return
			}
		}
		clear(items)
	}
}

// whyNotWritten tells a client that is too slow even for one message from one that
// isn't there.
func whyNotWritten(err error) api.CloseCode {
	if errors.Is(err, context.DeadlineExceeded) {
		return api.CloseTooSlow
	}
	return gone
}

// write writes one message.
func (s *socket) write(i item) error {
	// Not the connection's context: the library would cut it short of its close code.
	ctx, cancel := context.WithTimeout(context.Background(), s.hub.timeToWrite(i.size()))
	defer cancel()
	raw := i.raw
	if i.frame != nil {
		buffer := buffers.Get().(*[]byte) //nolint:errcheck,forcetypeassert // the pool holds nothing else
		raw = appendFrame((*buffer)[:0], i.sub.name, i.frame.json)
		defer func() {
			if cap(raw) <= keepBuffer {
				*buffer = raw
				buffers.Put(buffer)
			}
		}()
	}
	if err := s.ws.Write(ctx, websocket.MessageText, raw); err != nil {
		return err
	}
	s.conn.out.written(s.hub.cfg.Now(), i.size())
	return nil
}

// appendFrame puts an encoded frame into its message (api.WSFrame). The name is one
// of ours and needs no escapes.
func appendFrame(dst []byte, subscription string, frame []byte) []byte {
	dst = append(append(append(dst, `{"type":"frame","subscription":"`...), subscription...), `","frame":`...)
	return append(append(dst, frame...), '}')
}

// sayClosed closes the connection with a code that says whether to come back.
// A client that doesn't answer is left after a while.
func (s *socket) sayClosed(code api.CloseCode) {
	if code == gone {
		_ = s.ws.CloseNow()
		return
	}
	defer time.AfterFunc(closeGrace, s.cancel).Stop()
	_ = s.ws.Close(websocket.StatusCode(code), code.String()) // the peer may be gone
}

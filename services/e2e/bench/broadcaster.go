package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"

	"github.com/coder/websocket"
)

// broadcaster is the least that sends frames to many sockets: a map from sessions
// to their connections, each with a queue and a goroutine that empties it. It knows
// no history, no order, no cursors and no permissions.
type broadcaster struct {
	url    string
	server *http.Server
	served chan error

	mu    sync.Mutex
	rooms map[string]map[chan []byte]struct{}
}

// queueLength is more than a round ever has waiting for one viewer.
const queueLength = 256

// newBroadcaster serves WebSockets at url+"/"+session.
func newBroadcaster(ctx context.Context) (*broadcaster, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &broadcaster{url: "ws://" + l.Addr().String(), rooms: map[string]map[chan []byte]struct{}{}, served: make(chan error, 1)}
	b.server = &http.Server{Handler: http.HandlerFunc(b.serve), ReadHeaderTimeout: headerTimeout}
	go func() { b.served <- b.server.Serve(l) }()
	return b, nil
}

func (b *broadcaster) serve(w http.ResponseWriter, r *http.Request) {
	// As the hub accepts.
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return
	}
	defer ws.CloseNow() //nolint:errcheck // the peer is gone
	queue := make(chan []byte, queueLength)
	room := r.URL.Path[1:]
	b.mu.Lock()
	if b.rooms[room] == nil {
		b.rooms[room] = map[chan []byte]struct{}{}
	}
	b.rooms[room][queue] = struct{}{}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		delete(b.rooms[room], queue)
		b.mu.Unlock()
	}()
	gone := ws.CloseRead(context.WithoutCancel(r.Context()))
	for {
		select {
		case frame := <-queue:
			if ws.Write(gone, websocket.MessageText, frame) != nil {
				return
			}
		case <-gone.Done():
			return
		}
	}
}

// send queues a frame for everybody who watches a session.
func (b *broadcaster) send(session string, frame []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for queue := range b.rooms[session] {
		queue <- frame
	}
}

// stop ends it; connections end with their peers.
func (b *broadcaster) stop() error {
	err := b.server.Close()
	if served := <-b.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

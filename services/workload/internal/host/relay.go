package host

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// relay joins connections from outside with sandboxes' sockets. Each is a CONNECT
// with an access token; the token alone says which incarnation is meant, and it is
// checked before the first byte. From there on it is a stream of bytes, to that
// incarnation for as long as it lives: nothing is buffered, read or changed.
type relay struct {
	driver   driver.Driver
	verifier *sandboxtoken.Verifier
	log      *slog.Logger
	// open are the joined connections, which the HTTP server knows no more.
	open sync.WaitGroup
}

func newRelay(d driver.Driver, v *sandboxtoken.Verifier, log *slog.Logger) *relay {
	return &relay{driver: d, verifier: v, log: log}
}

const (
	headerTimeout  = 10 * time.Second
	maxHeaderBytes = 16 << 10
	// dialTimeout bounds the way to a sandbox on this machine.
	dialTimeout = 5 * time.Second
)

// serve takes connections until ctx ends, or the listener fails; then all of them end.
func (r *relay) serve(ctx context.Context, l net.Listener) error {
	asked := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := &http.Server{
		Handler: http.HandlerFunc(r.connect), ReadHeaderTimeout: headerTimeout, IdleTimeout: headerTimeout, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:    slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // what it closes is of no use any more
	defer stop()
	err := server.Serve(l)
	if asked.Err() != nil && errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	cancel()
	r.open.Wait()
	return err
}

// connect answers a CONNECT by joining its connection with the sandbox's.
func (r *relay) connect(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodConnect {
		w.Header().Set("Allow", http.MethodConnect)
		sandboxapi.NewProblem(http.StatusMethodNotAllowed, sandboxapi.CodeInvalid, "this is a host's relay: use CONNECT").Write(w)
		return
	}
	box, problem := r.dial(req)
	if problem != nil {
		problem.Write(w)
		return
	}
	defer box.Close()
	r.open.Add(1)
	defer r.open.Done()
	conn := sandboxapi.AnswerConnect(w)
	if conn == nil {
		return
	}
	defer conn.Close()
	// The server's context ends with the server, not with this request.
	defer context.AfterFunc(req.Context(), func() { _, _ = conn.Close(), box.Close() })()
	join(conn, box)
}

// dial finds the incarnation that the request's token names and connects to it.
func (r *relay) dial(req *http.Request) (net.Conn, *sandboxapi.Problem) {
	claims, refusal, err := r.verifier.Access(req)
	if refusal != nil {
		r.log.Debug("access refused", "err", err)
		return nil, refusal
	}
	gone := sandboxapi.NewProblem(http.StatusMisdirectedRequest, sandboxapi.CodeSandboxGone, "that incarnation of the sandbox doesn't run here")
	ctx, cancel := context.WithTimeout(req.Context(), dialTimeout)
	defer cancel()
	at, err := r.driver.Locate(ctx, driver.Ref{Tenant: claims.Tenant, Session: claims.Session, Generation: claims.Generation})
	if err != nil || at.PodUID != claims.PodUID {
		return nil, gone
	}
	box, err := sandboxapi.Dial(ctx, at.URL)
	if err != nil {
		r.log.Debug("sandbox not reached", "session", claims.Session, "err", err)
		return nil, gone
	}
	return box, nil
}

// halfCloser is a connection whose one direction can be ended.
type halfCloser interface{ CloseWrite() error }

// join copies both ways until both have ended. The end of one direction is passed on,
// as the other may still have something to say.
func join(a, b net.Conn) {
	var wg sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		half, ok := to.(halfCloser)
		if err != nil || !ok || half.CloseWrite() != nil {
			// It is broken, so nothing more can come through it the other way either.
			_, _ = to.Close(), from.Close()
		}
	}
	wg.Go(func() { pass(a, b) })
	wg.Go(func() { pass(b, a) })
	wg.Wait()
}

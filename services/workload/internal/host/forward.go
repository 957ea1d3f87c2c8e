package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// Forward joins each connection of the agents' socket, which sandboxes see, with the
// agents' listener of a gateway elsewhere, until ctx ends. Of several gateways it
// takes turns and passes over those that don't answer. It closes l.
//
// It carries bytes and knows nothing of them: who an agent is says the token that
// sandboxd adds, to the gateway alone.
func Forward(ctx context.Context, l net.Listener, gateways []string, log *slog.Logger) error {
	var (
		open sync.WaitGroup
		turn atomic.Uint64
	)
	defer open.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })() // twice does no harm
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !transient(err):
			return fmt.Errorf("agents' socket: %w", err)
		case err != nil:
			log.Warn("agents' socket", "err", err)
			if !pause(ctx, acceptAgain) {
				return nil
			}
			continue
		}
		open.Go(func() {
			defer conn.Close()
			out, err := anyOf(ctx, gateways, turn.Add(1))
			if err != nil {
				log.Warn("no gateway for an agent", "err", err)
				return
			}
			defer out.Close()
			defer context.AfterFunc(ctx, func() { _, _ = conn.Close(), out.Close() })()
			join(conn, out)
		})
	}
}

// acceptAgain is how soon a listener that had no descriptor left is tried again.
const acceptAgain = 100 * time.Millisecond

// transient says that accepting may work again: descriptors are short, for example.
func transient(err error) bool {
	var ne interface{ Temporary() bool }
	return errors.As(err, &ne) && ne.Temporary()
}

func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// gatewayTimeout bounds one gateway's answer to a connection.
const gatewayTimeout = 2 * time.Second

// anyOf connects to one of the gateways, beginning with the turn's.
func anyOf(ctx context.Context, gateways []string, turn uint64) (net.Conn, error) {
	var errs []error
	for i := range uint64(len(gateways)) {
		attempt, cancel := context.WithTimeout(ctx, gatewayTimeout)
		conn, err := sandboxapi.Dial(attempt, gateways[(turn+i)%uint64(len(gateways))])
		cancel()
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

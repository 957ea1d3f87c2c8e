package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
)

// Client says how a service connects to a NATS that runs elsewhere.
type Client struct {
	// URL of the server, or several, comma separated.
	URL string
	// User and Password are the service's own.
	User     User
	Password string
	// Logger is told of lost and regained connections and of denials. It is needed.
	Logger *slog.Logger
	// OnDenied is called, besides the log, with each permission violation, which
	// errors.Is finds as nats.ErrPermissionViolation; it names the subject. May be nil.
	OnDenied func(error)
}

const (
	// reconnectWait and as much jitter pass between two attempts at one server.
	reconnectWait = 250 * time.Millisecond
	// pingEvery notices a server that went away without closing: after two pings.
	pingEvery = 10 * time.Second
	// connectTimeout bounds one attempt; a context may bound them all.
	connectTimeout = 5 * time.Second
)

// Connect connects and never gives up reconnecting. The first connection is tried
// until ctx ends, except where the server refuses the user: that doesn't get better.
func Connect(ctx context.Context, c Client) (*nats.Conn, error) {
	switch {
	case c.URL == "":
		return nil, errors.New("connect to NATS: no URL")
	case c.User == "":
		return nil, errors.New("connect to NATS: no user")
	case c.Logger == nil:
		return nil, errors.New("connect to NATS: no logger")
	}
	return c.connect(ctx)
}

func (c Client) connect(ctx context.Context, more ...nats.Option) (*nats.Conn, error) {
	opts := append(c.options(), more...)
	for attempt := 0; ; attempt++ {
		nc, err := nats.Connect(c.URL, opts...)
		if err == nil {
			return nc, nil
		}
		if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
			return nil, fmt.Errorf("connect to NATS as %s: %w", c.User, err)
		}
		if attempt == 0 {
			c.Logger.Warn("NATS can't be reached yet", "user", c.User, "error", err)
		}
		t := time.NewTimer(reconnectWait + rand.N(reconnectWait)) //nolint:gosec // jitter
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, fmt.Errorf("connect to NATS as %s: %w: %w", c.User, ctx.Err(), err)
		}
	}
}

func (c Client) options() []nats.Option {
	log := c.Logger.With("user", c.User)
	return []nats.Option{
		nats.Name("holdfast-" + string(c.User)),
		nats.UserInfo(string(c.User), c.Password),
		nats.CustomInboxPrefix(inbox(c.User)),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait),
		nats.ReconnectJitter(reconnectWait, reconnectWait),
		nats.Timeout(connectTimeout),
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(2),
		// A password that is being changed is wrong for a moment and right again.
		nats.IgnoreAuthErrorAbort(),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil: closed by us
				log.Warn("NATS connection lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Info("NATS connection regained") }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			subject := ""
			if sub != nil {
				subject = sub.Subject
			}
			if !errors.Is(err, nats.ErrPermissionViolation) {
				log.Error("NATS reports an error", "subject", subject, "error", err)
				return
			}
			log.Error("NATS denied what this service tried", "subject", subject, "error", err)
			if c.OnDenied != nil {
				c.OnDenied(err)
			}
		}),
	}
}

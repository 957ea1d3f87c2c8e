package operate

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/services/holdfast/parts"
)

// askAgain passes between two looks for an installation.
const askAgain = 500 * time.Millisecond

// awaitInstall returns once the log is installed on the connection's NATS, or with what
// it lacks when within has passed: where services and 'holdfast install' are started
// together, as on Kubernetes, a service that is first waits instead of failing.
func awaitInstall(ctx context.Context, nc *nats.Conn, within time.Duration, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	events, err := parts.OpenLog(nc)
	if err != nil {
		return err
	}
	ticker := time.NewTicker(askAgain)
	defer ticker.Stop()
	for waiting := false; ; waiting = true {
		_, err := events.Info(ctx)
		if err == nil {
			return nil
		}
		if !waiting {
			log.Info("nothing is installed there yet: waiting for holdfast install", "error", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("nothing was installed within %s: run 'holdfast install': %w", within, err)
		case <-ticker.C:
		}
	}
}

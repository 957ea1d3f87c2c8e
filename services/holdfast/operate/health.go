package operate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/services/holdfast/cli"
)

// health is whether a served process works: it is connected to NATS and listens
// there. That Postgres is away makes no service unready, since commands go on.
type health struct {
	mu      sync.Mutex
	nc      *nats.Conn
	waiting bool
}

// uses notes the process's connection.
func (h *health) uses(nc *nats.Conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nc = nc
}

// waits has it not ready until ready is called.
func (h *health) waits() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = true
}

func (h *health) ready() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = false
}

// check says why it isn't ready.
func (h *health) check(context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.nc == nil || !h.nc.IsConnected():
		return errors.New("not connected to NATS")
	case h.waiting || h.nc.NumSubscriptions() == 0:
		return errors.New("it has not started yet")
	}
	return nil
}

// readyTimeout bounds a question of `holdfast ready`.
const readyTimeout = 5 * time.Second

// Ready is `holdfast ready URL`.
func Ready() *cobra.Command {
	return &cobra.Command{
		Use: "ready URL", Short: "Ask a gateway, or another service at its --health-addr, whether it is ready; for health checks", Args: cobra.ExactArgs(1),
		Example: "  holdfast ready http://127.0.0.1:7070",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), readyTimeout)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, args[0]+"/readyz", nil)
			if err != nil {
				return cli.Usage(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			said, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
			if err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("not ready: %s", said)
			}
			return err
		},
	}
}

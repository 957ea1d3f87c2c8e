package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// wordsWithin bounds the wait for an agent's last words: its end doesn't wait for them.
const wordsWithin = 2 * time.Second

// detail is what an error says, for the session's own log. Where the agent failed for
// good it has what that agent printed last, too: its author sees nothing else of it.
// An agent prints secrets, so nothing of that goes into this service's log.
func (a *App) detail(ctx context.Context, w want, err error) string {
	if !errors.Is(err, driver.ErrEntrypoint) {
		return err.Error()
	}
	if e, ok := errors.AsType[*driver.EntrypointError](err); ok && e.Words != "" {
		return fmt.Sprintf("%v: %s", e, e.Words)
	}
	ctx, cancel := context.WithTimeout(ctx, wordsWithin)
	defer cancel()
	health, unheard := a.health(ctx, w)
	if unheard != nil || health.Entrypoint != sandboxapi.EntrypointFailed {
		return err.Error()
	}
	return fmt.Sprintf("%v: %s", driver.ErrEntrypoint, health.Reason)
}

// health asks a session's sandbox how it is.
func (a *App) health(ctx context.Context, w want) (sandboxapi.Health, error) {
	at, err := a.driver.Locate(ctx, w.ref)
	if err != nil {
		return sandboxapi.Health{}, err
	}
	reached := sandboxapi.Endpoint{URL: at.URL}
	if at.Relayed {
		reached.Access, _, err = sandboxtoken.MintAccess(a.cfg.Key, sandboxtoken.Claims{
			Tenant: w.ref.Tenant, Session: w.ref.Session, Generation: w.ref.Generation, PodUID: at.PodUID,
		}, a.cfg.Now())
		if err != nil {
			return sandboxapi.Health{}, err
		}
	}
	client, err := sandboxapi.NewClientAt(reached, w.ref.Session, w.ref.Generation)
	if err != nil {
		return sandboxapi.Health{}, err
	}
	defer client.Close()
	return client.Health(ctx)
}

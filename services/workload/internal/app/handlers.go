package app

import (
	"context"
	"crypto/ed25519"
	"errors"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/workload/internal/decider"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Handlers gives the service's verbs.
func (a *App) Handlers() map[string]command.Handler {
	return map[string]command.Handler{
		verbs.Locate:        a.locate,
		verbs.RedeemBind:    a.redeemBind,
		verbs.RuntimeApply:  a.applyRuntime,
		verbs.RuntimeRemove: a.removeRuntime,
		verbs.SweepList:     a.listStrays,
		verbs.SweepRemove:   a.removeStrays,
	}
}

func (a *App) publicKey() ed25519.PublicKey {
	public, _ := a.cfg.Key.Public().(ed25519.PublicKey)
	return public
}

// locate says where the sandbox of a ready session answers.
func (a *App) locate(ctx context.Context, tenant string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.LocateBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	w, err := a.look(ctx, tenant, req.Session)
	if err != nil {
		return command.Reply{}, err
	}
	if body.Generation != 0 && body.Generation != w.ref.Generation {
		return command.Reply{}, problem.New(api.CodeSandboxUnreachable, "that generation of the sandbox is gone")
	}
	if w.action != decider.Verify { // the action of a sandbox that is ready and stays
		return command.Reply{}, problem.New(api.CodeSandboxUnreachable, "the session has no sandbox that is ready now")
	}
	at, err := a.whereIs(ctx, w)
	switch {
	case errors.Is(err, driver.ErrUnreachable):
		return command.Reply{}, problem.Wrap(api.CodeSandboxUnreachable, "the sandbox's host does not answer now", err)
	case errors.Is(err, driver.ErrNotFound), errors.Is(err, driver.ErrNotRunning):
		return command.Reply{}, problem.Wrap(api.CodeSandboxUnreachable, "the sandbox is gone", err)
	case err != nil:
		return command.Reply{}, err
	case at.PodUID != w.podUID:
		return command.Reply{}, problem.New(api.CodeSandboxUnreachable, "the sandbox was started again; the session takes notice shortly")
	}
	found := verbs.LocateResult{Endpoint: at.URL, PodUID: at.PodUID, Generation: w.ref.Generation}
	if at.Relayed {
		found.Access, found.AccessUntil, err = sandboxtoken.MintAccess(a.cfg.Key, sandboxtoken.Claims{
			Tenant: tenant, Session: req.Session, Generation: w.ref.Generation, PodUID: at.PodUID,
		}, a.cfg.Now())
		if err != nil {
			return command.Reply{}, err
		}
	}
	return command.Result(0, 0, false, found)
}

package app

import (
	"context"
	"errors"
	"log/slog"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// ErrUnproven is wrapped by a [Reviewer] where a token is no proof of a Pod: forged,
// expired, for another audience, bound to no Pod, or to one that is gone.
var ErrUnproven = errors.New("the token proves no Pod")

// Reviewer has Kubernetes say whose a service-account token is.
type Reviewer interface {
	// Review gives the UID of the Pod that the token is bound to. It is [ErrUnproven] where
	// it isn't bound to one that lives; any other error means that it isn't known.
	Review(ctx context.Context, token string) (podUID string, err error)
}

// redeemBind grants a session to the sandbox of a Pod, by the two halves of its proof:
// what Kubernetes says of the token, and what this service signed.
func (a *App) redeemBind(ctx context.Context, _ string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.RedeemBindBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	if a.cfg.Reviewer == nil {
		return command.Reply{}, problem.New(api.CodeBindRefused, "This Holdfast runs no sandboxes on Kubernetes.")
	}
	// The signature comes first: Kubernetes isn't asked for whoever has no bind at all.
	b, err := bind.Read(a.publicKey(), body.Bind)
	if err != nil {
		return command.Reply{}, problem.Wrap(api.CodeBindRefused, "The bind is not one of this Holdfast's.", err)
	}
	if !b.IsBy(body.Secret) {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a bind was presented by another process than the one that it is for",
			slog.String("tenant", b.Tenant), slog.String("session", b.Session), slog.Uint64("generation", b.Generation), slog.String("pod", b.PodUID))
		return command.Reply{}, refused(errOtherProcess)
	}
	switch pod, err := a.cfg.Reviewer.Review(ctx, body.Token); {
	case errors.Is(err, ErrUnproven):
		return command.Reply{}, problem.Wrap(api.CodeUnauthenticated, "The token proves no Pod that lives.", err)
	case err != nil:
		return command.Reply{}, problem.Wrap(api.CodeNotReady, "Kubernetes can't be asked about the token now; nothing changed.", err)
	case pod == "" || pod != bind.Pod(b.PodUID):
		return command.Reply{}, refused(errOtherPod)
	}
	redeem := a.Redeem
	if body.Renew {
		redeem = a.Renew
	}
	grant, err := redeem(ctx, b.PodUID, body.Bind)
	if err != nil {
		return command.Reply{}, refused(err)
	}
	return command.Result(0, 0, false, grant)
}

// refused words a refusal to grant; what isn't one stays as it is.
func refused(err error) error {
	switch {
	case errors.Is(err, bind.ErrInvalid):
		return problem.Wrap(api.CodeBindRefused, "The bind is past its claim's deadline.", err)
	case errors.Is(err, errOtherPod):
		return problem.Wrap(api.CodeBindRefused, "The bind is for another Pod.", err)
	case errors.Is(err, errTooEarly): // whoever signed the bind is about to
		return problem.Wrap(api.CodeNotReady, "The session's claim isn't written down yet; present the bind again.", err)
	case errors.Is(err, errOtherProcess):
		return problem.Wrap(api.CodeBindRefused, "The bind is for another process of the Pod.", err)
	case errors.Is(err, errNotWanted):
		return problem.Wrap(api.CodeBindRefused, "The session has no such sandbox any more.", err)
	}
	return err
}

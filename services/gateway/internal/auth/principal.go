// Package auth says who calls, and whether they may.
//
//	Authorization: Bearer ─▶ Tokens (a file, reloaded) ─┐
//	Cookie holdfast_session ─▶ Logins (in memory) ──────┴▶ Principal ─▶ tenant ─▶ role
//
// A bearer token is a person's (tokenfile). A browser exchanges one, or the
// one-time code that dev prints, for a cookie. A cookie is only as good as its
// exact Origin (Origins) on everything that writes and on sockets: SameSite keeps
// other sites out, but another port of the same host is the same site.
//
// Tokens are never taken from a query string: those end up in logs.
package auth

import (
	"context"
	"slices"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
)

// Via is how a principal showed who it is.
type Via string

// The ways.
const (
	ViaBearer Via = "bearer"
	ViaCookie Via = "cookie"
)

// Principal is a person who calls, in the tenant of this request.
type Principal struct {
	// Name is who it is, without "user:".
	Name string
	// Tenant is where this request acts; one of Tenants.
	Tenant  string
	Tenants []string
	// Roles are its roles in Tenant.
	Roles  []api.Role
	Groups []string
	Via    Via
}

// ID is the principal as the API writes it.
func (p Principal) ID() string { return "user:" + p.Name }

// Actor is the principal as commands name it.
func (p Principal) Actor() events.Actor { return events.Actor{Kind: events.ActorPerson, ID: p.Name} }

// RoleNames are the roles as commands carry them.
func (p Principal) RoleNames() []string {
	names := make([]string, len(p.Roles))
	for i, r := range p.Roles {
		names[i] = string(r)
	}
	return names
}

// In is the principal acting in a tenant; ok is false where it may not. An empty
// name is its first tenant, the only one that most have.
func (p Principal) In(tenant string) (in Principal, ok bool) {
	if tenant == "" && len(p.Tenants) > 0 {
		tenant = p.Tenants[0]
	}
	if !slices.Contains(p.Tenants, tenant) {
		return Principal{}, false
	}
	p.Tenant = tenant
	return p, true
}

type contextKey struct{}

// With puts a principal into a request's context.
func With(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From gives the request's principal; the zero Principal, who may do nothing,
// where the call needs none.
func From(ctx context.Context) Principal {
	p, _ := ctx.Value(contextKey{}).(Principal)
	return p
}

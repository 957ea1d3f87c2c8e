package rest

import (
	"context"
	"net"
	"net/http"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiserver"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
)

// Attempts to log in, for each address that they come from: enough for a person,
// too few for guessing.
const (
	loginsPerSecond = 1
	loginsBurst     = 20
)

// GetMe says who the caller is and what it may do where.
func (a *API) GetMe(ctx context.Context, _ apiserver.GetMeRequestObject) (apiserver.GetMeResponseObject, error) {
	return apiserver.GetMe200JSONResponse(meOf(auth.From(ctx))), nil
}

func meOf(who auth.Principal) api.Me {
	return api.Me{
		ID: who.ID(), Tenant: who.Tenant, Tenants: append([]string{}, who.Tenants...),
		Roles: append([]api.Role{}, who.Roles...), Groups: append([]string{}, who.Groups...),
	}
}

// Login exchanges a code or a token for a cookie.
func (a *API) Login(ctx context.Context, req apiserver.LoginRequestObject) (apiserver.LoginResponseObject, error) {
	if err := a.logins.Allow(addressOf(requestOf(ctx))); err != nil {
		return nil, err
	}
	who, cookie, err := a.cfg.Auth.Login(requestOf(ctx), req.Body.Code, req.Body.Token)
	if err != nil {
		return nil, err
	}
	return apiserver.Login200JSONResponse{
		Body: meOf(who), Headers: apiserver.Login200ResponseHeaders{SetCookie: cookie.String()},
	}, nil
}

// Logout takes the cookie back.
func (a *API) Logout(ctx context.Context, _ apiserver.LogoutRequestObject) (apiserver.LogoutResponseObject, error) {
	cookie := a.cfg.Auth.Logout(requestOf(ctx))
	return apiserver.Logout204Response{Headers: apiserver.Logout204ResponseHeaders{SetCookie: cookie.String()}}, nil
}

// requestOf is the HTTP request of an operation; see keepRequest.
func requestOf(ctx context.Context) *http.Request {
	r, _ := ctx.Value(httpRequestKey{}).(*http.Request)
	return r
}

// addressOf is the address that a request comes from. Forwarding headers don't
// count: anybody can send them.
func addressOf(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

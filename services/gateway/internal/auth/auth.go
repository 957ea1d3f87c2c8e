package auth

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apispec"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// TenantHeader names the tenant of a request, for who has several.
const TenantHeader = "Holdfast-Tenant"

// Config of an Auth.
type Config struct {
	// Tokens are required.
	Tokens *Tokens
	// Origins are where a browser may act from, besides its own machine.
	Origins Origins
	// Now defaults to time.Now.
	Now func() time.Time
}

// Auth authenticates and authorises requests.
type Auth struct {
	tokens  *Tokens
	logins  *Logins
	origins Origins
}

// New makes an Auth.
func New(cfg Config) *Auth {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Auth{tokens: cfg.Tokens, logins: NewLogins(cfg.Now), origins: cfg.Origins}
}

// NewCode makes a one-time code that logs a browser in as the person of that
// name, for CodeLifetime.
func (a *Auth) NewCode(name string) string { return a.logins.NewCode(name) }

// Admit says who makes the request, acting where, or refuses it: 401 without a
// valid token or cookie, 403 where Origin, tenant or role are not enough. It is
// the one place where they are checked, for every operation but the agents'.
func (a *Auth) Admit(op *apispec.Operation, r *http.Request) (Principal, error) {
	if op.Public() {
		return Principal{}, a.checkOrigin(op, r, slices.Contains(op.Tags, "account"))
	}
	who, err := a.authenticate(op, r)
	if err != nil {
		return Principal{}, err
	}
	if err := a.checkOrigin(op, r, who.Via == ViaCookie && writes(op, r)); err != nil {
		return Principal{}, err
	}
	who, ok := who.In(r.Header.Get(TenantHeader))
	if !ok {
		return Principal{}, problem.New(api.CodeForbidden, "You may not act in that tenant; GET /v1/me lists yours.")
	}
	if !op.Allows(who.Roles...) {
		return Principal{}, problem.Newf(api.CodeForbidden, "This needs one of the roles %s.", join(op.Roles))
	}
	return who, nil
}

// writes says whether a cookie needs the exact Origin here: everything that
// changes something, and sockets, which browsers open across origins.
func writes(op *apispec.Operation, r *http.Request) bool {
	return r.Method != http.MethodGet && r.Method != http.MethodHead || op.ID == socketOperation
}

// socketOperation opens a WebSocket and invokeOperation calls into a sandbox:
// the two whose rules differ.
const (
	socketOperation = "connectWebSocket"
	invokeOperation = "invokeSession"
)

// authenticate finds who it is. A bearer token that isn't valid is refused even
// where a cookie would do: its sender meant it.
func (a *Auth) authenticate(op *apispec.Operation, r *http.Request) (Principal, error) {
	if header := r.Header.Get("Authorization"); header != "" {
		token, ok := Bearer(header)
		if !ok {
			return Principal{}, unauthenticated("Authorization has to be \"Bearer <token>\".")
		}
		who, ok := a.tokens.Lookup(token)
		if !ok {
			return Principal{}, unauthenticated("The token is not valid.")
		}
		return who, nil
	}
	cookie, err := r.Cookie(CookieName)
	if err != nil || op.ID == invokeOperation {
		return Principal{}, unauthenticated("This needs a bearer token.")
	}
	name, ok := a.logins.Lookup(cookie.Value)
	if !ok {
		return Principal{}, unauthenticated("The login is over; log in again.")
	}
	who, ok := a.tokens.Person(name)
	if !ok {
		return Principal{}, unauthenticated("The login is over; log in again.")
	}
	who.Via = ViaCookie
	return who, nil
}

// checkOrigin refuses a request from another origin. Without the header it is
// refused only where that is required: programs don't send one.
func (a *Auth) checkOrigin(op *apispec.Operation, r *http.Request, required bool) error {
	if !required && (r.Header.Get("Origin") == "" || op.ID != socketOperation) {
		return nil
	}
	return a.origins.Check(r)
}

// Login exchanges a code or a token for a cookie. Exactly one of them is set. The
// cookie is for https alone where the request's Origin says that the browser came by it.
func (a *Auth) Login(r *http.Request, code, token string) (Principal, *http.Cookie, error) {
	who, ok := a.tokens.Lookup(token)
	if code != "" {
		var name string
		if name, ok = a.logins.Redeem(code); ok {
			who, ok = a.tokens.Person(name)
		}
	}
	if ok {
		who, ok = who.In("")
	}
	if !ok {
		return Principal{}, nil, unauthenticated("The code or token is not valid, or was used before.")
	}
	who.Via = ViaCookie
	return who, a.logins.Begin(who.Name, secure(r)), nil
}

// Logout ends the login of the request's cookie, if it has one, and gives the
// cookie that takes it back.
func (a *Auth) Logout(r *http.Request) *http.Cookie {
	value := ""
	if cookie, err := r.Cookie(CookieName); err == nil {
		value = cookie.Value
	}
	return a.logins.End(value, secure(r))
}

// Bearer takes the token out of an Authorization header.
func Bearer(header string) (string, bool) {
	scheme, token, ok := strings.Cut(header, " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != ""
}

func unauthenticated(detail string) error { return problem.New(api.CodeUnauthenticated, detail) }

func join(roles []api.Role) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

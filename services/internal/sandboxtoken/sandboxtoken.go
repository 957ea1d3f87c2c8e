// Package sandboxtoken makes and checks the token by which a bound sandbox speaks
// for its session on /v1/agent/*: a JWT, signed with Ed25519 by the workload
// service, verified by the gateway.
//
//	{iss: holdfast, aud: agent, sub: <session>, tenant, generation, podUid, exp}
//
// sandboxd holds it and renews it; agents never see it. It names one incarnation
// of the sandbox, so that one from before a suspend, a loss or the end is of no
// use: whoever verifies it compares generation and Pod UID with the session's own.
//
// The same claims under another audience are the access token ([MintAccess]): with
// it the gateway and the runner reach a sandbox through its host's relay, or through
// the sandboxd of a Pod, by a CONNECT ([Verifier.Access]). Neither stands for the other.
//
// sandboxd verifies access tokens, so nothing is imported here that may not be in a
// sandbox.
package sandboxtoken

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

const (
	// Lifetime is how long a token is good for; the design's ten minutes.
	Lifetime = 10 * time.Minute
	issuer   = "holdfast"
	// audience is of what sandboxes present, audienceHost of what hosts are presented.
	audience     = "agent"
	audienceHost = "host"
	// leeway bridges clocks that differ between machines.
	leeway = 5 * time.Second
	// maxLength bounds what is parsed at all.
	maxLength = 4096
)

// ErrInvalid is wrapped by every refusal of [Verifier.Verify]: malformed, another
// signer, another audience, or expired.
var ErrInvalid = errors.New("invalid sandbox token")

// Claims are whom a token speaks for.
type Claims struct {
	Tenant, Session string
	Generation      uint64
	PodUID          string
}

// name is what events.ValidToken takes for a token of a subject; a test compares them.
var name = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// Validate checks that the claims name a sandbox.
func (c Claims) Validate() error {
	if !name.MatchString(c.Tenant) || !name.MatchString(c.Session) || c.Generation == 0 || c.PodUID == "" {
		return fmt.Errorf("%w: tenant, session, generation and podUid are required", ErrInvalid)
	}
	return nil
}

// wire is the JWT's body.
type wire struct {
	jwt.RegisteredClaims

	Tenant     string `json:"tenant"`
	Generation uint64 `json:"generation"`
	PodUID     string `json:"podUid"`
}

// Mint signs a token that is good from now until expires, which comes with it.
func Mint(key ed25519.PrivateKey, c Claims, now time.Time) (token string, expires time.Time, err error) {
	return mint(key, audience, c, now)
}

// MintAccess is Mint for an access token.
func MintAccess(key ed25519.PrivateKey, c Claims, now time.Time) (token string, expires time.Time, err error) {
	return mint(key, audienceHost, c, now)
}

func mint(key ed25519.PrivateKey, audience string, c Claims, now time.Time) (token string, expires time.Time, err error) {
	if err := c.Validate(); err != nil {
		return "", time.Time{}, err
	}
	if len(key) != ed25519.PrivateKeySize {
		return "", time.Time{}, errors.New("sandbox token: no signing key")
	}
	expires = now.Add(Lifetime)
	token, err = jwt.NewWithClaims(jwt.SigningMethodEdDSA, wire{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Audience: jwt.ClaimStrings{audience}, Subject: c.Session,
			IssuedAt: jwt.NewNumericDate(now), ExpiresAt: jwt.NewNumericDate(expires),
		},
		Tenant: c.Tenant, Generation: c.Generation, PodUID: c.PodUID,
	}).SignedString(key)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign sandbox token: %w", err)
	}
	return token, expires, nil
}

// Verifier checks tokens of one signer.
type Verifier struct {
	key    ed25519.PublicKey
	parser *jwt.Parser
}

// NewVerifier makes a Verifier. now is the clock; nil means time.Now.
func NewVerifier(key ed25519.PublicKey, now func() time.Time) (*Verifier, error) {
	return newVerifier(key, audience, now)
}

// NewAccessVerifier is NewVerifier for access tokens.
func NewAccessVerifier(key ed25519.PublicKey, now func() time.Time) (*Verifier, error) {
	return newVerifier(key, audienceHost, now)
}

func newVerifier(key ed25519.PublicKey, audience string, now func() time.Time) (*Verifier, error) {
	if len(key) != ed25519.PublicKeySize {
		return nil, errors.New("sandbox token: no verification key")
	}
	if now == nil {
		now = time.Now
	}
	return &Verifier{key: key, parser: jwt.NewParser(
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithIssuer(issuer), jwt.WithAudience(audience),
		jwt.WithExpirationRequired(), jwt.WithIssuedAt(), jwt.WithLeeway(leeway), jwt.WithTimeFunc(now),
		jwt.WithStrictDecoding(),
	)}, nil
}

// Verify gives whom a token speaks for. Whether that sandbox still is the
// session's own is the caller's to find out.
func (v *Verifier) Verify(token string) (Claims, error) {
	if len(token) > maxLength {
		return Claims{}, fmt.Errorf("%w: too long", ErrInvalid)
	}
	var w wire
	if _, err := v.parser.ParseWithClaims(token, &w, func(*jwt.Token) (any, error) { return v.key, nil }); err != nil {
		return Claims{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	c := Claims{Tenant: w.Tenant, Session: w.Subject, Generation: w.Generation, PodUID: w.PodUID}
	return c, c.Validate()
}

// Access gives which sandbox a CONNECT asks for, by the access token in its header. A
// refusal is a problem for the one who asks; err is why, for a log.
func (v *Verifier) Access(r *http.Request) (c Claims, refusal *sandboxapi.Problem, err error) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		refusal = sandboxapi.NewProblem(http.StatusUnauthorized, sandboxapi.CodeNoAccess, "an access token is required")
		return Claims{}, refusal, refusal
	}
	if c, err = v.Verify(token); err != nil {
		return Claims{}, sandboxapi.NewProblem(http.StatusUnauthorized, sandboxapi.CodeNoAccess,
			"the access token is not valid; ask the workload service for another"), err
	}
	return c, nil, nil
}

// Package bind signs what gives a warm sandbox to a session: a JWT that names
// session, generation and Pod UID, holds no secret and is good until the claim's
// deadline. sandboxd hands it back to whoever can prove that Pod UID (its parent's
// pipe, or its Pod-bound token), and gets the session's token for it once.
//
// A claim signs the same bytes however often it is tried and by whom, because
// nothing in them depends on the time of the try: by them a bound sandbox knows
// its own bind again, and refuses every other.
//
// The workload service signs, sandboxd and the gateway verify: so nothing is
// imported here that may not be in a sandbox.
package bind

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	issuer   = "holdfast"
	audience = "bind"
	// leeway bridges clocks that differ between machines.
	leeway = 5 * time.Second
)

// MaxLength is the most characters that a signed bind has; nothing longer is read.
const MaxLength = 4096

// ErrInvalid is wrapped by every refusal of Verify.
var ErrInvalid = errors.New("invalid bind")

// Bind gives the sandbox PodUID to a generation of a session.
type Bind struct {
	Tenant, Session string
	Generation      uint64
	// PodUID is the incarnation; see [Pod].
	PodUID string
	// Agents is where the gateway listens for agents, as "http://address:port" with an
	// address that needs no name service: a sandbox on Kubernetes redeems the bind there,
	// and sends its proof nowhere else. Empty where the parent redeems it.
	Agents string
	// Process is the process of sandboxd that is bound, by [ProcessOf] the secret that it
	// alone knows: nobody else in its Pod, whatever token they found there, redeems the bind,
	// and it does so again where an answer was lost. Empty where the parent redeems it.
	Process string
}

// ProcessOf names a process by its secret: SHA-256, in hexadecimal digits.
func ProcessOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// IsBy says whether a secret is that of the process that is bound.
func (b Bind) IsBy(secret string) bool {
	return b.Process == "" || subtle.ConstantTimeCompare([]byte(ProcessOf(secret)), []byte(b.Process)) == 1
}

type claims struct {
	jwt.RegisteredClaims

	Tenant     string `json:"tenant"`
	Generation uint64 `json:"generation"`
	PodUID     string `json:"podUid"`
	Agents     string `json:"agents,omitempty"`
	Process    string `json:"process,omitempty"`
}

// Sign makes the signed form, good until the claim's deadline.
func Sign(key ed25519.PrivateKey, b Bind, until time.Time) (string, error) {
	token, err := jwt.NewWithClaims(jwt.SigningMethodEdDSA, claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: issuer, Audience: jwt.ClaimStrings{audience}, Subject: b.Session,
			ExpiresAt: jwt.NewNumericDate(until),
		},
		Tenant: b.Tenant, Generation: b.Generation, PodUID: b.PodUID, Agents: b.Agents, Process: b.Process,
	}).SignedString(key)
	if err != nil {
		return "", fmt.Errorf("sign bind: %w", err)
	}
	return token, nil
}

// Verify reads what Sign made, while it is good.
func Verify(key ed25519.PublicKey, signed string, now time.Time) (Bind, error) {
	return read(key, signed, jwt.WithTimeFunc(func() time.Time { return now }))
}

// Read is Verify for a bind that has served: it says whose a sandbox was made, also
// after the claim's deadline.
func Read(key ed25519.PublicKey, signed string) (Bind, error) {
	return read(key, signed, jwt.WithTimeFunc(func() time.Time { return time.Time{} }))
}

func read(key ed25519.PublicKey, signed string, at jwt.ParserOption) (Bind, error) {
	if len(signed) > MaxLength {
		return Bind{}, fmt.Errorf("%w: longer than %d characters", ErrInvalid, MaxLength)
	}
	var c claims
	_, err := jwt.ParseWithClaims(signed, &c, func(*jwt.Token) (any, error) { return key, nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodEdDSA.Alg()}), jwt.WithIssuer(issuer), jwt.WithAudience(audience),
		jwt.WithExpirationRequired(), at, jwt.WithLeeway(leeway))
	if err != nil {
		return Bind{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return Bind{Tenant: c.Tenant, Session: c.Subject, Generation: c.Generation, PodUID: c.PodUID, Agents: c.Agents, Process: c.Process}, nil
}

// CheckAgents says what is wrong with the address of a listener for agents: a Pod takes
// "http://address:port" and nothing beside, since a name would be somebody else's to
// resolve.
func CheckAgents(url string) error {
	addr, err := netip.ParseAddrPort(strings.TrimPrefix(url, "http://"))
	if err != nil || url != "http://"+addr.String() {
		return fmt.Errorf("agents: %.100q is not http://address:port", url)
	}
	return nil
}

// Pod gives the UID of the Kubernetes Pod that an incarnation is of. The first life of
// a Pod's containers goes by the Pod's own UID, and each later one by
// "<uid>.<restarts>": a container that was started again has to be bound again. What
// has no such suffix is given back as it is.
func Pod(podUID string) string {
	uid, restarts, found := strings.Cut(podUID, ".")
	n, err := strconv.ParseUint(restarts, 10, 32)
	if !found || err != nil || n == 0 || strconv.FormatUint(n, 10) != restarts {
		return podUID
	}
	return uid
}

package sandboxtoken

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/events"
)

var (
	now    = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	claims = Claims{Tenant: "default", Session: "s-k3v5d2m7q4x6z2b7c5aa", Generation: 2, PodUID: "pod-1"}
)

func keys(t testing.TB) (ed25519.PublicKey, ed25519.PrivateKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return public, private
}

func verifier(t testing.TB, key ed25519.PublicKey, at time.Time) *Verifier {
	t.Helper()
	v, err := NewVerifier(key, func() time.Time { return at })
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestMintedVerifies(t *testing.T) {
	t.Parallel()
	public, private := keys(t)
	token, expires, err := Mint(private, claims, now)
	if err != nil {
		t.Fatal(err)
	}
	if !expires.Equal(now.Add(Lifetime)) {
		t.Errorf("expires %s", expires)
	}
	got, err := verifier(t, public, expires.Add(-time.Second)).Verify(token)
	if err != nil || got != claims {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := verifier(t, public, expires.Add(leeway)).Verify(token); !errors.Is(err, ErrInvalid) {
		t.Errorf("expired: %v", err)
	}
}

// An access token opens a host's relay and nothing else, and what a sandbox holds
// doesn't open one.
func TestAudiencesAreApart(t *testing.T) {
	t.Parallel()
	public, private := keys(t)
	agents := verifier(t, public, now)
	hosts, err := NewAccessVerifier(public, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	access, _, err := MintAccess(private, claims, now)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := Mint(private, claims, now)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := hosts.Verify(access); err != nil || got != claims {
		t.Errorf("access: %+v, %v", got, err)
	}
	if _, err := agents.Verify(access); !errors.Is(err, ErrInvalid) {
		t.Errorf("an access token speaks for an agent: %v", err)
	}
	if _, err := hosts.Verify(token); !errors.Is(err, ErrInvalid) {
		t.Errorf("a sandbox's own token opens the relay: %v", err)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	public, private := keys(t)
	_, other := keys(t)
	sign := func(method jwt.SigningMethod, key any, body jwt.MapClaims) string {
		token, err := jwt.NewWithClaims(method, body).SignedString(key)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	body := func(change func(jwt.MapClaims)) jwt.MapClaims {
		m := jwt.MapClaims{
			"iss": "holdfast", "aud": "agent", "sub": claims.Session, "tenant": "default", "generation": 2, "podUid": "pod-1",
			"iat": now.Unix(), "exp": now.Add(time.Minute).Unix(),
		}
		change(m)
		return m
	}
	same := func(jwt.MapClaims) {}
	v := verifier(t, public, now)
	if _, err := v.Verify(sign(jwt.SigningMethodEdDSA, private, body(same))); err != nil {
		t.Fatalf("the table's own claims: %v", err)
	}
	good, _, err := Mint(private, claims, now)
	if err != nil {
		t.Fatal(err)
	}
	head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
	for name, token := range map[string]string{
		"empty":         "",
		"no JWT":        "hf_abcdefghijklmnopqrstuvwxyz",
		"too long":      good + strings.Repeat("a", maxLength),
		"other signer":  sign(jwt.SigningMethodEdDSA, other, body(same)),
		"alg none":      head + "." + strings.Split(good, ".")[1] + ".",
		"public as MAC": sign(jwt.SigningMethodHS256, []byte(public), body(same)),
		"other issuer":  sign(jwt.SigningMethodEdDSA, private, body(func(m jwt.MapClaims) { m["iss"] = "acme" })),
		"a bind":        sign(jwt.SigningMethodEdDSA, private, body(func(m jwt.MapClaims) { m["aud"] = "bind" })),
		"no expiry":     sign(jwt.SigningMethodEdDSA, private, body(func(m jwt.MapClaims) { delete(m, "exp") })),
		"from later":    sign(jwt.SigningMethodEdDSA, private, body(func(m jwt.MapClaims) { m["iat"] = now.Add(time.Minute).Unix() })),
		"bad tenant":    sign(jwt.SigningMethodEdDSA, private, body(func(m jwt.MapClaims) { m["tenant"] = "a.>" })),
		"no generation": sign(jwt.SigningMethodEdDSA, private, body(func(m jwt.MapClaims) { delete(m, "generation") })),
		"no pod":        sign(jwt.SigningMethodEdDSA, private, body(func(m jwt.MapClaims) { delete(m, "podUid") })),
	} {
		if got, err := v.Verify(token); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// The names in a token are tokens of subjects, by the rule of events, which can't be
// imported beside them.
func TestNamesAreTokensOfSubjects(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z0-9-]{0,70}`), rapid.StringMatching(`[a-zA-Z0-9._\n-]{1,63}`)).Draw(t, "name")
		if got, want := name.MatchString(s), events.ValidToken(s); got != want {
			t.Errorf("%q: %v here, %v in events", s, got, want)
		}
	})
}

func TestAccess(t *testing.T) {
	t.Parallel()
	public, private := keys(t)
	v, err := NewAccessVerifier(public, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	access, _, err := MintAccess(private, claims, now)
	if err != nil {
		t.Fatal(err)
	}
	own, _, err := Mint(private, claims, now)
	if err != nil {
		t.Fatal(err)
	}
	for header, ok := range map[string]bool{
		"": false, access: false, "Basic " + access: false, "Bearer " + own: false, "Bearer x": false, "Bearer " + access: true,
	} {
		r := httptest.NewRequest(http.MethodConnect, "/", nil)
		r.Header.Set("Authorization", header)
		got, refusal, err := v.Access(r)
		switch {
		case ok && (refusal != nil || err != nil || got != claims):
			t.Errorf("%.20q: %+v, %v, %v", header, got, refusal, err)
		case !ok && (refusal == nil || refusal.Status != http.StatusUnauthorized || err == nil || got != Claims{}):
			t.Errorf("%.20q: %+v, %v, %v", header, got, refusal, err)
		}
	}
}

func TestMintRefusesHalfAClaim(t *testing.T) {
	t.Parallel()
	_, private := keys(t)
	if _, _, err := Mint(private, Claims{Tenant: "default", Session: "s-1"}, now); !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v", err)
	}
	if _, _, err := Mint(nil, claims, now); err == nil {
		t.Error("signed without a key")
	}
}

func FuzzVerify(f *testing.F) {
	public, private := keys(f)
	good, _, err := Mint(private, claims, now)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("a.b.c")
	v := verifier(f, public, now)
	f.Fuzz(func(t *testing.T, token string) {
		got, err := v.Verify(token)
		if (err == nil) != (got == claims) {
			t.Errorf("%q gave %+v, %v", token, got, err)
		}
	})
}

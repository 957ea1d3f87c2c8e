package agentside

import (
	"crypto/ed25519"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
)

// from is a request with a token from an address.
func from(address, token string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, "/v1/agent/calls", http.NoBody)
	r.RemoteAddr = address
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r
}

// A flood of tokens that nobody signed is refused before they are looked at, by a code that
// says when to come again, and of its address alone. Whoever has a good one is never charged
// for it.
func TestFloodOfBadTokens(t *testing.T) {
	t.Parallel()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public, _ := key.Public().(ed25519.PublicKey)
	verifier, err := sandboxtoken.NewVerifier(public, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	a := New(Config{Verifier: verifier})
	whose := sandboxtoken.Claims{Tenant: "default", Session: "s-aaaaaaaaaaaaaaaaaaaa", Generation: 1, PodUID: "pod-1"}
	good, _, err := sandboxtoken.Mint(key, whose, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	const flooding, other = "10.0.0.7:4000", "10.0.0.8:4000"
	for range 3 * badTokensBurst {
		if claims, err := a.identify(from(flooding, good)); err != nil || claims != whose {
			t.Fatalf("a good one: %+v, %v", claims, err)
		}
	}
	forged := good[:len(good)-8] + "AAAAAAAA"
	refused := 0
	for range 3 * badTokensBurst {
		_, err := a.Admit(nil, from(flooding, forged))
		p := problem.From(err)
		switch {
		case p == nil:
			t.Fatalf("a forged one: %v", err)
		case p.Code == api.CodeQuotaExceeded:
			refused++
			if p.RetryAfter < time.Second {
				t.Errorf("it may come again after %s", p.RetryAfter)
			}
		case p.Code != api.CodeUnauthenticated:
			t.Errorf("a forged one: %s", p.Code)
		case refused > 0 && refused < badTokensBurst/2:
			t.Error("it is looked at again at once")
		}
	}
	if most := 3*badTokensBurst - badTokensBurst; refused < most-badTokensBurst/2 || refused > most {
		t.Errorf("%d of %d were refused unseen", refused, 3*badTokensBurst)
	}
	if p := problem.From(second(a.identify(from("10.0.0.7:4001", good)))); p == nil || p.Code != api.CodeQuotaExceeded {
		t.Errorf("what comes from there is looked at: %v", p)
	}
	if claims, err := a.identify(from(other, good)); err != nil || claims != whose {
		t.Errorf("from elsewhere: %+v, %v", claims, err)
	}
	if p := problem.From(second(a.identify(from(other, forged)))); p == nil || p.Code != api.CodeUnauthenticated {
		t.Errorf("from elsewhere: %v", p)
	}
}

func second(_ sandboxtoken.Claims, err error) error { return err }

package bind_test

import (
	"crypto/ed25519"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/workload/internal/bind"
)

func TestBind(t *testing.T) {
	t.Parallel()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		t.Fatal("no public key")
	}
	until := time.Date(2026, 1, 2, 15, 4, 5, 6, time.UTC)
	sign := func(b bind.Bind) string {
		t.Helper()
		signed, err := bind.Sign(key, b, until)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	of := bind.Bind{Tenant: "default", Session: "s-a", Generation: 2, PodUID: "pod-1"}
	signed := sign(of)
	if again := sign(of); again != signed {
		t.Errorf("the same claim signed two binds: %s and %s", signed, again)
	}
	other := of
	other.PodUID = "pod-2"
	if sign(other) == signed {
		t.Error("two sandboxes have the same bind")
	}
	if got, err := bind.Verify(public, signed, until.Add(-time.Hour)); err != nil || got != of {
		t.Errorf("verified as %+v, %v", got, err)
	}
	for name, err := range map[string]error{
		"after the deadline": second(bind.Verify(public, signed, until.Add(time.Minute))),
		"changed":            second(bind.Verify(public, signed[:len(signed)-4]+"AAAA", until.Add(-time.Hour))),
		"another's key":      second(bind.Verify(make(ed25519.PublicKey, ed25519.PublicKeySize), signed, until.Add(-time.Hour))),
	} {
		if !errors.Is(err, bind.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second(_ bind.Bind, err error) error { return err }

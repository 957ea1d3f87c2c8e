package bind_test

import (
	"crypto/ed25519"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/bind"
)

// Nothing but what was signed verifies, and whatever else comes is a refusal.
func FuzzVerify(f *testing.F) {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		f.Fatal("no public key")
	}
	until := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	gave := bind.Bind{Tenant: "default", Session: "s-a", Generation: 3, PodUID: "pod-1"}
	signed, err := bind.Sign(key, gave, until)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(signed)
	f.Add("")
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := bind.Verify(public, text, until.Add(-time.Minute))
		if err == nil && got != gave {
			t.Fatalf("%q gives %+v", text, got)
		}
		if err != nil && !errors.Is(err, bind.ErrInvalid) {
			t.Fatalf("not a refusal: %v", err)
		}
	})
}

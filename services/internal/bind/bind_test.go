package bind_test

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/bind"
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
	of := bind.Bind{Tenant: "default", Session: "s-a", Generation: 2, PodUID: "pod-1", Agents: "http://10.0.0.7:7001", Process: bind.ProcessOf("secret")}
	signed := sign(of)
	if again := sign(of); again != signed {
		t.Errorf("the same claim signed two binds: %s and %s", signed, again)
	}
	other := of
	other.PodUID = "pod-2"
	if sign(other) == signed {
		t.Error("two sandboxes have the same bind")
	}
	elsewhere := of
	elsewhere.Agents = "http://10.0.0.8:7001"
	if sign(elsewhere) == signed {
		t.Error("where it is redeemed isn't signed")
	}
	if got, err := bind.Verify(public, signed, until.Add(-time.Hour)); err != nil || got != of {
		t.Errorf("verified as %+v, %v", got, err)
	}
	for name, err := range map[string]error{
		"after the deadline": second(bind.Verify(public, signed, until.Add(time.Minute))),
		"changed":            second(bind.Verify(public, signed[:len(signed)-4]+"AAAA", until.Add(-time.Hour))),
		"endless":            second(bind.Verify(public, signed+strings.Repeat("A", bind.MaxLength), until.Add(-time.Hour))),
		"another's key":      second(bind.Verify(make(ed25519.PublicKey, ed25519.PublicKeySize), signed, until.Add(-time.Hour))),
	} {
		if !errors.Is(err, bind.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Who is bound is a process, where the bind names one.
func TestIsBy(t *testing.T) {
	t.Parallel()
	named := bind.Bind{Process: bind.ProcessOf("secret")}
	for secret, by := range map[string]bool{"secret": true, "Secret": false, "": false, named.Process: false} {
		if named.IsBy(secret) != by {
			t.Errorf("%q: %t", secret, !by)
		}
		if !(bind.Bind{}).IsBy(secret) {
			t.Errorf("%q: a parent's bind names no process", secret)
		}
	}
}

func second(_ bind.Bind, err error) error { return err }

func TestPod(t *testing.T) {
	t.Parallel()
	for incarnation, want := range map[string]string{
		"4f6b2c1e-0a55-4b7e-9d3f-0d1f0a6c7e11":    "4f6b2c1e-0a55-4b7e-9d3f-0d1f0a6c7e11",
		"4f6b2c1e-0a55-4b7e-9d3f-0d1f0a6c7e11.1":  "4f6b2c1e-0a55-4b7e-9d3f-0d1f0a6c7e11",
		"4f6b2c1e-0a55-4b7e-9d3f-0d1f0a6c7e11.20": "4f6b2c1e-0a55-4b7e-9d3f-0d1f0a6c7e11",
		"pod-1": "pod-1", "": "",
		// Nobody counts like this, so each is somebody else.
		"pod-1.0": "pod-1.0", "pod-1.01": "pod-1.01", "pod-1.": "pod-1.", "pod-1.x": "pod-1.x", "pod-1.-1": "pod-1.-1",
		"pod-1.1.2": "pod-1.1.2", "pod-1.99999999999": "pod-1.99999999999",
	} {
		if got := bind.Pod(incarnation); got != want {
			t.Errorf("%q is of %q, want %q", incarnation, got, want)
		}
	}
}

func TestCheckAgents(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"http://10.0.0.7:7071": true, "http://[fd00::7]:7071": true,
		"": false, "http://10.0.0.7": false, "http://10.0.0.7:7071/": false, "https://10.0.0.7:7071": false, "10.0.0.7:7071": false,
		"http://localhost:7071": false, "http://a@10.0.0.7:7071": false, "http://10.0.0.7:7071?x": false, "http://010.0.0.7:7071": false,
	} {
		if err := bind.CheckAgents(url); (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
	}
}

package app_test

import (
	"context"
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/bind"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
)

var signer = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))

func (w *world) sign(change func(*bind.Bind)) string {
	w.t.Helper()
	b := bind.Bind{Tenant: given.Tenant, Session: given.Session, Generation: 1, PodUID: "pod-1"}
	if change != nil {
		change(&b)
	}
	signed, err := bind.Sign(signer, b, w.now.Add(time.Minute))
	if err != nil {
		w.t.Fatal(err)
	}
	return signed
}

// A bind is good for exactly its sandbox, while that is its session's.
func TestRedeem(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, tc := range map[string]struct {
		given  func(w *world)
		pod    string
		change func(*bind.Bind)
		ok     bool
	}{
		"the same again":             {(*world).settle, "pod-1", nil, true},
		"by another sandbox":         {(*world).settle, "pod-2", nil, false},
		"for another sandbox":        {(*world).settle, "pod-1", func(b *bind.Bind) { b.PodUID = "pod-2" }, false},
		"for one that isn't its own": {(*world).settle, "pod-2", func(b *bind.Bind) { b.PodUID = "pod-2" }, false},
		"to another session":         {(*world).settle, "pod-1", func(b *bind.Bind) { b.Session = "s-bbbbbbbbbbbbbbbbbbbb" }, false},
		"to another generation":      {(*world).settle, "pod-1", func(b *bind.Bind) { b.Generation = 2 }, false},
		"to nobody's session":        {func(*world) {}, "pod-9", func(b *bind.Bind) { b.Session, b.PodUID = "s-bbbbbbbbbbbbbbbbbbbb", "pod-9" }, false},
		"before it is claimed":       {func(*world) {}, "pod-1", nil, false},
		"of a suspended session":     {func(w *world) { suspend(w); w.settle() }, "pod-1", nil, false},
		"while its session ends":     {func(w *world) { w.settle(); w.append(session.Terminated{}) }, "pod-1", nil, false},
		"after its release":          {func(w *world) { w.settle(); w.append(session.Terminated{}); w.settle() }, "pod-1", nil, false},
		"after it was lost":          {func(w *world) { w.settle(); w.watch(w.driver.die()) }, "pod-1", nil, false},
		"after a restart":            {func(w *world) { w.settle(); w.restart() }, "pod-1", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tc.given(w)
			grant, err := w.app.Redeem(ctx, tc.pod, w.sign(tc.change))
			if (err == nil) != tc.ok {
				t.Fatalf("%v", err)
			}
			if !tc.ok {
				return
			}
			v, err := sandboxtoken.NewVerifier(signer.Public().(ed25519.PublicKey), func() time.Time { return w.now })
			if err != nil {
				t.Fatal(err)
			}
			claims, err := v.Verify(grant.Token)
			if want := (sandboxtoken.Claims{Tenant: given.Tenant, Session: given.Session, Generation: 1, PodUID: "pod-1"}); err != nil || claims != want {
				t.Errorf("%+v, %v", claims, err)
			}
			if string(grant.Config) != `{"a":1}` || grant.Session != given.Session {
				t.Errorf("%+v", grant)
			}
		})
	}
}

func TestRedeemOfAForgery(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	signed := w.sign(nil)
	for name, forged := range map[string]string{
		"nothing": "", "noise": "a.b.c", "cut": signed[:len(signed)-4], "a token of another kind": w.driver.boxes[ref].bound,
	} {
		if _, err := w.app.Redeem(context.Background(), "pod-1", forged); err == nil {
			t.Errorf("%s was redeemed", name)
		}
	}
	w.now = w.now.Add(time.Hour)
	if _, err := w.app.Redeem(context.Background(), "pod-1", signed); err == nil {
		t.Error("an old bind was redeemed")
	}
}

// A bound sandbox renews for as long as it is its session's.
func TestRenew(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld(t)
	second := func(b *bind.Bind) { b.PodUID = "pod-2" }
	signed, resumed := w.sign(nil), w.sign(second)
	if _, err := w.app.Renew(ctx, "pod-1", signed); err == nil {
		t.Error("one that was never claimed renews")
	}
	w.settle()
	w.now = w.now.Add(time.Hour)
	w.restart() // any replica renews, also one that granted nothing
	if _, err := w.app.Renew(ctx, "pod-2", signed); err == nil {
		t.Error("a sandbox renews by another's bind")
	}
	if _, err := w.app.Renew(ctx, "pod-2", resumed); err == nil {
		t.Error("a sandbox that isn't the session's renews")
	}
	if _, err := w.app.Renew(ctx, "pod-1", signed[:len(signed)-4]); err == nil {
		t.Error("a forged bind renews")
	}
	if grant, err := w.app.Renew(ctx, "pod-1", signed); err != nil || grant.ExpiresUnix <= w.now.Unix() {
		t.Errorf("%+v, %v", grant, err)
	}
	w.append(session.SuspendRequested{Cause: "request"})
	w.settle()
	w.append(session.ResumeRequested{Cause: "request"})
	w.settle()
	if _, err := w.app.Renew(ctx, "pod-1", signed); err == nil {
		t.Error("the incarnation before the suspend renews")
	}
	if _, err := w.app.Renew(ctx, "pod-2", resumed); err != nil {
		t.Error(err)
	}
	w.append(session.Terminated{})
	if _, err := w.app.Renew(ctx, "pod-2", resumed); err == nil {
		t.Error("the sandbox of a session that ends renews")
	}
}

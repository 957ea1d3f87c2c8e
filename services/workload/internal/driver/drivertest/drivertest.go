// Package drivertest is the suite that every driver of package driver passes.
//
// A driver's own test calls [Run] with a way to make a [Subject]; the suite uses
// nothing but the interface and, through the sandbox's endpoint, the agent
// probeagent, which runs shell scripts inside.
package drivertest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Subject is a driver to be tested. It was made with [Granter].
type Subject struct {
	Driver driver.Driver
	// Runtime has probeagent as its entrypoint.
	Runtime driver.RuntimeSpec
	// Isolation is the grade that its sandboxes have to report.
	Isolation string
}

// deadline bounds every wait of the suite.
const deadline = 30 * time.Second

// Granter grants every bind: a bind of the suite names its session as
// "tenant/session/generation".
type Granter struct {
	mu    sync.Mutex
	bound map[string]string // Pod UID → bind
}

// Redeem grants what bind names, and the same again for the same pod.
func (g *Granter) Redeem(_ context.Context, podUID, bind string) (sandboxapi.Grant, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.bound == nil {
		g.bound = map[string]string{}
	}
	if was, ok := g.bound[podUID]; ok && was != bind {
		return sandboxapi.Grant{}, fmt.Errorf("pod %s is bound to %s", podUID, was)
	}
	g.bound[podUID] = bind
	return grantOf(podUID, bind)
}

// Renew grants what the pod is bound to.
func (g *Granter) Renew(_ context.Context, podUID string) (sandboxapi.Grant, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return grantOf(podUID, g.bound[podUID])
}

func grantOf(podUID, bind string) (sandboxapi.Grant, error) {
	parts := strings.Split(bind, "/")
	if len(parts) != 3 {
		return sandboxapi.Grant{}, fmt.Errorf("no bind: %q", bind)
	}
	generation, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		return sandboxapi.Grant{}, err
	}
	return sandboxapi.Grant{
		Tenant: parts[0], Session: parts[1], Generation: generation, PodUID: podUID,
		Token: "token-of-" + podUID, ExpiresUnix: time.Now().Add(10 * time.Minute).Unix(),
	}, nil
}

// BindOf is the bind of a sandbox, as Granter reads it.
func BindOf(ref driver.Ref) string {
	return fmt.Sprintf("%s/%s/%d", ref.Tenant, ref.Session, ref.Generation)
}

// Accessor is a driver under test whose endpoints are Relayed: it gives the access
// token for one of its incarnations.
type Accessor interface {
	Access(ref driver.Ref, podUID string) string
}

// Shell runs a script inside a bound sandbox and returns what it said and its
// exit code. A driver whose endpoints are Relayed has to be an [Accessor].
func Shell(t testing.TB, d driver.Driver, ref driver.Ref, script string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	ep, err := d.Locate(ctx, ref)
	if err != nil {
		t.Fatalf("locate: %v", err)
	}
	at := sandboxapi.Endpoint{URL: ep.URL}
	if a, ok := d.(Accessor); ok && ep.Relayed {
		at.Access = a.Access(ref, ep.PodUID)
	}
	client, err := sandboxapi.NewClientAt(at, ref.Session, ref.Generation)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://sandbox/sh", strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.InvokeTransport().RoundTrip(req)
	if err != nil {
		t.Fatalf("shell: %v", err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("shell: %v", err)
	}
	code, err := strconv.Atoi(resp.Header.Get("Exit"))
	if err != nil {
		t.Fatalf("shell: status %d: %s", resp.StatusCode, out)
	}
	return strings.TrimSpace(string(out)), code
}

// Start claims, binds and waits for a sandbox.
func Start(t testing.TB, d driver.Driver, c driver.Claim) driver.Sandbox {
	t.Helper()
	return up(t, d, c, d.Claim)
}

// Restart is Start for a suspended sandbox.
func Restart(t testing.TB, d driver.Driver, c driver.Claim) driver.Sandbox {
	t.Helper()
	return up(t, d, c, d.Resume)
}

func up(t testing.TB, d driver.Driver, c driver.Claim, how func(context.Context, driver.Claim) (driver.Sandbox, error)) driver.Sandbox {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	sb, err := how(ctx, c)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	if _, err := d.Bind(ctx, c.Ref, BindOf(c.Ref)); err != nil {
		t.Fatalf("bind: %v", err)
	}
	if _, err := d.Ready(ctx, c.Ref, sandboxapi.Health{}); err != nil {
		t.Fatalf("ready: %v", err)
	}
	return sb
}

// Eventually polls a condition that no signal announces.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	timeout := time.After(deadline)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("not in %v: %s", deadline, what)
		}
	}
}

package harness

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"time"

	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/internal/keyfile"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
)

// Agent is the API as the sandbox of a session that is ready: on the agents' own
// listener, with the token that sandboxd holds.
func (h *Holdfast) Agent(session string) *apiclient.ClientWithResponses {
	h.t.Helper()
	key, err := keyfile.Private(filepath.Join(h.DataDir, "keys", "sandbox.pem"))
	if err != nil {
		h.t.Fatal(err)
	}
	var claims sandboxtoken.Claims
	for _, box := range h.Sandboxes(session) {
		if box.Process.PID > 0 {
			claims = sandboxtoken.Claims{Tenant: Tenant, Session: session, Generation: box.Generation, PodUID: box.PodUID}
		}
	}
	token, _, err := sandboxtoken.Mint(key, claims, time.Now())
	if err != nil {
		h.t.Fatalf("token of session %s: %v", session, err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(h.DataDir, "agent", dev.AgentSocket))
	}}
	h.t.Cleanup(transport.CloseIdleConnections)
	c, err := apiclient.New(apiclient.Config{URL: "http://holdfast", Token: token, HTTP: &http.Client{Transport: transport}})
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

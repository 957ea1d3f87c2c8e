//go:build containers

package containers_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// TestMain looks for goroutines that are left. The tests remove what they make, so
// that no further container has to watch over them.
func TestMain(m *testing.M) {
	if err := os.Setenv("TESTCONTAINERS_RYUK_DISABLED", "true"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(tidy{m})
}

// tidy closes the connections that HTTP clients keep, which are no leak.
type tidy struct{ tests *testing.M }

// Run implements goleak's TestingM.
func (t tidy) Run() int {
	code := t.tests.Run()
	if transport, ok := http.DefaultTransport.(*http.Transport); ok {
		transport.CloseIdleConnections()
	}
	return code
}

// One installation has to do: what one fault leaves is what the next one meets.
func TestContainers(t *testing.T) {
	t.Parallel()
	in := install(t)
	defer in.check(t)
	t.Run("life", func(t *testing.T) { life(t, in) })
	for _, v := range victims() {
		t.Run(v.name, func(t *testing.T) {
			t.Run("killed", func(t *testing.T) {
				struck(t, in, v, blow{strike: (*node).kill, heal: (*node).start})
			})
			t.Run("paused", func(t *testing.T) {
				struck(t, in, v, blow{strike: (*node).pause, heal: (*node).unpause})
			})
		})
	}
}

// life is that of a session: created, told something, asked about, answered, and
// played again; by way of both gateways.
func life(t *testing.T, in *installation) {
	ctx := harness.Context(t)
	alice, elsewhere, bob := in.as("alice", "gateway-1"), in.as("alice", "gateway-2"), in.as("bob", "gateway-2")
	prefer := "wait=30"
	r, err := alice.CreateSessionWithResponse(ctx, &api.CreateSessionParams{Prefer: &prefer},
		api.CreateSession{Runtime: "shell", Message: "id -un\ntouch made-here && ls"})
	if err != nil {
		t.Fatal(err)
	}
	id := r.JSON201.ID
	if got := r.JSON201.Isolation; got != harness.Isolation() {
		t.Errorf("isolation %q, want %q", got, harness.Isolation())
	}
	asked := harness.Follow(t, elsewhere, id, harness.OnPrompt(api.CallStatePending))
	approve(t, in, bob, asked[len(asked)-1])
	frames := harness.Follow(t, elsewhere, id, harness.OnEvent("run.finished"))
	for _, line := range []string{"\nagent\n", "\nmade-here\n"} {
		if !strings.Contains(text(frames), line) {
			t.Errorf("the agent didn't say %q: %s", line, text(frames))
		}
	}
	again, err := in.as("admin", "gateway-2").ReplaySession(ctx, id, &api.ReplaySessionParams{Speed: new(float64)})
	if err != nil {
		t.Fatal(err)
	}
	var replayed []string
	answered := false
	for f, err := range apiclient.Frames(again.Body) {
		if err != nil {
			t.Fatal(err)
		}
		replayed = append(replayed, harness.EventOf(f).Type)
		answered = answered || harness.OnPrompt(api.CallStateApproved)(f)
	}
	played := strings.Join(replayed, " ")
	for _, event := range []string{"session.created", "workload.ready", "call.completed", "run.finished"} {
		if !strings.Contains(played, event) {
			t.Errorf("the replay has no %s: %s", event, played)
		}
	}
	if !answered {
		t.Errorf("the replay has no answer: %s", played)
	}
	end(t, alice, id)
}

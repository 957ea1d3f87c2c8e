package processes_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// One installation is enough: the walk that everybody is shown first, then a runner
// that dies while its agent goes on.
func TestProcesses(t *testing.T) {
	t.Parallel()
	in := install(t, 1)
	defer in.close()
	t.Run("a browser", func(t *testing.T) { signIn(t, in) })
	t.Run("the demo", func(t *testing.T) { demo(t, in) })
	t.Run("a runner that dies", func(t *testing.T) { takenOver(t, in) })
}

// A gateway takes browsers from where its environment says, and from nowhere else.
func signIn(t *testing.T, in *installation) {
	from := func(origin string) (*apiclient.LoginResponse, error) {
		return in.as("alice").LoginWithResponse(harness.Context(t), api.Login{Token: in.token("alice")}, func(_ context.Context, req *http.Request) error {
			req.Header.Set("Origin", origin)
			return nil
		})
	}
	if r, err := from(site); err != nil || !strings.Contains(r.HTTPResponse.Header.Get("Set-Cookie"), "; Secure") {
		t.Errorf("from where it was told: %v, %v", r, err)
	}
	_, err := from("https://elsewhere.example.com")
	if refused, ok := errors.AsType[*api.Error](err); !ok || refused.Problem.Code != api.CodeOriginRefused {
		t.Errorf("from elsewhere: %v", err)
	}
}

func demo(t *testing.T, in *installation) {
	said := in.cli("demo")
	for _, part := range []string{"workload.ready", "a person is asked", "HTTP 201", "written by an agent", "nobody needs this in a sandbox", "run.finished"} {
		if !strings.Contains(said, part) {
			t.Errorf("the demo doesn't show %q:\n%s", part, said)
		}
	}
}

// agui reads the events of an output frame.
func agui(f api.Frame) []struct{ Type, Delta string } {
	var events []struct{ Type, Delta string }
	if f.Kind == api.FrameKindAgui {
		_ = json.Unmarshal(f.Data, &events) // what isn't output has none
	}
	return events
}

// The runner alone is killed while the agent prints. Another one takes the run over:
// each line is there once, the numbers of the events have no hole and no run failed.
func takenOver(t *testing.T, in *installation) {
	const lines = 15
	id, run := in.ask(harness.Context(t), "for i in $(seq 15); do echo line-$i; sleep 0.2; done")
	harness.Follow(t, in.as("alice"), id, func(f api.Frame) bool {
		for _, e := range agui(f) {
			if strings.Contains(e.Delta, "line-2\n") {
				return true
			}
		}
		return false
	})
	in.running["runner"].Kill()
	in.serve("runner")
	frames := harness.Follow(t, in.as("alice"), id, harness.OnEvent("run.finished"))

	var text strings.Builder
	taken := 0
	for _, f := range frames {
		if harness.EventOf(f).Type == "run.taken-over" {
			taken++
		}
		for _, e := range agui(f) {
			text.WriteString(e.Delta)
		}
	}
	if taken != 1 {
		t.Errorf("the run was taken over %d times", taken)
	}
	for i := range lines {
		if n := strings.Count(text.String(), fmt.Sprintf("\nline-%d\n", i+1)); n != 1 {
			t.Errorf("line %d is there %d times: %s", i+1, n, text.String())
		}
	}
	var finished struct {
		RunID, Outcome string
		LastK          uint64
	}
	if err := json.Unmarshal(harness.EventOf(frames[len(frames)-1]).Data, &finished); err != nil {
		t.Fatal(err)
	}
	if finished.RunID != run || finished.Outcome != "success" {
		t.Errorf("finished: %+v, want run %s", finished, run)
	}
	var next uint64 = 1
	for _, b := range in.batches(run) {
		if b.FirstK > next {
			t.Fatalf("k %d follows on %d", b.FirstK, next-1)
		}
		if b.LastK-b.FirstK+1 != uint64(len(b.Events)) {
			t.Errorf("%d events from k %d to %d", len(b.Events), b.FirstK, b.LastK)
		}
		next = max(next, b.LastK+1)
	}
	if next != finished.LastK+1 {
		t.Errorf("the last k is %d, run.finished says %d", next-1, finished.LastK)
	}
	recordedOnce(t, in, id, run)
}

// recordedOnce wants the agent's message in the log once, and whole.
func recordedOnce(t *testing.T, in *installation, id, run string) {
	t.Helper()
	ctx, alice := harness.Context(t), in.as("alice")
	now, err := alice.GetSessionWithResponse(ctx, id, nil)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := alice.ListMessagesWithResponse(ctx, id, &api.ListMessagesParams{MinSeq: &now.JSON200.Seq})
	if err != nil {
		t.Fatal(err)
	}
	recorded := 0
	for _, m := range messages.JSON200.Items {
		if m.RunID != run || m.Role != "assistant" {
			continue
		}
		if recorded++; !strings.HasSuffix(m.Content, "line-15\nexit 0\n") {
			t.Errorf("recorded as %q", m.Content)
		}
	}
	if recorded != 1 {
		t.Errorf("recorded %d times", recorded)
	}
}

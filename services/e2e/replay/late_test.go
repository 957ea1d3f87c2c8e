package replay_test

import (
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
)

// TestOutputThatIsLate has NATS deliver no output for a while, as when the stream's leader
// was lost, while a run comes to its end: whoever watches sees what the agent said, and
// then that it was recorded and that the run is over, as in every replay.
func TestOutputThatIsLate(t *testing.T) {
	h := harness.Start(t, harness.SharedPostgres(t))
	s := h.Create("alice", "ls")
	h.Follow("alice", s.ID, harness.OnEvent("run.finished"))
	seen := watch(t, h, s.ID)
	inbox, err := h.Client("alice").StreamInbox(h.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resume := pauseOutput(t, h)
	run := h.Send("alice", s.ID, "ls -a")
	for f, err := range apiclient.Frames(inbox.Body) {
		if err != nil {
			t.Fatal(err)
		}
		if e := harness.EventOf(f); f.Session == s.ID && e.Type == "run.finished" && placeOf(t, e).RunID == run {
			break // this gateway has had it
		}
	}
	resume()
	if _, err := h.Client("alice").TerminateSessionWithResponse(h.Context(), s.ID, nil, api.TerminateSession{}); err != nil {
		t.Fatal(err)
	}
	frames := seen()
	said, named := map[string]uint64{}, 0
	open := ""
	for _, f := range frames {
		switch e := harness.EventOf(f); {
		case f.Kind == api.FrameKindAgui:
			var batch []json.RawMessage
			if err := json.Unmarshal(f.Data, &batch); err != nil {
				t.Fatal(err)
			}
			said[open] += uint64(len(batch))
		case e.Type == "run.started":
			open = placeOf(t, e).RunID
		case e.Type == "run.message-recorded", e.Type == "run.finished":
			at := placeOf(t, e)
			if k := max(at.K, at.LastK); said[at.RunID] < k {
				t.Errorf("%s came before k %d of its run: saw %s", e.Type, said[at.RunID]+1, harness.Summary(frames))
			}
			named++
		}
	}
	if named < 4 {
		t.Errorf("%d events name what was said before them: %s", named, harness.Summary(frames))
	}
}

// place is what an event says of the output before it.
type place struct {
	RunID string `json:"runId"`
	K     uint64 `json:"k"`
	LastK uint64 `json:"lastK"`
}

func placeOf(t *testing.T, e api.Event) (p place) {
	t.Helper()
	if err := json.Unmarshal(e.Data, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// pauseOutput has the server deliver no output to anybody until resume.
func pauseOutput(t *testing.T, h *harness.Holdfast) (resume func()) {
	t.Helper()
	nc, err := h.Connect(h.Context(), broker.UserInstaller)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return brokertest.Pause(t, js, events.StreamOutput)
}

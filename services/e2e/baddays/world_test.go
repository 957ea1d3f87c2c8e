package baddays_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/internal/broker"
)

func TestMain(m *testing.M) { harness.Main(m) }

// as connects to the program's NATS as one of its users, until the test ends.
func as(t *testing.T, h *harness.Holdfast, u broker.User) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := h.Connect(harness.Context(t), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return nc, js
}

// freely makes a runtime whose agent needs to ask nobody.
func freely(h *harness.Holdfast) {
	h.Policy(api.PolicySpec{Name: "free", Default: api.PolicyEffectAllow})
	h.Runtime("free", func(r *api.RuntimeSpec) { r.Policy = "free" })
}

// runs wants so many runs to have ended well.
func runs(n int) func([]harness.Fact) bool {
	return func(facts []harness.Fact) bool { return len(harness.Of[session.RunFinished](facts)) >= n }
}

// limitLog gives EVENTS a max_bytes in which what it holds now takes a share; 0 takes
// the limit away.
func limitLog(t *testing.T, js jetstream.JetStream, share float64) {
	t.Helper()
	ctx := harness.Context(t)
	stream, err := js.Stream(ctx, events.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	cfg := stream.CachedInfo().Config
	cfg.MaxBytes = -1
	if share > 0 {
		cfg.MaxBytes = int64(float64(stream.CachedInfo().State.Bytes) / share)
	}
	if _, err := js.UpdateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
}

// part is what readiness says of one part now.
func part(t *testing.T, h *harness.Holdfast, name string) api.Part {
	t.Helper()
	r := readiness(t, h)
	for _, p := range r.Parts {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("readiness doesn't name %s: %+v", name, r)
	return api.Part{}
}

func readiness(t *testing.T, h *harness.Holdfast) api.Readiness {
	t.Helper()
	var r api.Readiness
	if err := json.Unmarshal(get(t, h, "/readyz", ""), &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// get reads a path of the program's own, as one of its people.
func get(t *testing.T, h *harness.Holdfast, path, as string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if as != "" {
		req.Header.Set("Authorization", "Bearer "+h.Token(as))
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

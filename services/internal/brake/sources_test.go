package brake_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/brake"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
)

// A deciding service's own NATS user may measure, and sees a limit that somebody sets.
func TestJetStream(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	source := brake.JetStream(s.JS(broker.UserPolicy))
	measure := func() map[string]brake.Usage {
		found, err := source(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		byName := map[string]brake.Usage{}
		for _, u := range found {
			byName[u.What] = u
		}
		return byName
	}
	if got := measure(); got["stream"].Used == 0 || got["stream"].Share() != 0 || got["account"].Used == 0 {
		t.Errorf("without limits: %+v", got)
	}
	js := s.JS(broker.UserInstaller)
	if _, err := s.JS(broker.UserSession).Publish(t.Context(), "blob.t1.s.s-1.hash.0", []byte("contents"), jetstream.WithExpectLastSequencePerSubject(0)); err != nil {
		t.Fatal(err)
	}
	for name, what := range map[string]string{events.StreamEvents: "stream", events.StreamBlobs: "blobs"} {
		stream, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		limited := stream.CachedInfo().Config
		limited.MaxBytes, limited.Discard = int64(2*stream.CachedInfo().State.Bytes), jetstream.DiscardNew
		if _, err := js.UpdateStream(t.Context(), limited); err != nil {
			t.Fatal(err)
		}
		if got := measure()[what]; got.Share() != 0.5 {
			t.Errorf("%s, half full: %+v", name, got)
		}
	}
}

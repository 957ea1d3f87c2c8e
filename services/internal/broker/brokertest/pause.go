package brokertest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Pause has the server deliver nothing of a stream to those who read it now, as when its
// leader is lost: their client library doesn't notice. resume, which may be called
// again, lets them have what came meanwhile.
func Pause(t testing.TB, js jetstream.JetStream, stream string) (resume func()) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	s, err := js.Stream(ctx, stream)
	if err != nil {
		t.Fatal(err)
	}
	var readers []string
	names := s.ConsumerNames(ctx)
	for name := range names.Name() {
		if _, err := js.PauseConsumer(ctx, stream, name, time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		readers = append(readers, name)
	}
	if err := names.Err(); err != nil || len(readers) == 0 {
		t.Fatalf("%d readers of %s: %v", len(readers), stream, err)
	}
	return sync.OnceFunc(func() {
		for _, reader := range readers {
			if _, err := js.ResumeConsumer(ctx, stream, reader); err != nil {
				t.Error(err)
			}
		}
	})
}

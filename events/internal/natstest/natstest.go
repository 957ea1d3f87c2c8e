// Package natstest starts real nats-servers with JetStream inside a test: one, or
// three in a cluster, and a proxy that loses what it is told to lose.
package natstest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

// readyWithin bounds every wait for a server, a cluster or a stream.
const readyWithin = 20 * time.Second

// Genesis is what Streams writes first.
var Genesis = eventlog.Genesis{LogID: "log-of-the-test", Epoch: "e1"}

// Server starts one server on a port of loopback with file storage, until the
// test ends.
func Server(t testing.TB) *server.Server {
	t.Helper()
	return start(t, &server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
}

func start(t testing.TB, opts *server.Options) *server.Server {
	t.Helper()
	srv, err := server.NewServer(opts)
	if err != nil {
		t.Fatalf("nats-server: %v", err)
	}
	srv.Start()
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	if !srv.ReadyForConnections(readyWithin) {
		t.Fatalf("nats-server not ready within %v", readyWithin)
	}
	return srv
}

// Connect connects to a URL until the test ends; further options may follow.
func Connect(t testing.TB, url string, opts ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	opts = append([]nats.Option{
		nats.MaxReconnects(-1), nats.ReconnectWait(20 * time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}, opts...)
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatalf("connect to %s: %v", url, err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("jetstream: %v", err)
	}
	return nc, js
}

// Streams makes EVENTS, with its genesis, BLOBS and OUTPUT, as the installer does.
func Streams(t testing.TB, js jetstream.JetStream, replicas int) {
	t.Helper()
	Events(t, js, replicas, Genesis)
	Create(t, js, jetstream.StreamConfig{
		Name: events.StreamOutput, Subjects: []string{events.SubjectsOutput}, Replicas: replicas, MaxAge: time.Hour,
	})
	Create(t, js, jetstream.StreamConfig{
		Name: events.StreamBlobs, Subjects: []string{events.SubjectsBlobs}, Replicas: replicas,
		MaxMsgsPerSubject: 1, Discard: jetstream.DiscardNew, DiscardNewPerSubject: true, DenyDelete: true, DenyPurge: true,
	})
}

// Create makes a stream. The server still removes the files of a stream of the same
// name that was deleted a moment ago, and can't make a new one beside that.
func Create(t testing.TB, js jetstream.JetStream, cfg jetstream.StreamConfig) {
	t.Helper()
	Eventually(t, "stream "+cfg.Name+" is made", func() bool {
		_, err := js.CreateStream(t.Context(), cfg)
		if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.ErrorCode == streamStoreFailed {
			return false
		}
		if err != nil {
			t.Fatalf("create %s: %v", cfg.Name, err)
		}
		return true
	})
}

// streamStoreFailed is the server's "error creating store for stream".
const streamStoreFailed = 10049

// Events makes the stream EVENTS with a genesis.
func Events(t testing.TB, js jetstream.JetStream, replicas int, genesis eventlog.Genesis) {
	t.Helper()
	Create(t, js, jetstream.StreamConfig{
		Name: events.StreamEvents, Subjects: []string{events.SubjectsEvents}, Replicas: replicas,
		DenyDelete: true, DenyPurge: true,
	})
	body := fmt.Sprintf(`{"logId":%q,"epoch":%q}`, genesis.LogID, genesis.Epoch)
	if _, err := js.Publish(t.Context(), events.SubjectGenesis, []byte(body)); err != nil {
		t.Fatalf("publish genesis: %v", err)
	}
}

// Eventually polls cond until it holds, and fails the test where it doesn't
// within 20 s.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(readyWithin)
	defer deadline.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %v: %s", readyWithin, what)
		}
	}
}

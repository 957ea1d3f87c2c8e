package natsblob_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/blob/blobtest"
	"github.com/holdfast-io/holdfast/events/blob/natsblob"
	"github.com/holdfast-io/holdfast/events/internal/natstest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// The server leaves these behind for a moment after it was shut down.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).flushLoop"),
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*Server).startGoRoutine.func1"),
	)
}

func open(t *testing.T, js jetstream.JetStream, nc *nats.Conn, place natsblob.Place) *natsblob.Store {
	t.Helper()
	s, err := natsblob.New(js, nc, place)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func harness(t *testing.T, url string, place natsblob.Place) blobtest.Harness {
	t.Helper()
	ncA, jsA := natstest.Connect(t, url)
	ncB, jsB := natstest.Connect(t, url)
	a, b := open(t, jsA, ncA, place), open(t, jsB, ncB, place)
	return blobtest.Harness{
		Open: func(*testing.T) (blob.Store, blob.Store) { return a, b },
		Damage: func(t *testing.T, owner blob.Owner, contents []byte) {
			t.Helper()
			for i, last := 0, (len(contents)-1)>>19; i <= last; i++ {
				piece := append([]byte{}, contents[i<<19:min((i+1)<<19, len(contents))]...)
				if i == last {
					piece[len(piece)-1]++
				}
				if _, err := jsA.Publish(t.Context(), natsblob.SubjectOf(place, owner, blob.RefOf(contents), i), piece); err != nil {
					t.Fatal(err)
				}
			}
		},
	}
}

func TestSuite(t *testing.T) {
	srv := natstest.Server(t)
	_, js := natstest.Connect(t, srv.ClientURL())
	natstest.Streams(t, js, 1)
	for _, place := range []natsblob.Place{natsblob.Beside, natsblob.Output} {
		t.Run(place.Stream, func(t *testing.T) { blobtest.Run(t, harness(t, srv.ClientURL(), place)) })
	}
}

func TestSuiteOnCluster(t *testing.T) {
	c := natstest.StartCluster(t)
	_, js := natstest.Connect(t, c.URL())
	natstest.Streams(t, js, 3)
	blobtest.Run(t, harness(t, c.URL(), natsblob.Beside))
}

// What is kept beside the log can't be changed by anybody who may write there: not by
// a message without an expectation, and not by a rollup.
func TestWrittenOnce(t *testing.T) {
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv.ClientURL())
	natstest.Streams(t, js, 1)
	s := open(t, js, nc, natsblob.Beside)
	const owner = "t1.s.s-1"
	contents := blobtest.Contents(blob.Over + 1)
	ref, err := s.Put(t.Context(), owner, contents)
	if err != nil {
		t.Fatal(err)
	}
	forged := nats.NewMsg(natsblob.SubjectOf(natsblob.Beside, owner, ref, 0))
	forged.Data = []byte("forged")
	refused := new(*jetstream.APIError)
	if _, err := js.PublishMsg(t.Context(), forged); !errors.As(err, refused) {
		t.Errorf("overwritten: %v", err)
	}
	forged.Header.Set("Nats-Rollup", "all")
	if _, err := js.PublishMsg(t.Context(), forged); !errors.As(err, refused) {
		t.Errorf("rolled up: %v", err)
	}
	if got, err := s.Get(t.Context(), owner, ref); err != nil || string(got) != string(contents) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Nobody there: it is unavailable, not lost.
func TestUnavailable(t *testing.T) {
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv.ClientURL())
	s := open(t, js, nc, natsblob.Place{Stream: "BLOBS", Prefix: "blob", AttemptTimeout: 20 * time.Millisecond})
	unavailable := new(*blob.UnavailableError)
	if _, err := s.Get(t.Context(), "t1.s.s-1", blob.RefOf([]byte("x"))); !errors.As(err, unavailable) {
		t.Errorf("not installed: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Put(ctx, "t1.s.s-1", []byte("x")); !errors.As(err, unavailable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stored where nothing is installed: %v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	srv := natstest.Server(t)
	nc, js := natstest.Connect(t, srv.ClientURL())
	for name, build := range map[string]func() (*natsblob.Store, error){
		"no JetStream":  func() (*natsblob.Store, error) { return natsblob.New(nil, nc, natsblob.Beside) },
		"no connection": func() (*natsblob.Store, error) { return natsblob.New(js, nil, natsblob.Beside) },
		"no place":      func() (*natsblob.Store, error) { return natsblob.New(js, nc, natsblob.Place{}) },
		"negative timeout": func() (*natsblob.Store, error) {
			return natsblob.New(js, nc, natsblob.Place{Stream: "B", Prefix: "b", AttemptTimeout: -1})
		},
	} {
		if s, err := build(); err == nil {
			t.Errorf("%s: made %+v", name, s)
		}
	}
}

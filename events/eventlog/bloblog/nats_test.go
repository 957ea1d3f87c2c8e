package bloblog_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/blob/natsblob"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/bloblog"
	"github.com/holdfast-io/holdfast/events/eventlog/eventlogtest"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/internal/natstest"
	"github.com/holdfast-io/holdfast/events/session"
)

// onNATS opens the log as a service does, on a connection of its own.
func onNATS(t *testing.T, url string) (*bloblog.Log, *natsblob.Store) {
	t.Helper()
	nc, js := natstest.Connect(t, url)
	log, err := natslog.New(js, nc, natslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := natsblob.New(js, nc, natsblob.Beside)
	if err != nil {
		t.Fatal(err)
	}
	return bloblog.New(log, blobs), blobs
}

// The same on JetStream; and what a process left that ended between the blob and the
// append is in nobody's way.
func TestOnNATS(t *testing.T) {
	srv := natstest.Server(t)
	_, js := natstest.Connect(t, srv.ClientURL())
	natstest.Streams(t, js, 1)
	a, blobs := onNATS(t, srv.ClientURL())
	b, _ := onNATS(t, srv.ClientURL())
	t.Run("suite", func(t *testing.T) {
		eventlogtest.Run(t, eventlogtest.Harness{
			Open: func(*testing.T) (eventlog.Log, eventlog.Log) { return a, b },
			Plant: func(t *testing.T, subject string, raw []byte) uint64 {
				t.Helper()
				ack, err := js.Publish(t.Context(), subject, raw)
				if err != nil {
					t.Fatal(err)
				}
				return ack.Sequence
			},
			Genesis: natstest.Genesis,
			MaxData: blob.MaxBytes,
			Checks:  5,
		})
	})
	t.Run("a crash before the append", func(t *testing.T) {
		env := envelope(record(10 << 20))
		left, err := blobs.Put(t.Context(), owner, bytes.Join([][]byte{[]byte("["), env.Events[0].Data, []byte("]")}, nil))
		if err != nil {
			t.Fatal(err)
		}
		seq, err := a.Append(t.Context(), subject, env)
		if err != nil {
			t.Fatal(err)
		}
		m, err := get(t.Context(), b, seq)
		if err != nil || *m.Envelope.Blob != left || !bytes.Equal(m.Envelope.Events[0].Data, env.Events[0].Data) {
			t.Errorf("%+v, %v; want what was left: %+v", m.Envelope.Blob, err, left)
		}
	})
}

// A store of blobs without room is a log without room, at once, for what needs a blob
// and for nothing else; with room the same command works.
func TestNoRoomForBlobs(t *testing.T) {
	srv := natstest.Server(t)
	_, js := natstest.Connect(t, srv.ClientURL())
	natstest.Streams(t, js, 1)
	l, _ := onNATS(t, srv.ClientURL())
	limit := func(bytes int64) {
		t.Helper()
		s, err := js.Stream(t.Context(), events.StreamBlobs)
		if err != nil {
			t.Fatal(err)
		}
		cfg := s.CachedInfo().Config
		cfg.MaxBytes = bytes
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	store := eventlog.NewStore(eventlog.Config[*session.State]{Log: l, New: session.New, Service: events.ServiceSession})
	limit(1 << 20)
	begun := time.Now()
	_, err := store.Execute(t.Context(), subject, command, send(said(3<<20)))
	full, ok := errors.AsType[*eventlog.NoRoomError](err)
	if !ok || full.Subject != subject {
		t.Fatalf("%v, want a NoRoomError", err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("it took %s to say so", took)
	}
	small := eventlog.Command{ID: "small", Actor: command.Actor}
	if _, err := store.Execute(t.Context(), subject, small, send(said(100))); err != nil {
		t.Errorf("what needs no blob: %v", err)
	}
	limit(-1)
	if res, err := store.Execute(t.Context(), subject, command, send(said(3<<20))); err != nil || res.Repeated {
		t.Errorf("with room: %+v, %v", res, err)
	}
}

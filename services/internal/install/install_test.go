package install_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/install"
)

// empty starts a server on which nothing is installed.
func empty(t *testing.T) jetstream.JetStream {
	t.Helper()
	b, err := broker.Start(broker.Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	nc, err := b.Connect(t.Context(), broker.UserInstaller)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestRunAgainChangesNothing(t *testing.T) {
	t.Parallel()
	js := empty(t)
	first, err := install.Run(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	again, err := install.Run(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	if first != again || first.LogID == "" || first.Epoch == "" {
		t.Errorf("first %+v, again %+v", first, again)
	}
	log, err := natslog.New(js, js.Conn(), natslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := log.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := (eventlog.Info{Genesis: first, FirstSeq: 1, LastSeq: 1}); info != want {
		t.Errorf("the log says %+v, want %+v", info, want)
	}
}

// What makes EVENTS a log can't be undone by whoever may publish to it, not even by
// the installer without changing the stream.
func TestEventsCannotBeEmptied(t *testing.T) {
	t.Parallel()
	js := empty(t)
	if _, err := install.Run(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), events.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Purge(t.Context()); err == nil {
		t.Error("purged")
	}
	if err := s.DeleteMsg(t.Context(), 1); err == nil {
		t.Error("deleted")
	}
}

func TestInstallersAtTheSameTime(t *testing.T) {
	t.Parallel()
	js := empty(t)
	var wg sync.WaitGroup
	got := make([]eventlog.Genesis, 8)
	errs := make([]error, len(got))
	for i := range got {
		wg.Go(func() { got[i], errs[i] = install.Run(t.Context(), js) })
	}
	wg.Wait()
	for i := range got {
		if errs[i] != nil || got[i] != got[0] {
			t.Errorf("%+v, %v; want %+v", got[i], errs[i], got[0])
		}
	}
}

func TestWhatIsMissingIsMade(t *testing.T) {
	t.Parallel()
	js := empty(t)
	first, err := install.Run(t.Context(), js)
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteConsumer(t.Context(), events.StreamEvents, "policy"); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteKeyValue(t.Context(), install.BucketParked); err != nil {
		t.Fatal(err)
	}
	again, err := install.Run(t.Context(), js)
	if err != nil || again != first {
		t.Fatalf("%+v, %v; want %+v", again, err, first)
	}
	if _, err := js.Consumer(t.Context(), events.StreamEvents, "policy"); err != nil {
		t.Error(err)
	}
	if _, err := js.KeyValue(t.Context(), install.BucketParked); err != nil {
		t.Error(err)
	}
}

func TestDifferentConfigurationIsReported(t *testing.T) {
	t.Parallel()
	js := empty(t)
	if _, err := install.Run(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	s, err := js.Stream(t.Context(), events.StreamEvents)
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.CachedInfo().Config
	cfg.MaxAge, cfg.AllowDirect = time.Hour, true
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteConsumer(t.Context(), events.StreamEvents, "runner"); err != nil {
		t.Fatal(err)
	}
	c, err := js.Consumer(t.Context(), events.StreamEvents, "session")
	if err != nil {
		t.Fatal(err)
	}
	consumer := c.CachedInfo().Config
	consumer.HeadersOnly = false
	if _, err := js.UpdateConsumer(t.Context(), events.StreamEvents, consumer); err != nil {
		t.Fatal(err)
	}

	_, err = install.Run(t.Context(), js)
	var different *install.DifferentError
	if !errors.As(err, &different) {
		t.Fatalf("%v, want a DifferentError", err)
	}
	want := []install.Difference{
		{What: "stream EVENTS", Setting: "max_age", Want: "0s", Have: "1h0m0s"},
		{What: "stream EVENTS", Setting: "allow_direct", Want: "false", Have: "true"},
		{What: "consumer session", Setting: "headers_only", Want: "true", Have: "false"},
	}
	if len(different.Differences) != len(want) {
		t.Fatalf("%v", err)
	}
	for i, d := range different.Differences {
		if d != want[i] {
			t.Errorf("%v, want %v", d, want[i])
		}
	}
	if _, err := js.Consumer(t.Context(), events.StreamEvents, "runner"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("something was made all the same: %v", err)
	}
}

func TestStreamWithoutGenesisIsRefused(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]struct {
		do   func(t *testing.T, js jetstream.JetStream, s jetstream.Stream)
		says string
	}{
		"another's messages": {
			func(t *testing.T, js jetstream.JetStream, _ jetstream.Stream) {
				t.Helper()
				publish(t, js, "{}")
			}, "its first message is on",
		},
		"a genesis that isn't one": {
			func(t *testing.T, js jetstream.JetStream, _ jetstream.Stream) {
				t.Helper()
				publish(t, js, `{"logId":"x"}`)
			}, "names no log or no epoch",
		},
		"a genesis that can't be read": {
			func(t *testing.T, js jetstream.JetStream, _ jetstream.Stream) {
				t.Helper()
				publish(t, js, `not json`)
			}, "can't be read",
		},
		"emptied": {
			func(t *testing.T, js jetstream.JetStream, s jetstream.Stream) {
				t.Helper()
				publish(t, js, `{"logId":"x","epoch":"y"}`)
				if err := s.Purge(t.Context()); err != nil {
					t.Fatal(err)
				}
			}, "it was emptied at sequence 1",
		},
		"trimmed": {
			func(t *testing.T, js jetstream.JetStream, s jetstream.Stream) {
				t.Helper()
				publish(t, js, `{"logId":"x","epoch":"y"}`)
				publish(t, js, `{"logId":"x","epoch":"y"}`)
				if err := s.Purge(t.Context(), jetstream.WithPurgeSequence(2)); err != nil {
					t.Fatal(err)
				}
			}, "it begins at sequence 2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			js := empty(t)
			// A stream that can be purged and takes what the installer may publish.
			s, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
				Name: events.StreamEvents, Subjects: []string{events.SubjectsEvents},
				SubjectTransform: transform(name),
			})
			if err != nil {
				t.Fatal(err)
			}
			prepare.do(t, js, s)
			_, err = install.Run(t.Context(), js)
			var genesis *install.GenesisError
			if !errors.As(err, &genesis) || !strings.Contains(err.Error(), prepare.says) {
				t.Errorf("%v, want a GenesisError that says %q", err, prepare.says)
			}
			if _, err := js.Stream(t.Context(), events.StreamOutput); !errors.Is(err, jetstream.ErrStreamNotFound) {
				t.Errorf("something was made all the same: %v", err)
			}
		})
	}
}

// transform has the installer's genesis stored under another subject, since it may
// publish no other.
func transform(name string) *jetstream.SubjectTransformConfig {
	if name != "another's messages" {
		return nil
	}
	return &jetstream.SubjectTransformConfig{Source: events.SubjectGenesis, Destination: "ev.other"}
}

func publish(t *testing.T, js jetstream.JetStream, body string) {
	t.Helper()
	if _, err := js.Publish(t.Context(), events.SubjectGenesis, []byte(body)); err != nil {
		t.Fatal(err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	js := empty(t)
	for _, o := range []install.Options{{Replicas: -1}, {Replicas: 6}, {OutputMaxAge: -1}, {OutputMaxBytes: -1}} {
		if _, err := install.RunWith(t.Context(), js, o); err == nil {
			t.Errorf("%+v: installed", o)
		}
	}
}

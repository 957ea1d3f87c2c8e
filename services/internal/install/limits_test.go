package install_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/install"
)

// logLimits are those of the streams that keep for ever.
func logLimits(t *testing.T, js jetstream.JetStream) (found [2]int64) {
	t.Helper()
	for i, name := range []string{events.StreamEvents, events.StreamBlobs} {
		found[i] = streamConfig(t, js, name).MaxBytes
	}
	return found
}

func streamConfig(t *testing.T, js jetstream.JetStream, name string) jetstream.StreamConfig {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config
}

// A limit of the log is what its streams are made with; those that are there are given
// more, and never less. What is done, and what isn't, is said.
func TestLogMaxBytes(t *testing.T) {
	t.Parallel()
	js := empty(t)
	const limit = 64 << 20
	for _, step := range []struct {
		asked, want int64
		says        string
	}{
		{limit, limit, ""},
		{limit, limit, ""},
		{2 * limit, 2 * limit, "limit raised"},
		{2 * limit, 2 * limit, ""},
		{limit, 2 * limit, "limit kept"},
		{0, 2 * limit, ""},
	} {
		var said bytes.Buffer
		if _, err := install.RunWith(t.Context(), js, install.Options{LogMaxBytes: step.asked, Logger: slog.New(slog.NewTextHandler(&said, nil))}); err != nil {
			t.Fatal(err)
		}
		if got := logLimits(t, js); got != [2]int64{step.want, step.want} {
			t.Errorf("after a run with %d the limits are %d, want %d", step.asked, got, step.want)
		}
		want := 0
		if step.says != "" {
			want = 2 // one line a stream
		}
		if got := strings.Count(said.String(), "\n"); got != want || strings.Count(said.String(), step.says) < want {
			t.Errorf("a run with %d should say %q of both streams, and said:\n%s", step.asked, step.says, said.String())
		}
	}
	if _, err := install.RunWith(t.Context(), js, install.Options{LogMaxBytes: -1}); err == nil {
		t.Error("a negative limit was taken")
	}
}

// A stream that was made without a limit isn't given one: that would be less.
func TestWhatHasNoLimitKeepsNone(t *testing.T) {
	t.Parallel()
	js := empty(t)
	for _, asked := range []int64{0, 64 << 20} {
		if _, err := install.RunWith(t.Context(), js, install.Options{LogMaxBytes: asked}); err != nil {
			t.Fatal(err)
		}
		if got := logLimits(t, js); got != [2]int64{-1, -1} {
			t.Errorf("after a run with %d the limits are %d", asked, got)
		}
	}
}

// What an operator chose, and what is in the stream, stays when the limit is raised.
func TestRaisingALimitChangesNothingElse(t *testing.T) {
	t.Parallel()
	js := empty(t)
	first, err := install.RunWith(t.Context(), js, install.Options{LogMaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	before := streamConfig(t, js, events.StreamEvents)
	before.Description, before.Compression = "ours", jetstream.S2Compression
	if _, err := js.UpdateStream(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	again, err := install.RunWith(t.Context(), js, install.Options{LogMaxBytes: 65 << 20})
	if err != nil || again != first {
		t.Fatalf("%+v, %v; want %+v", again, err, first)
	}
	after := streamConfig(t, js, events.StreamEvents)
	if after.MaxBytes != 65<<20 || after.Description != before.Description || after.Compression != before.Compression || !after.DenyPurge || !after.DenyDelete {
		t.Errorf("it was %+v\nand is %+v", before, after)
	}
}

// What is said to be reserved is what the server reserves.
func TestReserved(t *testing.T) {
	t.Parallel()
	js := empty(t)
	opts := install.Options{LogMaxBytes: 64 << 20, OutputMaxBytes: 32 << 20}
	want, err := opts.Reserved()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install.RunWith(t.Context(), js, opts); err != nil {
		t.Fatal(err)
	}
	info, err := js.AccountInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := int64(info.ReservedStore); got != want {
		t.Errorf("%d bytes are reserved, and %d were said to be", got, want)
	}
	if _, err := (install.Options{LogMaxBytes: -1}).Reserved(); err == nil {
		t.Error("a negative limit was taken")
	}
}

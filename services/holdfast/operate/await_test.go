package operate

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/install"
)

// A service waits for the installation that comes after it, and says so when none does.
func TestAwaitInstall(t *testing.T) {
	t.Parallel()
	b, err := broker.Start(broker.Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	session, err := b.Connect(t.Context(), broker.UserSession)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	err = awaitInstall(t.Context(), session, time.Millisecond, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "holdfast install") {
		t.Fatalf("nothing is installed: %v", err)
	}
	heard := make(chan string, 1)
	done := make(chan error, 1)
	go func() {
		done <- awaitInstall(t.Context(), session, time.Minute, slog.New(slog.NewTextHandler(lines(heard), nil)))
	}()
	if line := <-heard; !strings.Contains(line, "waiting") {
		t.Errorf("it says %q", line)
	}
	installer, err := b.Connect(t.Context(), broker.UserInstaller)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(installer.Close)
	js, err := jetstream.New(installer)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install.Run(t.Context(), js); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// lines hands on what is written.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

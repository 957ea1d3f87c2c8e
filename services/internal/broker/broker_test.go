package broker_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/install"
)

var quiet = slog.New(slog.DiscardHandler)

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]broker.Config{
		"no folder": {Logger: quiet},
		"no logger": {Dir: t.TempDir()},
		"bad port":  {Dir: t.TempDir(), Logger: quiet, Port: 70000},
	} {
		if b, err := broker.Start(cfg); err == nil {
			b.Stop()
			t.Errorf("%s: started", name)
		}
	}
	for name, c := range map[string]broker.Client{
		"no url":    {User: broker.UserSession, Logger: quiet},
		"no user":   {URL: "nats://127.0.0.1:1", Logger: quiet},
		"no logger": {URL: "nats://127.0.0.1:1", User: broker.UserSession},
	} {
		if nc, err := broker.Connect(t.Context(), c); err == nil {
			nc.Close()
			t.Errorf("%s: connected", name)
		}
	}
}

// What was acknowledged is there after a restart, under the same identity, and
// nothing of the server is left running.
func TestRestart(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	logIDs := make([]string, 0, 2)
	for range 2 {
		b, err := broker.Start(broker.Config{Dir: dir, SyncAlways: true, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if b.URL() != "" {
			t.Errorf("it listens on %s without a port", b.URL())
		}
		nc, err := b.Connect(t.Context(), broker.UserInstaller)
		if err != nil {
			t.Fatal(err)
		}
		js, err := jetstream.New(nc)
		if err != nil {
			t.Fatal(err)
		}
		g, err := install.Run(t.Context(), js)
		if err != nil {
			t.Fatal(err)
		}
		logIDs = append(logIDs, g.LogID+" "+g.Epoch)
		nc.Close()
		b.Stop()
		b.Stop()
	}
	if logIDs[0] != logIDs[1] {
		t.Errorf("identity changed: %q", logIDs)
	}
}

func TestConnectFromAnotherProcess(t *testing.T) {
	t.Parallel()
	s := brokertest.StartWith(t, broker.Config{Port: -1}, install.Options{})
	s.ExpectDenials()
	denied := make(chan error, 1)
	nc, err := broker.Connect(t.Context(), broker.Client{
		URL: s.URL(), User: broker.UserGateway, Password: s.Password(broker.UserGateway), Logger: quiet,
		OnDenied: func(err error) { denied <- err },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := js.Publish(ctx, "ev.default.s.s-1", []byte("{}")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("publish: %v, want a timeout", err)
	}
	select {
	case err := <-denied:
		if !strings.Contains(err.Error(), "ev.default.s.s-1") {
			t.Errorf("denial doesn't name the subject: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the denial was not surfaced")
	}

	_, err = broker.Connect(t.Context(), broker.Client{URL: s.URL(), User: broker.UserGateway, Password: "wrong", Logger: quiet})
	if !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("wrong password: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = broker.Connect(ctx, broker.Client{URL: "nats://127.0.0.1:1", User: broker.UserGateway, Logger: quiet})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, nats.ErrNoServers) {
		t.Errorf("nobody there: %v", err)
	}
}

// The readers' real way of reading, under their real rights.
func TestReadersTail(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	if _, err := s.JS(broker.UserSession).Publish(t.Context(), "ev.default.s.s-1", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	for _, user := range []broker.User{broker.UserGateway, broker.UserProjector} {
		consumer, err := s.JS(user).OrderedConsumer(t.Context(), events.StreamEvents, jetstream.OrderedConsumerConfig{})
		if err != nil {
			t.Fatalf("%s: %v", user, err)
		}
		for _, want := range []string{events.SubjectGenesis, "ev.default.s.s-1"} {
			m, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
			if err != nil {
				t.Fatalf("%s: %v", user, err)
			}
			if m.Subject() != want {
				t.Errorf("%s read %s, want %s", user, m.Subject(), want)
			}
		}
	}
}

// The configuration for a NATS of its own says the same as the embedded server's.
func TestConfSaysTheSame(t *testing.T) {
	for _, u := range broker.Users() {
		t.Setenv(broker.PasswordVariable(u), "secret-"+string(u))
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(broker.Conf()), 0o600); err != nil {
		t.Fatal(err)
	}
	opts, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatalf("%v in\n%s", err, broker.Conf())
	}
	if len(opts.Users) != len(broker.Users()) {
		t.Fatalf("%d users", len(opts.Users))
	}
	for i, u := range broker.Users() {
		got := opts.Users[i]
		if got.Username != string(u) || got.Password != "secret-"+string(u) {
			t.Errorf("user %q with password %q", got.Username, got.Password)
		}
		want := broker.Permissions(u)
		if len(want.Publish.Deny) == 0 {
			want.Publish.Deny = got.Permissions.Publish.Deny // nil or empty
		}
		if len(want.Subscribe.Deny) == 0 {
			want.Subscribe.Deny = got.Permissions.Subscribe.Deny
		}
		if !reflect.DeepEqual(got.Permissions, want) {
			t.Errorf("%s: %+v, want %+v", u, got.Permissions, want)
		}
	}
}

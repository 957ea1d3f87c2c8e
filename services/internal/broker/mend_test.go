package broker

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// A disk that fills up again while streams are being opened leaves them closed; they
// are opened with the next room all the same.
func TestMendsWhatItCouldNotOpen(t *testing.T) {
	t.Parallel()
	b, err := Start(Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Stop)
	nc, err := b.Connect(t.Context(), UserInstaller)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}}); err != nil {
		t.Fatal(err)
	}
	b.mender.end()
	m, dir := &mender{broker: b}, b.cfg.Dir
	b.cfg.Dir = filepath.Join(dir, "jetstream-goes-here")
	if err := os.MkdirAll(b.cfg.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.cfg.Dir, "jetstream"), nil, 0o600); err != nil { // where a directory belongs
		t.Fatal(err)
	}
	m.mend()
	if !m.closed {
		t.Fatal("opened what can't be")
	}
	b.cfg.Dir = dir
	m.look()
	if s, err := js.Stream(t.Context(), "S"); err != nil || m.closed {
		t.Errorf("its stream is %v, %v", s, err)
	}
}

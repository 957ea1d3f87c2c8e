package baddays_test

import (
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/migrations/pgserver"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

// Postgres takes seconds for each answer. Commands and agents don't notice, reads are
// refused in bounded time, and when it is well again the views catch up.
func TestPostgresSlow(t *testing.T) {
	t.Parallel()
	relay, on := behindRelay(t)
	h := harness.Start(t, on)
	freely(h)
	before := h.CreateOf("alice", api.CreateSession{Runtime: "free"})

	relay.slow(20 * time.Second)
	begun := time.Now()
	h.Send("alice", before.ID, "echo one")
	during := h.CreateOf("alice", api.CreateSession{Runtime: "free", Message: "echo two"})
	for _, id := range []string{before.ID, during.ID} {
		h.AwaitFact(id, "its run is over", runs(1))
	}
	if _, err := h.Client("alice").TerminateSessionWithResponse(h.Context(), before.ID, nil, api.TerminateSession{}); err != nil {
		t.Errorf("terminate: %v", err)
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("two runs waited for Postgres: %s", took)
	}
	begun = time.Now()
	_, err := h.Client("alice").ListSessionsWithResponse(h.Context(), nil)
	harness.Refused(t, err, api.CodeHistoryUnavailable)
	if took := time.Since(begun); took > 15*time.Second {
		t.Errorf("a list took %s to be refused", took)
	}

	relay.slow(0)
	harness.Eventually(t, "the views have caught up", func() bool {
		r, err := h.Client("alice").ListRunsWithResponse(h.Context(), during.ID, nil)
		return err == nil && len(r.JSON200.Items) == 1 && r.JSON200.Items[0].State == api.RunStateFinished
	})
}

// The disk of the views is full. The projector waits, commands go on, and once there is
// room the views have everything.
func TestPostgresDiskFull(t *testing.T) {
	t.Parallel()
	disk, dsn := smallTablespace(t)
	h := harness.Start(t, func(c *dev.Config) { c.PostgresURL = dsn })
	freely(h)
	before := h.CreateOf("alice", api.CreateSession{Runtime: "free"})

	disk.fill(0)
	padding := []byte(`{"padding":"` + strings.Repeat("x", 30_000) + `"}`)
	var during []*api.Session
	for range 20 { // more than fits into pages that are there already
		s := h.CreateOf("alice", api.CreateSession{Runtime: "free", Config: padding})
		if _, err := h.Client("alice").TerminateSessionWithResponse(h.Context(), s.ID, nil, api.TerminateSession{}); err != nil {
			t.Fatalf("terminate: %v", err)
		}
		during = append(during, s)
	}
	h.Send("alice", before.ID, "echo one")
	h.AwaitFact(before.ID, "its run is over", runs(1))
	harness.Eventually(t, "the views are said to be behind, or not to be written", func() bool {
		r, err := h.Client("alice").ListRunsWithResponse(h.Context(), before.ID, &api.ListRunsParams{MinSeq: &h.Session(before.ID).Seq})
		return err != nil || len(r.JSON200.Items) == 0
	})

	disk.empty()
	for _, s := range append(during, before) {
		harness.Eventually(t, "the views hold "+s.ID, func() bool {
			r, err := h.Client("admin").ListTimelineWithResponse(h.Context(), s.ID, &api.ListTimelineParams{MinSeq: &h.Session(s.ID).Seq})
			return err == nil && len(r.JSON200.Items) > 0
		})
	}
}

// smallTablespace is a database whose tables lie on a small disk, on a server whose own
// files don't: what is full is the room for data, as it mostly is.
func smallTablespace(t *testing.T) (*small, string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-pg-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	disk, mount := smallDisk(t, "space", "64m")
	mount(&dev.Config{DataDir: dir})
	server, err := pgserver.Start(harness.Context(t), pgserver.Config{
		Dir: filepath.Join(dir, "postgres"), Logger: slog.New(slog.DiscardHandler), Settings: map[string]string{"fsync": "off"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	// The server's own user has to own the place.
	info, err := os.Stat(filepath.Join(dir, "postgres", "data"))
	if err != nil {
		t.Fatal(err)
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatal("no owner is known")
	}
	place := filepath.Join(disk.dir, "tables")
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(place, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
	ctx := harness.Context(t)
	conn, err := pgx.Connect(ctx, server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	for _, sql := range []string{"CREATE TABLESPACE small LOCATION '" + place + "'", "CREATE DATABASE small TABLESPACE small"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	return disk, databaseOf(t, server.DSN(), "small")
}

// databaseOf is a DSN with another database.
func databaseOf(t *testing.T, dsn, name string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

package outage_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

// onAddr serves on an address that the test knows before the program is ready.
func onAddr(t *testing.T) (addr string, _ harness.Option) {
	t.Helper()
	// Not at 127.0.0.1, whose ports those who call take as well while nobody listens.
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	addr = l.Addr().String()
	return addr, func(c *dev.Config) { c.Addr = addr }
}

// last is the log's last sequence and epoch.
func last(h *harness.Holdfast) (info eventlog.Info) {
	h.Offline(func(ctx context.Context, log eventlog.Log, _ *pgxpool.Pool) (err error) {
		info, err = log.Info(ctx)
		return err
	})
	return info
}

// refusesToStart starts the program, wants it not to become ready and to say why,
// and stops it again.
func refusesToStart(t *testing.T, h *harness.Holdfast, addr, why string) {
	t.Helper()
	c, err := apiclient.New(apiclient.Config{URL: "http://" + addr})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	started := make(chan error, 1)
	go func() { started <- h.BeginIn(ctx) }()
	var parts []api.Part
	harness.Eventually(t, "a part says why it isn't ready: "+why, func() bool {
		select {
		case err := <-started:
			t.Fatalf("it ended, and was to say why it isn't ready: %v", err)
		default:
		}
		r, err := c.ReadyzWithResponse(harness.Context(t))
		var said api.Readiness
		if err != nil || r.StatusCode() != http.StatusServiceUnavailable || json.Unmarshal(r.Body, &said) != nil {
			return false
		}
		for _, p := range said.Parts {
			if !p.Ready {
				parts = append(parts, p)
			}
			if !p.Ready && strings.Contains(p.Detail, why) {
				return true
			}
		}
		return false
	})
	// A sweep comes once a second: none may act in the time of several.
	quiet := time.Now().Add(3 * time.Second)
	harness.Eventually(t, "sweeps had their time", func() bool { return time.Now().After(quiet) })
	cancel()
	if err := <-started; err == nil {
		t.Errorf("it started, not ready: %+v", parts)
	}
}

// asleep makes a suspended session with a file, whose maximum age is soon reached.
func asleep(t *testing.T, h *harness.Holdfast) *api.Session {
	t.Helper()
	s := h.CreateOf("alice", api.CreateSession{Runtime: "free", Message: "echo kept > note", MaxDuration: "8s"})
	h.Await(s.ID, "its run is over", func(s *api.Session) bool { return s.Run == "" && s.N > 10 })
	if _, err := h.Client("alice").SuspendSessionWithResponse(h.Context(), s.ID, nil); err != nil {
		t.Fatal(err)
	}
	return h.AwaitPhase(s.ID, api.SessionPhaseSuspended)
}

// kept says whether a session's workspace is there.
func kept(h *harness.Holdfast, id string) bool {
	_, err := os.Stat(filepath.Join(h.DataDir, "local", "sessions", harness.Tenant, id, "workspace", "note"))
	return err == nil
}

// The log of before is put in place of the newer one: what the views hold of later
// is unknown to it. Nothing is swept, also what came due meanwhile, and with the
// right log everything goes on.
func TestLogOlderThanTheViews(t *testing.T) {
	t.Parallel()
	addr, on := onAddr(t)
	h := harness.Start(t, harness.SharedPostgres(t), on)
	freely(h)
	first := asleep(t, h)
	h.Stop()
	nats := filepath.Join(h.DataDir, "nats")
	older, newer := filepath.Join(t.TempDir(), "older"), filepath.Join(t.TempDir(), "newer")
	copyDir(t, nats, older)
	h.Begin()
	second := asleep(t, h)
	h.Stop()
	harness.Eventually(t, "both are too old", func() bool {
		return time.Now().After(second.Deadlines.Max) && time.Now().After(first.Deadlines.Max)
	})
	move(t, nats, newer)
	move(t, older, nats)
	before := last(h)

	refusesToStart(t, h, addr, "ahead of the log")
	if after := last(h); after.LastSeq != before.LastSeq {
		t.Errorf("the log went on from %d to %d", before.LastSeq, after.LastSeq)
	}
	for _, s := range []*api.Session{first, second} {
		if !kept(h, s.ID) {
			t.Errorf("the workspace of %s was swept", s.ID)
		}
	}

	if err := os.RemoveAll(nats); err != nil {
		t.Fatal(err)
	}
	move(t, newer, nats)
	h.Begin()
	for _, s := range []*api.Session{first, second} {
		if got := h.AwaitPhase(s.ID, api.SessionPhaseEnded); got.Outcome != api.SessionOutcomeExpired {
			t.Errorf("with its log %s ended as %s", s.ID, got.Outcome)
		}
	}
}

// The log is gone and a new one in its place: another epoch, in which the views and
// the sandboxes of the old one mean nothing and are left alone. A rebuild, which
// somebody has to ask for, makes the views the new log's.
func TestLogEmptied(t *testing.T) {
	t.Parallel()
	addr, on := onAddr(t)
	h := harness.Start(t, harness.SharedPostgres(t), on)
	freely(h)
	s := asleep(t, h)
	h.Stop()
	before := last(h)
	if err := os.RemoveAll(filepath.Join(h.DataDir, "nats")); err != nil {
		t.Fatal(err)
	}

	refusesToStart(t, h, addr, "another log")
	after := last(h)
	if after.Genesis.Epoch == before.Genesis.Epoch || after.LastSeq != 1 {
		t.Errorf("the new log is %+v, the old one was %+v", after, before)
	}
	if !kept(h, s.ID) {
		t.Error("what the old log knew was swept")
	}

	h.Offline(func(ctx context.Context, log eventlog.Log, pool *pgxpool.Pool) error {
		report, err := projections.Rebuild(ctx, projections.RebuildConfig{Log: log, Pool: pool})
		if err == nil && (report.Compared || !report.Swapped) {
			t.Errorf("the rebuild: %+v", report)
		}
		return err
	})
	h.Begin()
	freely(h)
	_, err := h.Client("alice").GetSessionWithResponse(h.Context(), s.ID, nil)
	harness.Refused(t, err, api.CodeNotFound)
	if now := h.CreateOf("alice", api.CreateSession{Runtime: "free"}); now.Phase != api.SessionPhaseReady {
		t.Errorf("a session of the new log is %s", now.Phase)
	}
	if !kept(h, s.ID) {
		t.Error("what the old log knew was swept")
	}
}

func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

// move moves a directory, from one file system to another where it must.
func move(t *testing.T, from, to string) {
	t.Helper()
	err := os.Rename(from, to)
	if errors.Is(err, syscall.EXDEV) {
		copyDir(t, from, to)
		err = os.RemoveAll(from)
	}
	if err != nil {
		t.Fatal(err)
	}
}

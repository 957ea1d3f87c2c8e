package outage_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/migrations/pgserver"
	"github.com/holdfast-io/holdfast/projections"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/holdfast/parts"
)

func TestMain(m *testing.M) { harness.Main(m) }

// database is a Postgres that a test stops and starts.
type database struct {
	t      *testing.T
	dir    string
	server *pgserver.Server
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	dir, err := os.MkdirTemp("", "hf-pg-")
	if err != nil {
		t.Fatal(err)
	}
	// Its user has to reach the socket here: elsewhere it has a new address each time.
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := &database{t: t, dir: dir}
	d.start()
	t.Cleanup(func() {
		d.stop()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *database) start() {
	d.t.Helper()
	server, err := pgserver.Start(harness.Context(d.t), pgserver.Config{
		Dir: filepath.Join(d.dir, "postgres"), Logger: slog.New(slog.DiscardHandler), Settings: map[string]string{"fsync": "off"},
	})
	if err != nil {
		d.t.Fatalf("start Postgres: %v", err)
	}
	d.server = server
}

func (d *database) stop() {
	d.t.Helper()
	if err := d.server.Stop(); err != nil {
		d.t.Errorf("stop Postgres: %v", err)
	}
}

// freely applies a runtime like shell whose policy allows all but what touches.
func freely(h *harness.Holdfast) {
	h.Policy(api.PolicySpec{Name: "free", Default: api.PolicyEffectAllow, Rules: []api.PolicyRule{
		{Name: "touching", When: `args.command.contains("touch")`, Then: api.PolicyEffectAsk},
	}})
	h.Runtime("free", func(r *api.RuntimeSpec) { r.Policy, r.WarmPool.Size = "free", 2 })
}

// over says whether a run has ended well.
func over(run string) func([]harness.Fact) bool {
	return func(facts []harness.Fact) bool {
		for _, f := range harness.Of[session.RunFinished](facts) {
			if f.RunID == run && f.Outcome == "success" {
				return true
			}
		}
		return false
	}
}

// While Postgres is stopped people create sessions, agents run and ask, answers
// count, sessions are suspended and ended; only history can't be read. Afterwards
// it holds all of that.
func TestPostgresStops(t *testing.T) {
	t.Parallel()
	pg := newDatabase(t)
	h := harness.Start(t, func(c *dev.Config) { c.PostgresURL = pg.server.DSN() })
	freely(h)
	before := h.CreateOf("alice", api.CreateSession{Runtime: "free", Message: "touch made\nls"})
	question := h.AwaitQuestion(before.ID)

	pg.stop()
	load := work(t, h)
	historyRefuses(t, h, before)

	h.Approve("bob", question)
	h.AwaitFact(before.ID, "the answer's run goes on", func(f []harness.Fact) bool { return len(harness.Of[session.RunFinished](f)) == 1 })
	h.Follow("alice", before.ID, harness.OnEvent("run.finished")) // streams begin and go on
	suspended, ended := h.CreateOf("alice", api.CreateSession{Runtime: "free"}), h.CreateOf("alice", api.CreateSession{Runtime: "free"})
	if _, err := h.Client("alice").SuspendSessionWithResponse(h.Context(), suspended.ID, nil); err != nil {
		t.Fatal(err)
	}
	h.AwaitPhase(suspended.ID, api.SessionPhaseSuspended)
	if _, err := h.Client("alice").TerminateSessionWithResponse(h.Context(), ended.ID, nil, api.TerminateSession{}); err != nil {
		t.Fatal(err)
	}
	h.AwaitPhase(ended.ID, api.SessionPhaseEnded)
	made := append(load(), before.ID, suspended.ID, ended.ID)

	pg.start()
	harness.Eventually(t, "it is ready again", func() bool { return readiness(t, h.URL) == http.StatusOK })
	for _, id := range made {
		held(t, h, id)
	}
	same(t, h, pg.server.DSN())
}

// readiness is the status of /readyz, or 0.
func readiness(t *testing.T, url string) int {
	t.Helper()
	c, err := apiclient.New(apiclient.Config{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.ReadyzWithResponse(harness.Context(t))
	if err != nil {
		return 0
	}
	return r.StatusCode()
}

// work has several people work at the same time until stop is called, each with at
// least three sessions, and gives the sessions.
func work(t *testing.T, h *harness.Holdfast) (stop func() []string) {
	t.Helper()
	const people, atLeast = 3, 3
	var (
		mu   sync.Mutex
		made []string
		g    errgroup.Group
	)
	stopped := make(chan struct{})
	alice := h.Client("alice")
	for range people {
		g.Go(func() error {
			for n := 0; ; n++ {
				select {
				case <-stopped:
					if n >= atLeast {
						return nil
					}
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
				r, err := alice.CreateSessionWithResponse(ctx, nil, api.CreateSession{Runtime: "free", Message: "echo hello > f; cat f"})
				if err == nil {
					_, err = alice.GetSessionWithResponse(ctx, r.JSON201.ID, nil)
				}
				cancel()
				if err != nil {
					return err
				}
				id := r.JSON201.ID
				facts := h.AwaitFact(id, "it was created", func(f []harness.Fact) bool { return len(harness.Of[session.MessageReceived](f)) == 1 })
				h.AwaitFact(id, "its run finishes", over(harness.Of[session.MessageReceived](facts)[0].RunID))
				mu.Lock()
				made = append(made, id)
				mu.Unlock()
			}
		})
	}
	return func() []string {
		close(stopped)
		if err := g.Wait(); err != nil {
			t.Errorf("work while Postgres is down: %v", err)
		}
		return made
	}
}

// historyRefuses wants exactly what needs Postgres to refuse, and to say so.
func historyRefuses(t *testing.T, h *harness.Holdfast, s *api.Session) {
	t.Helper()
	c, ctx := h.Client("admin"), h.Context()
	asOf := "1"
	for name, read := range map[string]func() error{
		"sessions":  func() error { _, err := c.ListSessionsWithResponse(ctx, nil); return err },
		"approvals": func() error { _, err := c.ListApprovalsWithResponse(ctx, nil); return err },
		"runs":      func() error { _, err := c.ListRunsWithResponse(ctx, s.ID, nil); return err },
		"messages":  func() error { _, err := c.ListMessagesWithResponse(ctx, s.ID, nil); return err },
		"timeline":  func() error { _, err := c.ListTimelineWithResponse(ctx, s.ID, nil); return err },
		"audit":     func() error { _, err := c.ListAuditWithResponse(ctx, nil); return err },
		"as of": func() error {
			_, err := c.GetSessionWithResponse(ctx, s.ID, &api.GetSessionParams{AsOf: &asOf})
			return err
		},
	} {
		refused := harness.Refused(t, read(), api.CodeHistoryUnavailable)
		if refused.Detail == "" {
			t.Errorf("%s: no word on what works", name)
		}
	}
	harness.Eventually(t, "readyz says so", func() bool { return readiness(t, h.URL) == http.StatusServiceUnavailable })
	if now := h.Session(s.ID); now.Waiting != 1 {
		t.Errorf("the session reads as %+v", now)
	}
}

// held wants the views to hold what the log holds of a session.
func held(t *testing.T, h *harness.Holdfast, id string) {
	t.Helper()
	now := h.Session(id)
	ctx, c := h.Context(), h.Client("admin")
	most := 200
	r, err := c.ListAuditWithResponse(ctx, &api.ListAuditParams{Session: &id, MinSeq: &now.Seq, Limit: &most})
	if err != nil {
		t.Fatalf("audit of %s: %v", id, err)
	}
	if got := uint64(len(r.JSON200.Items)); got != now.N {
		t.Errorf("the audit holds %d events of %s, the log %d", got, id, now.N)
	}
}

// same builds the views again from the log and wants those that are there to be the
// same.
func same(t *testing.T, h *harness.Holdfast, dsn string) {
	t.Helper()
	ctx := harness.Context(t)
	pool, err := parts.OpenPool(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	log, closeLog, err := h.OpenLog(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog()
	compare(ctx, t, log, pool)
}

func compare(ctx context.Context, t *testing.T, log eventlog.Log, pool *pgxpool.Pool) {
	t.Helper()
	report, err := projections.Rebuild(ctx, projections.RebuildConfig{Log: log, Pool: pool, CompareOnly: true})
	if err != nil {
		t.Fatalf("rebuild: %v", err)
	}
	if !report.Compared || len(report.Differences) > 0 {
		t.Errorf("the views aren't those of the log: %s %+v", report.Mismatch, report.Differences)
	}
}

// Two more projectors run on the same views while people work, and the lead is
// taken from whoever has it: each row is there once.
func TestSeveralProjectors(t *testing.T) {
	t.Parallel()
	pg := newDatabase(t)
	h := harness.Start(t, func(c *dev.Config) { c.PostgresURL = pg.server.DSN() })
	freely(h)
	ctx, cancel := context.WithCancel(context.Background())
	var running errgroup.Group
	for range 2 {
		log, closeLog, err := h.OpenLog(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(closeLog)
		pool, err := parts.OpenPool(ctx, pg.server.DSN())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		p, err := projections.NewProjector(projections.Config{Log: log, Pool: pool, CheckEvery: 100 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() error { return p.Run(ctx) })
	}
	load := work(t, h)
	unlead(t, pg.server.DSN()) // whoever leads loses its session in the database
	unlead(t, pg.server.DSN())
	made := load()
	for _, id := range made {
		held(t, h, id)
	}
	same(t, h, pg.server.DSN())
	cancel()
	if err := running.Wait(); err != nil {
		t.Errorf("a projector: %v", err)
	}
}

// unlead ends all connections of projectors that hold the lead, which is an advisory
// lock.
func unlead(t *testing.T, dsn string) {
	t.Helper()
	ctx := harness.Context(t)
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	harness.Eventually(t, "somebody leads", func() bool {
		tag, err := pool.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted")
		return err == nil && tag.RowsAffected() > 0
	})
}

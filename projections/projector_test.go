package projections

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/projections/view"
)

// project starts a projector that ends with the test, or by the function that it gives.
func project(t testing.TB, cfg Config) (*Projector, func()) {
	t.Helper()
	if cfg.CheckEvery == 0 {
		cfg.CheckEvery = 50 * time.Millisecond
	}
	p, err := NewProjector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return p, stop
}

func reader(t testing.TB, pool *pgxpool.Pool, log eventlog.Log) *Reader {
	t.Helper()
	r, err := NewReader(ReaderConfig{Pool: pool, Epoch: "e1", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func TestProjectorMakesTheReadModels(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	s := newScribe(t, log)
	s.define()
	id := sid(1)
	s.create(id)
	s.ready(id)
	call := s.ask(id)
	last := s.create(sid(2))
	p, _ := project(t, Config{Log: log, Pool: pool})
	r := reader(t, pool, log)
	if err := r.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	if err := p.Ready(); err != nil {
		t.Fatalf("not ready: %v", err)
	}

	got, err := r.Session(t.Context(), testTenant, id)
	if err != nil {
		t.Fatal(err)
	}
	if got.Phase != session.PhaseReady || got.Waiting != 1 || got.Run != id+"-r1" || got.Isolation != "landlock" || got.Deadlines.Approval == nil {
		t.Errorf("session: %+v", got)
	}
	inbox, err := r.Approvals(t.Context(), testTenant, ApprovalFilter{States: []session.CallState{session.CallStatePending}}, Page{})
	if err != nil || len(inbox.Items) != 1 {
		t.Fatalf("inbox: %v, %v", inbox, err)
	}
	a := inbox.Items[0]
	if a.ID != call || string(a.Args) != `{"command":"deploy <now>","password":"‹masked, 7 bytes›"}` || a.Message != "Deploy ‹U+202E›?" {
		t.Errorf("approval: %+v args %s", a, a.Args)
	}
	page, err := r.Timeline(t.Context(), testTenant, id, Place{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	prompts := 0
	for i, f := range page.Frames {
		if f.N != uint64(i+1) {
			t.Errorf("frame %d has n %d", i, f.N)
		}
		if f.Kind == view.FramePrompt {
			prompts++
		}
	}
	if prompts != 1 || uint64(len(page.Frames)) != got.N || page.More {
		t.Errorf("%d prompts in %d frames of %d", prompts, len(page.Frames), got.N)
	}
	due, err := r.Due(t.Context(), events.ServicePolicy, start.Add(time.Hour), 10)
	if err != nil || len(due) != 1 || due[0].Key != call || due[0].Kind != session.DeadlineApproval {
		t.Errorf("due: %+v, %v", due, err)
	}
	keys, err := r.Unsettled(t.Context(), events.ServiceWorkload)
	if err != nil || len(keys) != 1 || keys[0].Session != sid(2) {
		t.Errorf("unsettled for workload: %v, %v", keys, err)
	}
}

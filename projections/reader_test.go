package projections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/migrations"
	"github.com/holdfast-io/holdfast/migrations/pgserver"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/projections/view"
)

// projected gives a reader over everything that populate writes.
func projected(t *testing.T) (*Reader, *scribe, uint64) {
	t.Helper()
	pool, log := pgtest.Pool(t), newLog()
	s := newScribe(t, log)
	last := populate(t, s)
	p, _ := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	return reader(t, pool, log), s, last
}

func TestSessionsByFilterAndPage(t *testing.T) {
	t.Parallel()
	r, _, _ := projected(t)
	for name, tt := range map[string]struct {
		filter SessionFilter
		want   []string
	}{
		"all":            {SessionFilter{}, []string{sid(3), sid(2), sid(1), sid(0)}},
		"phase":          {SessionFilter{Phases: []session.Phase{session.PhaseEnded, session.PhasePending}}, []string{sid(3), sid(0)}},
		"waiting":        {SessionFilter{Waiting: true}, []string{sid(1)}},
		"label":          {SessionFilter{Labels: map[string]string{"team": "search"}, Runtime: "shell", Owner: "user:alice"}, []string{sid(3), sid(2), sid(1), sid(0)}},
		"other label":    {SessionFilter{Labels: map[string]string{"team": "other\x00"}}, nil},
		"other runtime":  {SessionFilter{Runtime: "python"}, nil},
		"owner with NUL": {SessionFilter{Owner: "\x00"}, nil},
	} {
		var got []string
		for p := (Page{Limit: 1}); ; {
			l, err := r.Sessions(t.Context(), testTenant, tt.filter, p)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, v := range l.Items {
				got = append(got, v.ID)
			}
			if p.Cursor = l.Next; p.Cursor == "" {
				break
			}
		}
		if len(got) != len(tt.want) {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
			continue
		}
		for i := range got {
			if got[i] != tt.want[i] {
				t.Errorf("%s: %v, want %v", name, got, tt.want)
				break
			}
		}
	}
}

func TestCursorsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	r, _, _ := projected(t)
	l, err := r.Sessions(t.Context(), testTenant, SessionFilter{}, Page{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, cursor := range []string{"x", "e30", "bm8", l.Next + "A"} {
		if _, err := r.Sessions(t.Context(), testTenant, SessionFilter{}, Page{Cursor: cursor}); !errors.Is(err, ErrCursor) {
			t.Errorf("cursor %q: %v", cursor, err)
		}
	}
	if _, err := r.Audit(t.Context(), testTenant, AuditFilter{}, Page{Cursor: l.Next}); !errors.Is(err, ErrCursor) {
		t.Errorf("another list's cursor: %v", err)
	}
}

// A tenant sees nothing of another's, whatever it asks.
func TestTenantsSeeTheirOwn(t *testing.T) {
	t.Parallel()
	r, _, _ := projected(t)
	ctx, other, id := t.Context(), "other", sid(1)
	page, err := r.Approvals(ctx, testTenant, ApprovalFilter{}, Page{})
	if err != nil || len(page.Items) != 2 {
		t.Fatalf("approvals: %+v, %v", page, err)
	}
	for name, look := range map[string]func() (int, error){
		"sessions": func() (int, error) {
			l, err := r.Sessions(ctx, other, SessionFilter{}, Page{})
			return len(l.Items), err
		},
		"session":  func() (int, error) { _, err := r.Session(ctx, other, id); return 0, absent(t, err) },
		"as of":    func() (int, error) { _, err := r.SessionAtN(ctx, other, id, 1); return 0, absent(t, err) },
		"messages": func() (int, error) { l, err := r.Messages(ctx, other, id, Page{}); return len(l.Items), err },
		"runs":     func() (int, error) { l, err := r.Runs(ctx, other, id, Page{}); return len(l.Items), err },
		"timeline": func() (int, error) { p, err := r.Timeline(ctx, other, id, Place{}, 9); return len(p.Frames), err },
		"output":   func() (int, error) { o, _, err := r.Output(ctx, other, id, 0, 9); return len(o), err },
		"approvals": func() (int, error) {
			l, err := r.Approvals(ctx, other, ApprovalFilter{}, Page{})
			return len(l.Items), err
		},
		"approval": func() (int, error) { _, err := r.Approval(ctx, other, page.Items[0].ID); return 0, absent(t, err) },
		"runtimes": func() (int, error) { l, err := r.Runtimes(ctx, other, Page{}); return len(l.Items), err },
		"runtime":  func() (int, error) { _, err := r.Runtime(ctx, other, "shell", 0); return 0, absent(t, err) },
		"policy":   func() (int, error) { _, err := r.Policy(ctx, other, "coder", 1); return 0, absent(t, err) },
		"audit":    func() (int, error) { l, err := r.Audit(ctx, other, AuditFilter{}, Page{}); return len(l.Items), err },
		"faults":   func() (int, error) { f, err := r.Faults(ctx, other); return len(f), err },
	} {
		if n, err := look(); n != 0 || err != nil {
			t.Errorf("%s: another tenant sees %d, %v", name, n, err)
		}
	}
}

func absent(t *testing.T, err error) error {
	t.Helper()
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return errors.Join(errors.New("want ErrNotFound"), err)
}

// Every n and every time of a session equals a fold of the log to there.
func TestSessionAsOf(t *testing.T) {
	t.Parallel()
	r, s, _ := projected(t)
	subject, err := events.SessionSubject(testTenant, sid(0))
	if err != nil {
		t.Fatal(err)
	}
	ms, err := r.Envelopes(t.Context(), "e1", subject)
	if err != nil || len(ms) == 0 {
		t.Fatalf("envelopes: %d, %v", len(ms), err)
	}
	st := session.New()
	for _, m := range ms {
		stored, err := s.log.Get(t.Context(), m.Seq)
		if err != nil || string(stored.Raw) != string(m.Raw) {
			t.Fatalf("copy of %d differs: %v", m.Seq, err)
		}
		if err := st.Apply(m); err != nil {
			t.Fatal(err)
		}
		want := view.SessionOf(st)
		byN, err := r.SessionAtN(t.Context(), testTenant, sid(0), st.N)
		if err != nil {
			t.Fatal(err)
		}
		byTime, err := r.SessionAtTime(t.Context(), testTenant, sid(0), m.Envelope.Time)
		if err != nil {
			t.Fatal(err)
		}
		if jsonOf(t, byN) != jsonOf(t, want) || jsonOf(t, byTime) != jsonOf(t, want) {
			t.Errorf("as of n %d:\n got %s\n and %s\nwant %s", st.N, jsonOf(t, byN), jsonOf(t, byTime), jsonOf(t, want))
		}
	}
	if v, err := r.SessionAtN(t.Context(), testTenant, sid(0), 1); err != nil || v.N != 1 {
		t.Errorf("inside an envelope: n %d, %v", v.N, err)
	}
	now, err := r.Session(t.Context(), testTenant, sid(0))
	if err != nil || jsonOf(t, now) != jsonOf(t, view.SessionOf(st)) {
		t.Errorf("now: %s, %v", jsonOf(t, now), err)
	}
	for name, err := range map[string]error{
		"beyond":      second(r.SessionAtN(t.Context(), testTenant, sid(0), st.N+1)),
		"before":      second(r.SessionAtTime(t.Context(), testTenant, sid(0), start)),
		"no such":     second(r.SessionAtN(t.Context(), testTenant, sid(77), 1)),
		"not a token": second(r.SessionAtN(t.Context(), testTenant, "S.>", 1)),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if ms, err := r.Envelopes(t.Context(), "e0", subject); err != nil || len(ms) != 0 {
		t.Errorf("another epoch's copy: %d, %v", len(ms), err)
	}
}

func second[T any](_ T, err error) error { return err }

func jsonOf(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestConversationAndRuns(t *testing.T) {
	t.Parallel()
	r, _, _ := projected(t)
	said, err := r.Messages(t.Context(), testTenant, sid(0), Page{})
	if err != nil || len(said.Items) != 2 {
		t.Fatalf("messages: %+v, %v", said, err)
	}
	if m := said.Items[0]; m.Role != "user" || m.Content != "deploy with token=‹masked, 6 bytes›" || m.Requester != "user:alice" {
		t.Errorf("first: %+v", m)
	}
	if m := said.Items[1]; m.Role != "assistant" || m.Content != "may I?" || len(m.ToolCalls) != 1 ||
		string(m.ToolCalls[0]) != `{"id":"a1","type":"function","function":{"name":"deploy","arguments":"{\"password\":\"‹masked, 7 bytes›\"}"}}` {
		t.Errorf("second: %+v %s", m, m.ToolCalls)
	}
	runs, err := r.Runs(t.Context(), testTenant, sid(0), Page{})
	if err != nil || len(runs.Items) != 2 {
		t.Fatalf("runs: %+v, %v", runs, err)
	}
	if a, b := runs.Items[0], runs.Items[1]; a.State != view.RunInterrupted || len(a.Calls) != 0 || b.State != view.RunFinished || b.ParentRunID != a.ID || b.EndedAt == nil {
		t.Errorf("runs: %+v", runs.Items)
	}
	waiting, err := r.Runs(t.Context(), testTenant, sid(1), Page{})
	if err != nil || len(waiting.Items) != 1 || len(waiting.Items[0].Calls) != 1 {
		t.Errorf("a run that waits: %+v, %v", waiting, err)
	}
}

func TestDefinitions(t *testing.T) {
	t.Parallel()
	r, _, _ := projected(t)
	l, err := r.Runtimes(t.Context(), testTenant, Page{})
	if err != nil || len(l.Items) != 1 || l.Items[0].Revision != 2 || l.Items[0].By != "service:workload" {
		t.Fatalf("runtimes: %+v, %v", l, err)
	}
	var spec struct {
		OnIdle  string
		Sandbox struct {
			Resources struct{ Limits map[string]any }
		}
	}
	if err := json.Unmarshal(l.Items[0].Spec, &spec); err != nil || spec.OnIdle != "end" || spec.Sandbox.Resources.Limits["pids"] != float64(64) {
		t.Errorf("spec: %s, %v", l.Items[0].Spec, err)
	}
	if first, err := r.Runtime(t.Context(), testTenant, "shell", 1); err != nil || first.Revision != 1 {
		t.Errorf("first revision: %+v, %v", first, err)
	}
	if _, err := r.Policy(t.Context(), testTenant, "coder", 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("a removed policy: %v", err)
	}
	if old, err := r.Policy(t.Context(), testTenant, "coder", 1); err != nil || string(old.Spec) != `{"name":"coder","default":"ask","rules":[{"name":"r","when":"true","then":"ask","ask":{"deadline":"never"}}]}` {
		t.Errorf("a removed policy's revision: %s, %v", old.Spec, err)
	}
}

func TestAuditByFilter(t *testing.T) {
	t.Parallel()
	r, s, _ := projected(t)
	for name, tt := range map[string]struct {
		filter AuditFilter
		want   int
	}{
		"type":    {AuditFilter{Types: []string{session.TypeEnded}}, 1},
		"session": {AuditFilter{Session: sid(3)}, 2},
		"actor":   {AuditFilter{Actor: "service:runner", Session: sid(0)}, 5},
		"from":    {AuditFilter{From: s.now}, 1},
		"to":      {AuditFilter{To: start.Add(2 * time.Second)}, 1},
		"nobody":  {AuditFilter{Actor: "user:nobody"}, 0},
	} {
		l, err := r.Audit(t.Context(), testTenant, tt.filter, Page{})
		if err != nil || len(l.Items) != tt.want {
			t.Errorf("%s: %d entries, want %d, %v", name, len(l.Items), tt.want, err)
		}
	}
	seen, before := 0, view.AuditEntry{Seq: 1 << 62}
	for p := (Page{Limit: 7}); ; {
		l, err := r.Audit(t.Context(), testTenant, AuditFilter{}, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range l.Items {
			if e.Seq > before.Seq || e.Seq == before.Seq && e.N >= before.N {
				t.Errorf("%d/%d comes after %d/%d", e.Seq, e.N, before.Seq, before.N)
			}
			seen, before = seen+1, e
		}
		if p.Cursor = l.Next; p.Cursor == "" {
			break
		}
	}
	all, err := r.Audit(t.Context(), testTenant, AuditFilter{}, Page{Limit: 500})
	if err != nil || seen != len(all.Items) {
		t.Errorf("%d by pages, %d at once, %v", seen, len(all.Items), err)
	}
	refused, err := r.Audit(t.Context(), testTenant, AuditFilter{Types: []string{session.TypeCallAnswerRefused}}, Page{})
	if err != nil || len(refused.Items) != 1 || refused.Items[0].Outcome != view.OutcomeRefused {
		t.Errorf("refused: %+v, %v", refused, err)
	}
	proposed, err := r.Audit(t.Context(), testTenant, AuditFilter{Types: []string{session.TypeCallProposed}, Session: sid(0)}, Page{})
	if err != nil || len(proposed.Items) != 1 {
		t.Fatalf("proposed: %+v, %v", proposed, err)
	}
	var data struct{ Args map[string]string }
	if err := json.Unmarshal(proposed.Items[0].Data, &data); err != nil || data.Args["password"] != "‹masked, 7 bytes›" || data.Args["command"] != "deploy <now>" {
		t.Errorf("args: %v, %v", data.Args, err)
	}
}

// A sweep reads as much as it asks for, and nothing of a session that the projector
// has given up: its deadlines would be the longest past for ever.
func TestDue(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	s := newScribe(t, log)
	const faulted, sessions = 3, 520 // more than a page has
	for i := range sessions {
		s.create(sid(i))
	}
	var last uint64
	for i := range faulted {
		subject, err := events.SessionSubject(testTenant, sid(i))
		if err != nil {
			t.Fatal(err)
		}
		last = log.Plant(subject, []byte("junk"))
	}
	p, _ := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	r := reader(t, pool, log)
	for limit, want := range map[int]int{1: 1, 2000: sessions - faulted} {
		due, err := r.Due(t.Context(), events.ServiceSession, s.now.Add(1000*time.Hour), limit)
		if err != nil || len(due) != want {
			t.Fatalf("%d are due, want %d, %v", len(due), want, err)
		}
		if due[0].Session != sid(faulted) {
			t.Errorf("the first due is of session %s, want %s", due[0].Session, sid(faulted))
		}
	}
}

func TestWaitForSaysBehind(t *testing.T) {
	t.Parallel()
	r, s, last := projected(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.WaitFor(ctx, last+1); !errors.Is(err, ErrBehind) {
		t.Errorf("what isn't there: %v", err)
	}
	waited := make(chan error, 1)
	go func() { waited <- r.WaitFor(timeout(t), last+1) }()
	s.create(sid(50))
	if err := <-waited; err != nil {
		t.Errorf("what comes: %v", err)
	}
}

// Postgres stops under load and comes back: nothing is lost, and meanwhile readers
// say that they can't, and the projector that it isn't ready.
func TestPostgresAway(t *testing.T) {
	t.Parallel()
	conf := pgserver.Config{Dir: t.TempDir(), Database: "holdfast", NoSync: true}
	server, err := pgserver.Start(timeout(t), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	if err := migrations.Up(timeout(t), server.DSN()); err != nil {
		t.Fatal(err)
	}
	poolConf, err := pgxpool.ParseConfig(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	poolConf.ConnConfig.RuntimeParams["search_path"] = migrations.SearchPath(migrations.Views)
	var host atomic.Value // the socket's folder is another one after a restart
	host.Store(poolConf.ConnConfig.Host)
	poolConf.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		c.Host, _ = host.Load().(string)
		return nil
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), poolConf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	log := newLog()
	s := newScribe(t, log)
	p, _ := project(t, Config{Log: log, Pool: pool})
	r := reader(t, pool, log)
	if err := r.WaitFor(timeout(t), s.create(sid(1))); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	last := s.create(sid(2))
	until(t, "not ready", func() bool { return p.Ready() != nil })
	if _, err := r.Sessions(timeout(t), testTenant, SessionFilter{}, Page{}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("sessions: %v", err)
	}
	if _, err := r.Due(timeout(t), events.ServiceSession, start, 1); !errors.Is(err, ErrUnavailable) {
		// Due may still know that the log fits; then the query itself fails.
		t.Errorf("due: %v", err)
	}
	if err := r.WaitFor(timeout(t), last); !errors.Is(err, ErrUnavailable) {
		t.Errorf("wait: %v", err)
	}
	if server, err = pgserver.Start(timeout(t), conf); err != nil {
		t.Fatal(err)
	}
	again, err := pgx.ParseConfig(server.DSN())
	if err != nil {
		t.Fatal(err)
	}
	host.Store(again.Host)
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	if err := p.Ready(); err != nil {
		t.Errorf("back: %v", err)
	}
	same(t, "after an outage", summed(t, pool), fresh(t, log, last))
}

// A failed run says why: the cause, and what was said of it, masked and not without end.
func TestRunDetail(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	s := newScribe(t, log)
	s.create(sid(1))
	s.ready(sid(1))
	long := strings.Repeat("é", 2*view.MaxDetail)
	last := uint64(0)
	for i, detail := range []string{"no login with token=abcdef", long} {
		run := fmt.Sprintf("r-%d", i)
		s.say(sid(1), events.ServiceRunner, session.RunStarted{RunID: run, Requester: "user:alice", Generation: 1})
		last = s.say(sid(1), events.ServiceRunner, session.RunFailed{RunID: run, Cause: "agent-error", Detail: detail})
	}
	p, _ := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), last); err != nil {
		t.Fatal(err)
	}
	runs, err := reader(t, pool, log).Runs(t.Context(), testTenant, sid(1), Page{})
	if err != nil {
		t.Fatal(err)
	}
	details := map[string]string{}
	for _, r := range runs.Items {
		details[r.ID] = r.Cause + " " + r.Detail
	}
	if got := details["r-0"]; got != "agent-error no login with token=‹masked, 6 bytes›" {
		t.Errorf("%q", got)
	}
	if got := []rune(details["r-1"]); len(got) != len("agent-error ")+view.MaxDetail || got[len(got)-1] != '…' {
		t.Errorf("%d characters: …%q", len(got), string(got[max(0, len(got)-5):]))
	}
}

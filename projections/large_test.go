package projections

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/blob/memblob"
	"github.com/holdfast-io/holdfast/events/eventlog/bloblog"
	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/bloboutput"
	"github.com/holdfast-io/holdfast/events/output/memoutput"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
)

// A page of output is bounded in bytes also where Postgres has made little of them.
func TestLargeOutput(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	s := newScribe(t, log)
	p, _ := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), s.create(sid(1))); err != nil {
		t.Fatal(err)
	}
	r := reader(t, pool, log)
	for seq := 1; seq <= 4; seq++ {
		if _, err := pool.Exec(t.Context(), `INSERT INTO output (seq, epoch, tenant, session, run, first_k, last_k, after_n, data, at)
			VALUES ($1::bigint, $2, $3, $4, 'r', $1, $1, $1::bigint / 2, convert_to('[{"type":"RAW","event":"' || repeat('a', 5242880) || '"}]', 'UTF8'), now())`,
			seq, r.cfg.Epoch, testTenant, sid(1)); err != nil {
			t.Fatal(err)
		}
	}
	got, more, err := r.Output(t.Context(), testTenant, sid(1), 0, 100)
	if err != nil || !more || len(got) != 2 || len(got[1].Events) < 5<<20 {
		t.Errorf("%d batches, more %v, %v", len(got), more, err)
	}
	for n, want := range []uint64{1, 3, 4, 4} {
		if seq, err := r.OutputBehind(t.Context(), testTenant, sid(1), uint64(n)); err != nil || seq != want {
			t.Errorf("written up to version %d: up to %d, %v, want %d", n, seq, err, want)
		}
	}
	if seq, err := r.OutputBehind(t.Context(), testTenant, sid(2), 9); err != nil || seq != 0 {
		t.Errorf("of another session: up to %d, %v", seq, err)
	}
}

// What an agent says in one event may be larger than any message of OUTPUT: it is copied
// whole, and the copy goes on behind it and after a restart.
func TestLargeEventsAreCopied(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	s := newScribe(t, log)
	p, _ := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), s.create(sid(1))); err != nil {
		t.Fatal(err)
	}
	stream := bloboutput.New(memoutput.New(), &memblob.Store{})
	say := func(k uint64, size int) uint64 {
		t.Helper()
		seq, err := stream.Publish(t.Context(), testTenant, sid(1), output.Batch{
			Run: "r", FirstK: k, LastK: k, After: 1, Time: start, Events: []json.RawMessage{json.RawMessage(`{"type":"RAW","event":"` + strings.Repeat("a", size) + `"}`)},
		})
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	for k, size := range []int{10, 2 * output.MaxBatchBytes, 3 * output.MaxBatchBytes} {
		last := say(uint64(k+1), size)
		o, stop := projectOutput(t, OutputConfig{Stream: stream, Pool: pool})
		if err := o.WaitFor(timeout(t), last); err != nil {
			t.Fatal(err)
		}
		stop()
	}
	got, _, err := reader(t, pool, log).Output(t.Context(), testTenant, sid(1), 0, 10)
	if err != nil || len(got) != 3 || len(got[2].Events) < 3*output.MaxBatchBytes {
		t.Errorf("%d batches, %v", len(got), err)
	}
}

// spaced is a stream in which two messages that are no batches stand before each one, as
// the pieces of large events do.
type spaced struct{ output.Stream }

func (s spaced) Tail(ctx context.Context, from uint64, handle func(output.Message) error) error {
	return s.Stream.Tail(ctx, (from+2)/3, func(m output.Message) error {
		m.Seq *= 3
		return handle(m)
	})
}

func (s spaced) Info(ctx context.Context) (first, last uint64, err error) {
	first, last, err = s.Stream.Info(ctx)
	return 3*first - 2, 3 * last, err
}

// What lies between batches and is none hasn't aged out: nobody is told that it has.
func TestPiecesAreNoGap(t *testing.T) {
	t.Parallel()
	pool, log, inner := pgtest.Pool(t), newLog(), memoutput.New()
	s := newScribe(t, log)
	p, _ := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), s.create(sid(1))); err != nil {
		t.Fatal(err)
	}
	var last uint64
	for k := uint64(1); k <= 5; k++ {
		last = 3 * publish(t, inner, sid(1), outBatch("r", k, 1, 1, start))
	}
	check := func(what string, want uint64) {
		t.Helper()
		o, stop := projectOutput(t, OutputConfig{Stream: spaced{inner}, Pool: pool})
		if err := o.WaitFor(timeout(t), last); err != nil {
			t.Fatal(err)
		}
		stop()
		if reached, gone, err := reader(t, pool, log).OutputExtent(t.Context(), testTenant, sid(1)); err != nil || reached != last || gone != want {
			t.Errorf("%s: up to %d, gone up to %d, %v, want %d", what, reached, gone, err, want)
		}
	}
	check("all is there", 0)
	for k := uint64(6); k <= 9; k++ {
		last = 3 * publish(t, inner, sid(1), outBatch("r", k, 1, 1, start))
	}
	inner.Expire(8)
	check("some has aged out", 3*8-3)
}

// A page of questions is bounded by their arguments' bytes, and the next one goes on.
func TestLargeApprovals(t *testing.T) {
	t.Parallel()
	pool, log := pgtest.Pool(t), newLog()
	s := newScribe(t, log)
	p, _ := project(t, Config{Log: log, Pool: pool})
	if err := p.WaitFor(timeout(t), s.create(sid(1))); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 4; i++ {
		if _, err := pool.Exec(t.Context(), `INSERT INTO approvals (tenant, session, id, state, requester, asked_at, decided_by, reason, view, n)
			VALUES ($1, $2, $3, 'pending', 'alice', now(), '', '', ('{"id":"' || $3::text || '","tool":"' || repeat('a', 5242880) || '"}')::json, 1)`,
			testTenant, sid(1), sid(1)+".c-"+string(rune('0'+i))); err != nil {
			t.Fatal(err)
		}
	}
	r := reader(t, pool, log)
	for name, f := range map[string]ApprovalFilter{"all": {}, "open": {States: []session.CallState{session.CallStatePending}}} {
		seen, pages := map[string]bool{}, 0
		for page := (Page{}); pages == 0 || page.Cursor != ""; pages++ {
			l, err := r.Approvals(t.Context(), testTenant, f, page)
			if err != nil || len(l.Items) > 2 {
				t.Fatalf("%s: a page of %d, %v", name, len(l.Items), err)
			}
			for _, a := range l.Items {
				seen[a.ID] = true
			}
			page.Cursor = l.Next
		}
		if len(seen) != 4 {
			t.Errorf("%s: %d of 4 on %d pages", name, len(seen), pages)
		}
	}
}

// Contents that lie beside the log are in the views whole, page after page; the store's
// outage has the projector wait; contents that are lost fault their session alone, and
// the audit log says so in their place. Views that are made anew are the same.
func TestLargeContents(t *testing.T) {
	t.Parallel()
	pool, inner, blobs := pgtest.Pool(t), newLog(), &memblob.Store{}
	log := bloblog.New(inner, blobs)
	s := newScribe(t, inner)
	text := strings.Repeat("a long story; ", 5<<20/14)
	large := func(i int) uint64 {
		t.Helper()
		content, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		records, err := session.Records(events.ServiceSession, session.MessageReceived{MessageID: sid(i) + "-m9", RunID: sid(i) + "-r9", Content: content, Requester: "user:alice"})
		if err != nil {
			t.Fatal(err)
		}
		subject, err := events.SessionSubject(testTenant, sid(i))
		if err != nil {
			t.Fatal(err)
		}
		last, _, err := inner.Last(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		env := last.Envelope
		env.Command, env.N, env.Prev, env.Events = "large", last.Envelope.LastN()+1, last.Seq, append(records, records[0], records[0])
		for n := range env.Events { // three of them, each another message
			env.Events[n].Data = json.RawMessage(strings.Replace(string(records[0].Data), "-m9", "-m"+string(rune('7'+n)), 1))
		}
		seq, err := log.Append(t.Context(), subject, env)
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	s.create(sid(1))
	s.create(sid(2))
	s.create(sid(3))
	large(1)
	gone := large(2)
	m, err := inner.Get(t.Context(), gone)
	if err != nil {
		t.Fatal(err)
	}
	blobs.Plant(blob.OwnerOf(m.Subject), *m.Envelope.Blob, nil)
	last := s.say(sid(3), events.ServiceSession, session.ActivityNoted{Holder: "h", Until: start})

	reopened := bloblog.New(inner, blobs) // nothing of it is in memory
	blobs.Fail(errors.New("down"))
	p, stop := project(t, Config{Log: reopened, Pool: pool})
	if err := p.WaitFor(timeout(t), 4); err != nil { // what is before the large one
		t.Fatal(err)
	}
	blobs.Fail(nil)
	patient, cancel := context.WithTimeout(t.Context(), 5*within) // it is folded, masked and written in tens of megabytes
	defer cancel()
	if err := p.WaitFor(patient, last); err != nil {
		t.Fatal(err)
	}
	r := reader(t, pool, reopened)
	faults, err := r.Faults(t.Context(), testTenant)
	if err != nil || len(faults) != 1 || faults[0].Key != sid(2) || faults[0].Seq != gone || !strings.Contains(faults[0].Cause, "are not there") {
		t.Errorf("faults: %+v, %v", faults, err)
	}
	if st, err := r.Session(t.Context(), testTenant, sid(3)); err != nil || st.N != 3 {
		t.Errorf("the session beside it: n %d, %v", st.N, err)
	}
	whole, pages := 0, 0
	for page := (Page{}); pages == 0 || page.Cursor != ""; pages++ {
		l, err := r.Messages(t.Context(), testTenant, sid(1), page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range l.Items {
			if m.Content == text {
				whole++
			}
		}
		if len(l.Items) > 3 { // the short ones of the beginning, and two
			t.Errorf("a page of %d messages", len(l.Items))
		}
		page.Cursor = l.Next
	}
	if whole != 3 {
		t.Errorf("%d messages are whole, want 3", whole)
	}
	whole = 0
	for at, more := (Place{}), true; more; {
		l, err := r.Timeline(t.Context(), testTenant, sid(1), at, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range l.Frames {
			if at = f.Place; strings.Contains(string(f.Data), text) {
				whole++
			}
		}
		more = l.More
	}
	if whole != 3 {
		t.Errorf("%d frames are whole, want 3", whole)
	}
	for i, want := range map[int]string{1: text, 2: `"lost":"the contents`} {
		found := 0
		for page, first := (Page{}), true; first || page.Cursor != ""; first = false {
			l, err := r.Audit(t.Context(), testTenant, AuditFilter{Session: sid(i)}, page)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range l.Items {
				if strings.Contains(string(e.Data), want) {
					found++
				}
			}
			page.Cursor = l.Next
		}
		if found != 3 {
			t.Errorf("session %d: %d entries of the audit log hold %.20s, want 3", i, found, want)
		}
	}
	if st, err := r.SessionAtN(t.Context(), testTenant, sid(1), 4); err != nil || st.N != 4 {
		t.Errorf("as of n 4: %+v, %v", st.N, err)
	}
	lost := new(*events.LostError)
	if _, err := r.SessionAtN(t.Context(), testTenant, sid(2), 4); !errors.As(err, lost) {
		t.Errorf("as of what is lost: %v", err)
	}
	stop()
	same(t, "with large contents", summed(t, pool), fresh(t, reopened, last))
}

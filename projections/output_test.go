package projections

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-io/holdfast/events/output"
	"github.com/holdfast-io/holdfast/events/output/memoutput"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/projections/view"
)

// batch makes the events k..k+count-1 of a run.
func outBatch(run string, k, count, after uint64, at time.Time) output.Batch {
	b := output.Batch{Run: run, FirstK: k, LastK: k + count - 1, After: after, Time: at}
	for i := range count {
		b.Events = append(b.Events, json.RawMessage(fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","delta":"%d token=abcdef"}`, k+i)))
	}
	return b
}

func projectOutput(t testing.TB, cfg OutputConfig) (*OutputProjector, func()) {
	t.Helper()
	cfg.Epoch, cfg.Logger = "e1", discard
	if cfg.Now == nil {
		cfg.Now = func() time.Time { return start }
	}
	p, err := NewOutputProjector(cfg)
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

func publish(t testing.TB, stream output.Stream, session string, b output.Batch) uint64 {
	t.Helper()
	seq, err := stream.Publish(t.Context(), testTenant, session, b)
	if err != nil {
		t.Fatal(err)
	}
	return seq
}

// order writes down a timeline: e3 is event 3, o7 the batch at 7.
func order(page TimelinePage) (s string) {
	for _, f := range page.Frames {
		if f.Kind == view.FrameAgui {
			s += fmt.Sprintf("o%d ", f.Place.Out)
		} else {
			s += fmt.Sprintf("e%d ", f.Place.N)
		}
	}
	return s
}

func TestTimelineMergesOutput(t *testing.T) {
	t.Parallel()
	pool, log, stream := pgtest.Pool(t), newLog(), memoutput.New()
	s := newScribe(t, log)
	s.create(sid(1)) // n 1, 2
	s.ready(sid(1))  // n 3, 4, 5
	publish(t, stream, sid(1), outBatch("r", 1, 2, 3, start))
	publish(t, stream, sid(2), outBatch("r", 1, 1, 0, start)) // another session's
	publish(t, stream, sid(1), outBatch("r", 3, 2, 5, start))
	publish(t, stream, sid(1), outBatch("r", 4, 3, 4, start)) // repeats 4; written by one who was behind
	lastOut := publish(t, stream, sid(1), outBatch("r", 7, 1, 9, start))
	p, _ := project(t, Config{Log: log, Pool: pool})
	o, _ := projectOutput(t, OutputConfig{Stream: stream, Pool: pool})
	if err := p.WaitFor(timeout(t), 5); err != nil {
		t.Fatal(err)
	}
	if err := o.WaitFor(timeout(t), lastOut); err != nil {
		t.Fatal(err)
	}
	r := reader(t, pool, log)
	page, err := r.Timeline(t.Context(), testTenant, sid(1), Place{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	const want = "e1 e2 e3 o1 e4 e5 o3 o4 " // o5 waits for n 9
	if got := order(page); got != want || page.More || page.OutputGone != 0 {
		t.Fatalf("order %q, want %q; more %t, gone %d", got, want, page.More, page.OutputGone)
	}
	if got := string(page.Frames[7].Data); got != `[{"type":"TEXT_MESSAGE_CONTENT","delta":"5 token=‹masked, 6 bytes›"},{"type":"TEXT_MESSAGE_CONTENT","delta":"6 token=‹masked, 6 bytes›"}]` {
		t.Errorf("the cut batch: %s", got)
	}
	// A viewer that is cut after each frame sees the same.
	for limit := 1; limit < 5; limit++ {
		got, at := "", Place{}
		for more := true; more; {
			page, err := r.Timeline(t.Context(), testTenant, sid(1), at, limit)
			if err != nil {
				t.Fatal(err)
			}
			if more = page.More; len(page.Frames) > 0 {
				at = page.Frames[len(page.Frames)-1].Place
			}
			got += order(page)
		}
		if got != want {
			t.Errorf("pages of %d: %q, want %q", limit, got, want)
		}
	}
}

func TestOutputAgesAndSaysSo(t *testing.T) {
	t.Parallel()
	pool, stream := pgtest.Pool(t), memoutput.New()
	old := publish(t, stream, sid(1), outBatch("r", 1, 1, 0, start))
	young := publish(t, stream, sid(1), outBatch("r", 2, 1, 0, start.Add(time.Hour)))
	o, stop := projectOutput(t, OutputConfig{Stream: stream, Pool: pool, Keep: 2 * time.Hour})
	if err := o.WaitFor(timeout(t), young); err != nil {
		t.Fatal(err)
	}
	stop()
	_, _ = projectOutput(t, OutputConfig{Stream: stream, Pool: pool, Keep: 30 * time.Minute, Now: func() time.Time { return start.Add(time.Hour) }})
	r := reader(t, pool, newLog())
	until(t, "aged out", func() bool {
		page, err := r.Timeline(t.Context(), testTenant, sid(1), Place{}, 10)
		return err == nil && len(page.Frames) == 1 && page.OutputGone == old && page.Frames[0].Place.Out == young
	})
	if page, err := r.Timeline(t.Context(), testTenant, sid(1), Place{Out: old}, 10); err != nil || page.OutputGone != 0 {
		t.Errorf("who had it lacks nothing: %+v, %v", page, err)
	}
	if page, err := r.Timeline(t.Context(), testTenant, sid(2), Place{}, 10); err != nil || page.OutputGone != 0 {
		t.Errorf("another session lacks nothing: %+v, %v", page, err)
	}
}

func TestOutputMadeAnewIsCopiedFromItsStart(t *testing.T) {
	t.Parallel()
	for name, count := range map[string]int{"shorter": 1, "other message at the checkpoint": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, stream := pgtest.Pool(t), memoutput.New()
			var seq uint64
			for k := range uint64(3) {
				seq = publish(t, stream, sid(1), outBatch("r", k+1, 1, 0, start))
			}
			copyAll(t, pool, stream, seq)
			anew := memoutput.New()
			for k := range uint64(count) {
				publish(t, anew, sid(1), outBatch("r2", k+1, 1, 0, start))
			}
			o, _ := projectOutput(t, OutputConfig{Stream: anew, Pool: pool})
			r := reader(t, pool, newLog())
			until(t, "copied anew", func() bool {
				got, _, err := r.Output(t.Context(), testTenant, sid(1), 0, 10)
				return err == nil && len(got) == count && got[0].Run == "r2" && o.Ready() == nil
			})
		})
	}
}

func copyAll(t testing.TB, pool *pgxpool.Pool, stream OutputTail, seq uint64) {
	t.Helper()
	o, stop := projectOutput(t, OutputConfig{Stream: stream, Pool: pool})
	if err := o.WaitFor(timeout(t), seq); err != nil {
		t.Fatal(err)
	}
	stop()
	// A restart finds its place and copies nothing twice.
	o, stop = projectOutput(t, OutputConfig{Stream: stream, Pool: pool})
	if err := o.WaitFor(timeout(t), seq); err != nil {
		t.Fatal(err)
	}
	stop()
}

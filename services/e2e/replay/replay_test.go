package replay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The tests read one session that has lived through all there is.
func TestReplay(t *testing.T) {
	h := harness.Start(t, harness.SharedPostgres(t))
	l := live(t, h)
	for name, test := range map[string]func(*testing.T, *life){
		"live":                 livePlaces,
		"the timeline's pages": pages,
		"from each place":      places,
		"replayed":             replayed,
		"at its own pace":      paced,
		"as of each n":         asOfN,
		"as of a time":         asOfTime,
		"the audit":            audit,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &life{h: l.h.In(t), id: l.id, seen: l.seen, frames: l.frames})
		})
	}
}

// life is a session that is over.
type life struct {
	h  *harness.Holdfast
	id string
	// seen are its frames as somebody saw them live, frames the same in the order of
	// every replay: what an agent said stands where it was said, also where it came
	// later.
	seen, frames []api.Frame
}

// live lives it: questions answered with yes and no, refused answers, a suspend and
// a resume, a cancelled run, and the end.
func live(t *testing.T, h *harness.Holdfast) *life {
	t.Helper()
	alice := h.Client("alice")
	s := h.Create("alice", "ls\ntouch made\nfor i in 1 2 3; do echo $i; sleep 0.1; done")
	watched := watch(t, h, s.ID)
	a := h.AwaitQuestion(s.ID)
	if _, err := h.Decide("alice", a, api.AnswerApprove, ""); err == nil {
		t.Error("alice is no approver")
	}
	h.Approve("bob", a)
	h.Await(s.ID, "it asks again", func(s *api.Session) bool { return s.Waiting == 1 && s.Run != a.RunID })
	if _, err := h.Decide("bob", h.AwaitQuestion(s.ID), api.AnswerDeny, "no loops"); err != nil {
		t.Fatal(err)
	}
	h.Await(s.ID, "no run is open", func(s *api.Session) bool { return s.Run == "" })
	if _, err := alice.SuspendSessionWithResponse(h.Context(), s.ID, nil); err != nil {
		t.Fatal(err)
	}
	h.AwaitPhase(s.ID, api.SessionPhaseSuspended)
	run := h.Send("alice", s.ID, "ls\nmake everything")
	h.AwaitQuestion(s.ID)
	if _, err := alice.CancelRunWithResponse(h.Context(), s.ID, run, nil); err != nil {
		t.Fatal(err)
	}
	h.Await(s.ID, "nobody is asked", func(s *api.Session) bool { return s.Waiting == 0 && s.Run == "" })
	if _, err := alice.TerminateSessionWithResponse(h.Context(), s.ID, nil, api.TerminateSession{Reason: "done"}); err != nil {
		t.Fatal(err)
	}
	l := &life{h: h, id: s.ID, seen: watched()}
	l.frames = l.timeline(t, nil, 200)
	if last := h.Session(s.ID); l.frames[len(l.frames)-1].N != last.N {
		t.Errorf("the last frame is of n %d, the session's n is %d", l.frames[len(l.frames)-1].N, last.N)
	}
	return l
}

// watch follows a session on one connection; what it gives waits for the end.
func watch(t *testing.T, h *harness.Holdfast, id string) (frames func() []api.Frame) {
	t.Helper()
	resp, err := h.Client("alice").StreamSession(h.Context(), id, nil)
	if err != nil {
		t.Fatal(err)
	}
	var (
		seen []api.Frame
		cut  error
	)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for f, err := range apiclient.Frames(resp.Body) {
			if cut = err; err != nil {
				return
			}
			if seen = append(seen, f); harness.EventOf(f).Type == "session.ended" {
				return
			}
		}
	}()
	return func() []api.Frame {
		t.Helper()
		<-done
		if cut != nil {
			t.Fatalf("the stream was cut: %v; saw %s", cut, harness.Summary(seen))
		}
		return seen
	}
}

// same wants two lists of frames to be the same, place for place.
func same(t *testing.T, got, want []api.Frame) {
	t.Helper()
	for i, f := range want {
		if i >= len(got) {
			break
		}
		g := got[i]
		if g.Cursor != f.Cursor || g.Kind != f.Kind || g.N != f.N || !g.Time.Equal(f.Time) || string(g.Data) != string(f.Data) {
			t.Fatalf("frame %d is\n%s, want\n%s", i, text(g), text(f))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d frames (%s), want %d (%s)", len(got), harness.Summary(got), len(want), harness.Summary(want))
	}
}

func text(f api.Frame) string {
	return fmt.Sprintf("%s %s n %d %s %s", f.Cursor, f.Kind, f.N, f.Time.Format(time.RFC3339Nano), f.Data)
}

// timeline reads all pages behind a cursor.
func (l *life) timeline(t *testing.T, after *string, limit int) []api.Frame {
	t.Helper()
	var all []api.Frame
	seq := l.h.Session(l.id).Seq
	for {
		r, err := l.h.Client("alice").ListTimelineWithResponse(l.h.Context(), l.id, &api.ListTimelineParams{After: after, Limit: &limit, MinSeq: &seq})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r.JSON200.Items...)
		if r.JSON200.Next == "" {
			return all
		}
		if len(r.JSON200.Items) != limit {
			t.Errorf("a page of %d that isn't the last, at most %d", len(r.JSON200.Items), limit)
		}
		after = &r.JSON200.Next
	}
}

// split tells what happened from what was said. Where a batch of what was said
// stands among the events isn't compared.
func split(frames []api.Frame) (happened, said []api.Frame) {
	for _, f := range frames {
		f.Cursor = ""
		if f.Kind == api.FrameKindAgui {
			f.N = 0
			said = append(said, f)
		} else {
			happened = append(happened, f)
		}
	}
	return happened, said
}

// livePlaces wants what was seen live to be the same events and the same output,
// each in its order, and no output before what it was said after; and from each
// place of it on, exactly the rest.
func livePlaces(t *testing.T, l *life) {
	said := func(frames []api.Frame) map[string]uint64 {
		at := map[string]uint64{}
		for _, f := range frames {
			if f.Kind == api.FrameKindAgui {
				at[string(f.Data)] = f.N
			}
		}
		return at
	}
	at := said(l.frames)
	for data, n := range said(l.seen) {
		if n < at[data] {
			t.Errorf("what was said after n %d was shown at n %d: %s", at[data], n, data)
		}
	}
	for i := -1; i < len(l.seen); i += 3 {
		var after *string
		if i >= 0 {
			after = &l.seen[i].Cursor
		}
		happened, said := split(l.timeline(t, after, 200))
		wantHappened, wantSaid := split(l.seen[i+1:])
		same(t, happened, wantHappened)
		same(t, said, wantSaid)
	}
}

func pages(t *testing.T, l *life) {
	for _, limit := range []int{1, 7, 200} {
		same(t, l.timeline(t, nil, limit), l.frames)
	}
	events := 0
	for _, f := range l.frames {
		if f.Kind != api.FrameKindAgui {
			events++
			if int(f.N) != events {
				t.Fatalf("the event's frame %d has n %d", events, f.N)
			}
		}
	}
	if facts := l.h.Facts(l.id); events != len(facts) {
		t.Errorf("%d frames of events, the log holds %d", events, len(facts))
	}
}

func places(t *testing.T, l *life) {
	for i := 0; i < len(l.frames); i += 5 {
		same(t, l.timeline(t, &l.frames[i].Cursor, 200), l.frames[i+1:])
	}
}

// replay plays the session and gives the frames between the two marks.
func (l *life) replay(t *testing.T, speed float64, after *string) []api.Frame {
	t.Helper()
	resp, err := l.h.Client("admin").ReplaySession(l.h.Context(), l.id, &api.ReplaySessionParams{Speed: &speed, After: after})
	if err != nil {
		t.Fatal(err)
	}
	var all []api.Frame
	for f, err := range apiclient.Frames(resp.Body) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	if first, last := all[0], all[len(all)-1]; first.Kind != api.FrameKindControl || last.Kind != api.FrameKindControl {
		t.Fatalf("no marks around a replay: %s … %s", first.Data, last.Data)
	}
	return all[1 : len(all)-1]
}

func replayed(t *testing.T, l *life) {
	n := l.h.Session(l.id).N
	same(t, l.replay(t, 0, nil), l.frames)
	half := len(l.frames) / 2
	same(t, l.replay(t, 0, &l.frames[half].Cursor), l.frames[half+1:])
	if now := l.h.Session(l.id).N; now != n {
		t.Errorf("a replay took the session from n %d to %d", n, now)
	}
}

func paced(t *testing.T, l *life) {
	span := l.frames[len(l.frames)-1].Time.Sub(l.frames[0].Time)
	begun := time.Now()
	same(t, l.replay(t, 4, nil), l.frames)
	if took := time.Since(begun); took < span/4 {
		t.Errorf("%s at four times its pace took %s", span, took)
	}
}

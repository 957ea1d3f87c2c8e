package hub

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

var follower = auth.Principal{Name: "alice", Tenant: testTenant}

// upTo reads frames up to the one of a version, output that comes with it included.
func upTo(t *testing.T, f *Follower, enough func(Followed) bool) (all []Followed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		fr, err := f.Next(ctx)
		if err != nil {
			t.Fatalf("after %d frames: %v", len(all), err)
		}
		if all = append(all, fr); enough(fr) {
			return all
		}
	}
}

// A follower from now gets nothing of before, one from a version all behind it, with
// the run and the place of each batch.
func TestFollow(t *testing.T) {
	w := newWorld(t, nil)
	id := sid("followed")
	w.create(t, testTenant, id)
	w.say(t, id, "r-1", 1, 3, 1)
	w.note(t, id)
	eventually(t, "the hub has seen it", func() bool { return w.hub.Healthy() == nil })

	now, err := w.hub.Follow(t.Context(), follower, id)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	from, err := w.hub.FollowFrom(t.Context(), follower, id, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	w.say(t, id, "r-2", 1, 2, 2)
	w.note(t, id)

	isLast := func(f Followed) bool { return f.Kind == view.FrameEvent && f.N == 3 }
	for _, f := range upTo(t, now, isLast) {
		if f.N < 2 || f.Run == "r-1" {
			t.Errorf("from now on: %+v", f)
		}
	}
	runs := map[string]uint64{}
	for _, f := range upTo(t, from, func(f Followed) bool { return f.Run == "r-2" }) {
		if f.Kind == view.FrameAgui {
			runs[f.Run] = f.LastK
		} else if f.N < 2 {
			t.Errorf("from version 1: %+v, %s", f, f.Data)
		}
	}
	if runs["r-1"] != 3 || runs["r-2"] != 2 {
		t.Errorf("%v", runs)
	}
}

// Who follows a run from its beginning isn't told, and the views aren't asked, what the
// session has said before.
func TestFollowFromReadsNoOlderOutput(t *testing.T) {
	views := &copied{n: 3, out: 4}
	w := newWorld(t, func(c *Config) { c.History, c.RingBytes = views, 1 })
	views.set(func() { views.w = w })
	id := sid("followed")
	w.create(t, testTenant, id)
	w.say(t, id, "r-1", 1, 3, 1)
	w.say(t, id, "r-1", 4, 5, 1)
	w.note(t, id)
	w.say(t, id, "r-2", 1, 1, 2)
	w.say(t, id, "r-2", 2, 3, 2)
	for name, down := range map[string]error{"views": nil, "no views": errDown} {
		views.set(func() { views.down, views.outputFrom = down, nil })
		f, err := w.hub.FollowFrom(t.Context(), follower, id, 1)
		if err != nil {
			t.Fatal(name, err)
		}
		var runs []string
		for _, fr := range upTo(t, f, func(f Followed) bool { return f.Run == "r-2" && f.LastK == 3 }) {
			if fr.Kind == view.FrameAgui {
				runs = append(runs, fr.Run)
			}
		}
		f.Close()
		want := []string{"r-2", "r-2"}
		if down != nil {
			want = []string{"r-1", "r-1", "r-2", "r-2"}
		}
		if !slices.Equal(runs, want) || down == nil && slices.Contains(views.outputFrom, 0) {
			t.Errorf("%s: %v, asked from %v", name, runs, views.outputFrom)
		}
	}
}

// A follower is counted as a viewer, and is told when the hub stops.
func TestFollowEnds(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ViewersPerPrincipal = 1 })
	id := sid("followed")
	if _, err := w.hub.Follow(t.Context(), follower, id); !errors.Is(err, problem.New(api.CodeNotFound, "")) {
		t.Errorf("a session that isn't there: %v", err)
	}
	w.create(t, testTenant, id)
	f, err := w.hub.Follow(t.Context(), follower, id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.hub.Follow(t.Context(), follower, id); !errors.Is(err, problem.New(api.CodeQuotaExceeded, "")) {
		t.Errorf("one too many: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := f.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing happens: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := f.Next(context.Background())
		f.Close() // the hub waits for its viewers
		ended <- err
	}()
	w.stop()
	var closed *ClosedError
	if err := <-ended; !errors.As(err, &closed) {
		t.Errorf("the hub stops: %v", err)
	}
}

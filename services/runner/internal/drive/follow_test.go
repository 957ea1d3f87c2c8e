package drive

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-io/holdfast/events/output/memoutput"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/runner/internal/transcript"
)

// What comes after a silence is published at once, and what comes soon after that
// together.
func TestFirstWordsWaitForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &follower{
			driver: &Driver{Output: memoutput.New(), Now: time.Now}, run: Run{Tenant: "default", Session: "s-1", ID: "r-1"},
			transcript: transcript.New(nil), lines: make(chan spooled, 64),
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.follow(ctx) }()
		k := uint64(0)
		say := func(wantFirst, wantLast uint64) {
			t.Helper()
			k++
			f.lines <- spooled{line: sandboxapi.SpoolLine{K: k, Event: json.RawMessage(`{"type":"CUSTOM"}`)}}
			synctest.Wait()
			published(t, f, wantFirst, wantLast)
		}
		say(1, 1)
		say(1, 1)
		say(1, 1)
		<-time.After(batchAge)
		synctest.Wait()
		published(t, f, 2, 3)
		say(2, 3)
		<-time.After(2 * batchAge)
		synctest.Wait()
		published(t, f, 4, 4)
		say(5, 5)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// published checks the last batch.
func published(t *testing.T, f *follower, first, last uint64) {
	t.Helper()
	b, _, _, err := f.driver.Output.Last(t.Context(), f.run.Tenant, f.run.Session)
	if err != nil || b.FirstK != first || b.LastK != last {
		t.Errorf("the last batch has %d to %d, want %d to %d (%v)", b.FirstK, b.LastK, first, last, err)
	}
}

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
)

// EventOf reads an event frame; the type is empty for any other frame.
func EventOf(f api.Frame) api.Event {
	var e api.Event
	if f.Kind == api.FrameKindEvent {
		_ = json.Unmarshal(f.Data, &e) // what isn't an event has no type
	}
	return e
}

// ApprovalOf reads a prompt frame.
func ApprovalOf(f api.Frame) (api.Approval, bool) {
	var a api.Approval
	if f.Kind != api.FrameKindPrompt || json.Unmarshal(f.Data, &a) != nil {
		return a, false
	}
	return a, true
}

// Follow reads a session's stream from its beginning until done says so and gives
// all frames that it read. The test fails where that takes too long.
func (h *Sessions) Follow(as, session string, done func(api.Frame) bool) []api.Frame {
	h.t.Helper()
	return Follow(h.t, h.Client(as), session, done)
}

// Follow is Sessions.Follow with a client.
func Follow(t testing.TB, c *apiclient.ClientWithResponses, session string, done func(api.Frame) bool) []api.Frame {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	var (
		frames []api.Frame
		after  *string
	)
	for ctx.Err() == nil {
		resp, err := c.StreamSession(ctx, session, &api.StreamSessionParams{After: after}) //nolint:bodyclose // Frames closes it
		var refused *api.Error
		if errors.As(err, &refused) && refused.Problem.Status < 500 {
			t.Fatalf("stream: %v", err)
		}
		if err != nil {
			continue
		}
		for f, err := range apiclient.Frames(resp.Body) {
			if err != nil {
				break
			}
			if f.Cursor != "" {
				after = &f.Cursor
			}
			frames = append(frames, f)
			if done(f) {
				return frames
			}
		}
	}
	t.Fatalf("waited in vain; saw %s", Summary(frames))
	return nil
}

// OnEvent is done with the first event of a type.
func OnEvent(eventType string) func(api.Frame) bool {
	return func(f api.Frame) bool { return EventOf(f).Type == eventType }
}

// OnPrompt is done with the first prompt in a state.
func OnPrompt(state api.CallState) func(api.Frame) bool {
	return func(f api.Frame) bool {
		a, ok := ApprovalOf(f)
		return ok && a.State == state
	}
}

// OnNth is done with the n-th frame for which done is.
func OnNth(n int, done func(api.Frame) bool) func(api.Frame) bool {
	return func(f api.Frame) bool {
		if done(f) {
			n--
		}
		return n <= 0
	}
}

// Summary names the frames, for a test that failed.
func Summary(frames []api.Frame) string {
	var s []byte
	for _, f := range frames {
		name := string(f.Kind)
		if e := EventOf(f); e.Type != "" {
			name = e.Type
		} else if a, ok := ApprovalOf(f); ok {
			name += ":" + string(a.State)
		}
		s = append(s, name...)
		s = append(s, ' ')
	}
	return string(s)
}

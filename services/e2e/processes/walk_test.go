package processes_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// patience bounds one step of a walk: what a killed process had in hand comes to
// another once its acknowledgement is overdue, after half a minute.
const patience = 3 * time.Minute

// client is somebody who repeats a request under its key, at any gateway, until there
// is an answer.
type client struct {
	in   *installation
	apis []*apiclient.ClientWithResponses
	turn atomic.Uint64
}

func (in *installation) client(name string) *client {
	c := &client{in: in}
	for i := range in.addrs {
		c.apis = append(c.apis, in.asAt(name, i))
	}
	return c
}

// do has a request answered. A refusal ends it as an error; anything else that goes
// wrong is tried again elsewhere.
func (c *client) do(ctx context.Context, request func(context.Context, *apiclient.ClientWithResponses) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 15*time.Second)
		err := request(attempt, c.apis[c.turn.Add(1)%uint64(len(c.apis))])
		cancel()
		if err == nil {
			return nil
		}
		if refused, ok := errors.AsType[*api.Error](err); ok && refused.Problem.Status < 500 {
			return err
		}
		if !breathe(ctx) {
			return errors.Join(ctx.Err(), err)
		}
	}
}

// breathe waits a moment; false once ctx has ended.
func breathe(ctx context.Context) bool {
	t := time.NewTimer(50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// until asks for a session until it is as it should be.
func (c *client) until(ctx context.Context, id, what string, holds func(*api.Session) bool) (*api.Session, error) {
	var s *api.Session
	for {
		err := c.do(ctx, func(ctx context.Context, a *apiclient.ClientWithResponses) error {
			r, err := a.GetSessionWithResponse(ctx, id, nil)
			if err == nil {
				s = r.JSON200
			}
			return err
		})
		switch {
		case err != nil:
			return s, fmt.Errorf("%s: %s: %w (last seen %s)", id, what, err, phaseOf(s))
		case holds(s):
			return s, nil
		case !breathe(ctx):
			return s, fmt.Errorf("%s: waited in vain: %s (last seen %s)", id, what, phaseOf(s))
		}
	}
}

func phaseOf(s *api.Session) string {
	if s == nil {
		return "never"
	}
	return fmt.Sprintf("%s, generation %d, run %q, %d waiting", s.Phase, s.Generation, s.Run, s.Waiting)
}

// walk is a session's whole life, made by people who don't know that processes die.
type walk struct {
	alice, bob *client
	key        string
	id         string
	// sent is how many messages have been.
	sent int
}

// create makes the session, with a message whose command is asked about and leaves a
// mark each time it runs.
func (w *walk) create(ctx context.Context) error {
	return w.alice.do(ctx, func(ctx context.Context, a *apiclient.ClientWithResponses) error {
		r, err := a.CreateSessionWithResponse(ctx, &api.CreateSessionParams{IdempotencyKey: &w.key}, api.CreateSession{Runtime: "shell"})
		if err != nil {
			return err
		}
		made := r.JSON201
		if made == nil {
			made = r.JSON200
		}
		w.id = made.ID
		return nil
	})
}

// send sends a message once, whatever it takes, and waits until the run that answers
// it is over, approving what is asked.
func (w *walk) send(ctx context.Context, content string) error {
	w.sent++
	key, run := fmt.Sprintf("%s-%d", w.key, w.sent), ""
	err := w.alice.do(ctx, func(ctx context.Context, a *apiclient.ClientWithResponses) error {
		r, err := a.SendMessageWithResponse(ctx, w.id, &api.SendMessageParams{IdempotencyKey: &key}, api.SendMessage{Content: content})
		if err == nil {
			run = r.JSON202.RunID
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: send %q: %w", w.id, content, err)
	}
	_, err = w.alice.until(ctx, w.id, "the run of "+content+" is over", func(s *api.Session) bool {
		if s.Waiting > 0 {
			w.approve(ctx)
		}
		return s.Run == "" && s.Waiting == 0 && w.over(ctx, run)
	})
	return err
}

// over says whether a run is, and whatever went on from it.
func (w *walk) over(ctx context.Context, run string) bool {
	found, open := false, false
	parents := map[string]bool{}
	_ = w.alice.do(ctx, func(ctx context.Context, a *apiclient.ClientWithResponses) error { // asked again if it fails
		r, err := a.ListRunsWithResponse(ctx, w.id, nil)
		if err != nil {
			return err
		}
		for _, is := range r.JSON200.Items {
			found = found || is.ID == run
			parents[is.ParentRunID] = true
		}
		for _, is := range r.JSON200.Items { // one that asked goes on in another
			open = open || is.State == api.RunStateStarted || is.State == api.RunStateQueued || is.State == api.RunStateInterrupted && !parents[is.ID]
		}
		return nil
	})
	return found && !open
}

// approve has bob answer what the session asks; the same answer again is the same.
func (w *walk) approve(ctx context.Context) {
	_ = w.bob.do(ctx, func(ctx context.Context, a *apiclient.ClientWithResponses) error { // asked again if it fails
		r, err := a.ListApprovalsWithResponse(ctx, &api.ListApprovalsParams{Session: &w.id, State: &[]api.CallState{api.CallStatePending}})
		if err != nil {
			return err
		}
		for _, q := range r.JSON200.Items {
			if _, err := a.DecideApprovalWithResponse(ctx, q.ID, nil, api.DecideApproval{Decision: api.AnswerApprove, ArgsHash: q.ArgsHash}); err != nil {
				return err
			}
		}
		return nil
	})
}

// said gives what the agent answered last.
func (w *walk) said(ctx context.Context) (string, error) {
	s, err := w.alice.until(ctx, w.id, "it is there", func(*api.Session) bool { return true })
	if err != nil {
		return "", err
	}
	last := ""
	err = w.alice.do(ctx, func(ctx context.Context, a *apiclient.ClientWithResponses) error {
		r, err := a.ListMessagesWithResponse(ctx, w.id, &api.ListMessagesParams{MinSeq: &s.Seq})
		if err != nil {
			return err
		}
		for _, m := range r.JSON200.Items {
			if m.Role == "assistant" {
				last = m.Content
			}
		}
		return nil
	})
	return last, err
}

// marksAre wants the workspace to hold so many marks.
func (w *walk) marksAre(ctx context.Context, n int) error {
	if err := w.send(ctx, "wc -l marks"); err != nil {
		return err
	}
	said, err := w.said(ctx)
	if err != nil {
		return err
	}
	if !strings.Contains(said, fmt.Sprintf("\n%d marks\n", n)) {
		return fmt.Errorf("%s: want %d marks: %q", w.id, n, said)
	}
	return nil
}

// invoke calls into the sandbox: its agent says that it is well.
func (w *walk) invoke(ctx context.Context) error {
	gateway := 0
	return w.alice.do(ctx, func(ctx context.Context, _ *apiclient.ClientWithResponses) error {
		gateway++
		url := w.alice.in.urlOf(gateway%len(w.alice.apis)) + "/v1/sessions/" + w.id + "/invoke/health"
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+w.alice.in.token("alice"))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return err
		}
		if resp.StatusCode/100 != 2 {
			return fmt.Errorf("invoke: %s", resp.Status)
		}
		return nil
	})
}

// life is the whole walk.
func (w *walk) life(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"create", w.create},
		{"a command that is asked about", func(ctx context.Context) error { return w.send(ctx, "echo once >> marks") }},
		{"invoke", w.invoke},
		{"suspend", w.suspend},
		{"its mark", func(ctx context.Context) error { return w.marksAre(ctx, 1) }},
		{"terminate", w.terminate},
	} {
		bounded, cancel := context.WithTimeout(ctx, patience)
		err := step.do(bounded)
		cancel()
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return nil
}

// suspend puts the session away; it may be in use still for a moment after a call.
func (w *walk) suspend(ctx context.Context) error {
	for {
		err := w.alice.do(ctx, func(ctx context.Context, a *apiclient.ClientWithResponses) error {
			_, err := a.SuspendSessionWithResponse(ctx, w.id, nil)
			return err
		})
		if refused, ok := errors.AsType[*api.Error](err); ok && refused.Problem.Status == http.StatusConflict {
			// In use, or suspended already by a request whose answer was lost.
			s, failed := w.alice.until(ctx, w.id, "it is there", func(*api.Session) bool { return true })
			switch {
			case failed != nil:
				return errors.Join(failed, err)
			case s.Phase == api.SessionPhaseReady && breathe(ctx):
				continue
			case s.Phase == api.SessionPhaseReady:
				return err // in use for all the time
			}
		} else if err != nil {
			return err
		}
		_, err = w.alice.until(ctx, w.id, "it is suspended", func(s *api.Session) bool { return s.Phase == api.SessionPhaseSuspended })
		return err
	}
}

func (w *walk) terminate(ctx context.Context) error {
	err := w.alice.do(ctx, func(ctx context.Context, a *apiclient.ClientWithResponses) error {
		_, err := a.TerminateSessionWithResponse(ctx, w.id, nil, api.TerminateSession{})
		return err
	})
	if refused, ok := errors.AsType[*api.Error](err); err != nil && (!ok || refused.Problem.Code != api.CodeSessionEnded) {
		return err
	}
	_, err = w.alice.until(ctx, w.id, "it ended", func(s *api.Session) bool { return s.Phase == api.SessionPhaseEnded })
	return err
}

// load is walks, one after another, in several places at once.
type load struct {
	t    *testing.T
	done atomic.Int64
	stop atomic.Bool
	wg   sync.WaitGroup

	mu sync.Mutex
	// walks are those that came to their end. A session whose walk failed has none, and
	// who followed it would wait for good.
	walks []*walk
}

// startLoad begins walks in so many places.
func startLoad(t *testing.T, in *installation, places int) *load {
	t.Helper()
	l := &load{t: t}
	for p := range places {
		alice, bob := in.client("alice"), in.client("bob")
		l.wg.Go(func() {
			for i := 0; !l.stop.Load(); i++ {
				w := &walk{alice: alice, bob: bob, key: fmt.Sprintf("walk-%d-%d", p, i)}
				if err := w.life(context.Background()); err != nil {
					t.Errorf("%s: %v", w.key, err)
				} else {
					l.mu.Lock()
					l.walks = append(l.walks, w)
					l.mu.Unlock()
				}
				l.done.Add(1)
			}
		})
	}
	return l
}

// progress waits until so many more walks have come to their end.
func (l *load) progress(more int64) {
	l.t.Helper()
	want := l.done.Load() + more
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for l.done.Load() < want {
		if !breathe(ctx) {
			l.t.Fatalf("no progress: %d of %d walks", l.done.Load(), want)
		}
	}
}

// finish lets what has begun come to its end and gives all that did.
func (l *load) finish() []*walk {
	l.stop.Store(true)
	l.wg.Wait()
	return l.walks
}

// viewer follows a session over all disconnects, at any gateway, and keeps what it
// saw.
type viewer struct {
	session string
	frames  []api.Frame
	err     error
	done    chan struct{}
}

// view follows until done says so.
func (c *client) view(ctx context.Context, id string, done func(api.Frame) bool) *viewer {
	v := &viewer{session: id, done: make(chan struct{})}
	go func() {
		defer close(v.done)
		var after *string
		v.err = c.do(ctx, func(_ context.Context, a *apiclient.ClientWithResponses) error {
			resp, err := a.StreamSession(ctx, id, &api.StreamSessionParams{After: after})
			if err != nil {
				return err
			}
			for f, err := range apiclient.Frames(resp.Body) {
				if err != nil {
					return err
				}
				if f.Cursor != "" {
					after = &f.Cursor
				}
				v.frames = append(v.frames, f)
				if done(f) {
					return nil
				}
			}
			return errCut
		})
	}()
	return v
}

var errCut = errors.New("the stream was cut")

// whole wants every event of the session once and in order, and no gap.
func (v *viewer) whole(t *testing.T) {
	t.Helper()
	select {
	case <-v.done:
	case <-time.After(patience):
		t.Fatalf("the viewer of %s waits: saw %s", v.session, harness.Summary(v.frames))
	}
	if v.err != nil {
		t.Errorf("the viewer of %s: %v", v.session, v.err)
	}
	var n uint64
	for _, f := range v.frames {
		switch f.Kind {
		case api.FrameKindEvent, api.FrameKindPrompt:
			if f.N != n+1 {
				t.Errorf("after event %d came %d", n, f.N)
			}
			n = f.N
		case api.FrameKindControl:
			if strings.Contains(string(f.Data), "gap") {
				t.Errorf("a gap: %s", f.Data)
			}
		case api.FrameKindAgui:
		}
	}
}

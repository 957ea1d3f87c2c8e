package agui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/gateway/internal/hub"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

const (
	// beat is the silence after which a client gets a heartbeat.
	beat = 15 * time.Second
	// patience is how long the last output of a run that has ended is waited for.
	patience = 20 * time.Second
)

// story is what a stream still has to tell. Runs come in their order, so the output
// of one is complete before that of the next begins; but events and output come by two
// ways, and the end of a run may be heard of before its last words.
type story struct {
	// since is the version behind which everything is to be told.
	since uint64
	// waits are the runs whose ends are waited for; child is the parked run whose
	// continuation is, "" for none.
	waits map[string]bool
	child string
	// runs are those that have begun since, by id.
	runs map[string]*told
	// end is how the last of them ended.
	end session.RunEnd
	// look says that the thread may wait for somebody: it has to be read.
	look bool
	// torn says that output is missing, over that the session has ended.
	torn, over bool
	// endedAt is when the first end was heard of whose output isn't all there.
	endedAt time.Time
}

// told is a run in the story: up to which k it was told, and how far there is to tell.
type told struct{ k, lastK uint64 }

// tell tells how the thread stands, and follows it to its end.
func (x *exchange) tell(ctx context.Context) error {
	st := x.story()
	if err := x.out.begin(x.snapshot(x.standing.before, x.standing.waiting, x.brought()), x.standing.state); err != nil {
		return err
	}
	for {
		over, err := x.settle(ctx, st)
		if over || err != nil {
			return err
		}
		f, err := x.next(ctx)
		if err != nil {
			return err
		}
		if err := x.frame(st, f); err != nil {
			return err
		}
	}
}

// story is what follows from how the thread stood and what the request has done.
func (x *exchange) story() *story {
	s := x.standing
	st := &story{since: s.n, waits: map[string]bool{}, runs: map[string]*told{}}
	if s.last != nil {
		st.end = *s.last
	}
	if s.run != nil {
		st.since = s.run.StartN - 1
		st.waits[s.run.ID] = true
	}
	if s.interrupted != nil {
		st.child, st.look = s.interrupted.RunID, true
	}
	for _, run := range s.queue {
		st.waits[run] = true
	}
	if x.sent != "" {
		st.waits[x.sent] = true
	}
	return st
}

// settle ends the stream if there is nothing more to tell now.
func (x *exchange) settle(ctx context.Context, st *story) (over bool, _ error) {
	if !st.complete(time.Now()) {
		return false, nil
	}
	if st.look {
		st.look = false
		a, err := x.awaited(ctx)
		if err != nil {
			return false, err
		}
		if a.any() {
			return true, x.conclude(ctx, st, func() error { return x.out.finished(a.outcome()) }, len(a.interrupts) > 0)
		}
	}
	if len(st.waits) > 0 || st.child != "" {
		if !st.over {
			return false, nil
		}
		st.end = session.RunEnd{Outcome: "failed", Cause: string(api.CodeSessionEnded), Detail: "the session is over"}
	}
	return true, x.conclude(ctx, st, func() error { return x.ended(ctx, st.end) }, false)
}

// complete says that all output of the runs that have ended was told, or can't be.
func (st *story) complete(now time.Time) bool {
	for _, r := range st.runs {
		if r.k < r.lastK && !st.torn {
			if st.endedAt.IsZero() {
				st.endedAt = now
			}
			if now.Sub(st.endedAt) < patience {
				return false
			}
			st.torn = true
		}
	}
	st.endedAt = time.Time{}
	return true
}

// awaited reads what the thread waits for.
func (x *exchange) awaited(ctx context.Context) (a awaited, err error) {
	err = x.cfg.Live.Session(ctx, x.who.Tenant, x.id, func(s *session.State) error {
		a = awaitedBy(s)
		return nil
	})
	return a, err
}

// conclude writes what belongs before the end, and the end. whole wants the thread as
// it is now in front of it, as does a stream that lacks something.
func (x *exchange) conclude(ctx context.Context, st *story, end func() error, whole bool) error {
	s, err := x.read(ctx)
	if err != nil {
		return err
	}
	for _, e := range s.results(x.out.order.unanswered) {
		if err := x.out.pass(e); err != nil {
			return err
		}
	}
	if whole || st.torn || x.out.order.torn {
		for _, e := range x.out.order.close() { // a snapshot in the middle of a message would be of neither
			if err := x.out.write(e); err != nil {
				return err
			}
		}
		if err := x.out.snapshots(x.snapshot(s.all, s.waiting), s.state); err != nil {
			return err
		}
	}
	return end()
}

// ended writes the end that the last run had.
func (x *exchange) ended(ctx context.Context, end session.RunEnd) error {
	switch {
	case end.Outcome == "failed":
		message := end.Detail
		if message == "" {
			message = "The run failed."
		}
		return x.out.failed(end.Cause, message)
	case end.Outcome == "cancelled" && !x.in.cancel:
		// A session that ends takes its runs with it, and says why.
		var cause string
		if err := x.cfg.Live.Session(ctx, x.who.Tenant, x.id, func(s *session.State) error {
			if s.Ending || s.Ended {
				cause = fmt.Sprintf("The session is over: %s, %s.", s.EndOutcome, s.EndCause)
			}
			return nil
		}); err != nil {
			return err
		}
		if cause == "" {
			return x.out.finished(cancelled())
		}
		return x.out.failed(string(api.CodeSessionEnded), cause)
	case end.Outcome == "cancelled":
		return x.out.finished(cancelled())
	}
	return x.out.finished(success(nil))
}

// next waits for the next frame. After a silence the client gets a heartbeat, and the
// frame is an empty one: what is waited for may have been for too long.
func (x *exchange) next(ctx context.Context) (hub.Followed, error) {
	wait, cancel := context.WithTimeout(ctx, beat)
	defer cancel()
	f, err := x.follower.Next(wait)
	if closed, ok := errors.AsType[*hub.ClosedError](err); ok {
		return f, problem.Wrap(api.CodeNotReady, "The stream ended.", closed)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return hub.Followed{}, x.out.heartbeat()
	}
	return f, err
}

// frame takes a frame into the story, and into the stream what of it belongs there.
func (x *exchange) frame(st *story, f hub.Followed) error {
	switch f.Kind {
	case view.FrameAgui:
		r := st.runs[f.Run]
		if r == nil {
			return nil // of a run before
		}
		var said []json.RawMessage
		if err := json.Unmarshal(f.Data, &said); err != nil {
			return fmt.Errorf("output of run %s: %w", f.Run, err)
		}
		for _, e := range said {
			if err := x.out.pass(e); err != nil {
				return err
			}
		}
		r.k = max(r.k, f.LastK)
	case view.FramePrompt:
		st.look = st.look || f.N > st.since
	case view.FrameEvent:
		if f.N > st.since {
			return st.event(f.Data)
		}
	case view.FrameControl:
		st.control(f)
	}
	return nil
}

func (st *story) control(f hub.Followed) {
	var c struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(f.Data, &c) == nil && c.Type == "gap" {
		st.torn = true
	}
	st.over = st.over || f.Last
}

// event takes an event of the log into the story.
func (st *story) event(data []byte) error {
	var e struct {
		Type string `json:"type"`
		Data struct {
			RunID       string `json:"runId"`
			ParentRunID string `json:"parentRunId"`
			LastK       uint64 `json:"lastK"`
			Outcome     string `json:"outcome"`
			Cause       string `json:"cause"`
			Detail      string `json:"detail"`
		} `json:"data"`
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("event frame: %w", err)
	}
	run := e.Data.RunID
	switch e.Type {
	case session.TypeRunStarted:
		st.runs[run] = &told{}
		if e.Data.ParentRunID != "" && e.Data.ParentRunID == st.child {
			st.child, st.waits[run] = "", true
		}
	case session.TypeRunInterrupted:
		st.close(run, e.Data.LastK, session.RunEnd{RunID: run, Outcome: "interrupt"})
		st.child, st.look = run, true
	case session.TypeRunFinished:
		st.close(run, e.Data.LastK, session.RunEnd{RunID: run, Outcome: e.Data.Outcome})
	case session.TypeRunFailed:
		st.close(run, e.Data.LastK, session.RunEnd{RunID: run, Outcome: "failed", Cause: e.Data.Cause, Detail: e.Data.Detail})
	}
	return nil
}

// close notes the end of a run.
func (st *story) close(run string, lastK uint64, end session.RunEnd) {
	if r := st.runs[run]; r != nil {
		r.lastK = max(r.lastK, lastK)
	}
	delete(st.waits, run)
	if st.child == run {
		st.child = "" // it was cancelled while it was parked
	}
	st.end = end
}

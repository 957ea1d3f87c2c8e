package invoke

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

const (
	// defaultIdle stands for the idle timeout of a session that has none.
	defaultIdle = 15 * time.Minute
	// maxUse is what the session service lets a holder claim ahead; see its decider.
	maxUse = time.Hour
	// linger is how long a use outlives its last call: calls come in bursts, and each
	// note is an event that is kept for ever.
	linger = 2 * time.Second
	// noteTimeout bounds a note that no request waits for.
	noteTimeout = 5 * time.Second
)

// gateway is the actor of what the gateway does by itself.
var gateway = events.Actor{Kind: events.ActorService, ID: "gateway"}

// uses are the sandboxes that this gateway uses now. Their key has the incarnation:
// a session that lost its sandbox or gave it back holds for nobody any more, so calls
// of the next one may not join a use that was noted before.
type uses struct {
	commands *command.Client
	logger   *slog.Logger

	mu   sync.Mutex
	open map[target]*use
	// running counts the goroutines that keep uses.
	running sync.WaitGroup
	// ctx ends when the gateway stops.
	ctx context.Context
}

// use is the use of one sandbox. noted is closed once the first note came back.
type use struct {
	// holder names this use, and no other, among the session's holders: the release of
	// one use may be decided after the first note of the next, and must not end it.
	holder string
	calls  int
	noted  chan struct{}
	err    error
	// changed is told when calls became 0 or more than 0 again.
	changed chan struct{}
}

func newUses(ctx context.Context, commands *command.Client, logger *slog.Logger) *uses {
	return &uses{commands: commands, logger: logger, ctx: ctx, open: map[target]*use{}}
}

// begin notes that the sandbox is used, or joins a use that stands, and gives what
// ends it. The error is the session service's refusal: not ready.
func (u *uses) begin(ctx context.Context, key target, idle time.Duration) (end func(), err error) {
	if idle <= 0 {
		idle = defaultIdle
	}
	u.mu.Lock()
	if u.ctx.Err() != nil {
		u.mu.Unlock()
		return nil, unreachable(u.ctx.Err())
	}
	one, standing := u.open[key]
	if !standing {
		one = &use{holder: events.RandomID("gateway"), noted: make(chan struct{}), changed: make(chan struct{}, 1)}
		u.open[key] = one
		u.running.Go(func() { u.keep(key, one, idle) }) //nolint:contextcheck // it outlives this call, for those that join
	}
	one.calls++
	u.mu.Unlock()
	select {
	case <-one.noted:
	case <-ctx.Done():
		u.end(one)
		return nil, ctx.Err()
	}
	if one.err != nil {
		u.end(one)
		return nil, one.err
	}
	one.tell()
	return sync.OnceFunc(func() { u.end(one) }), nil
}

func (u *uses) end(one *use) {
	u.mu.Lock()
	one.calls--
	u.mu.Unlock()
	one.tell()
}

func (o *use) tell() {
	select {
	case o.changed <- struct{}{}:
	default: // it has been told and not looked yet
	}
}

// keep notes the use, renews the note at each quarter of the idle timeout while
// calls are open, and releases it when none was for a moment.
func (u *uses) keep(key target, one *use, idle time.Duration) {
	every := min(idle, maxUse) / 4
	one.err = u.note(u.ctx, key, one, 2*every)
	close(one.noted)
	if one.err != nil {
		u.forget(key, one, func() bool { return true })
		return
	}
	renew := time.NewTicker(every)
	defer renew.Stop()
	quiet := time.NewTimer(min(linger, every))
	defer quiet.Stop()
	for {
		select {
		case <-renew.C:
			if err := u.note(u.ctx, key, one, 2*every); err != nil {
				u.logger.Warn("use of a sandbox not renewed", "session", key.session, "err", err)
			}
		case <-one.changed:
			quiet.Reset(min(linger, every))
		case <-quiet.C:
			if u.forget(key, one, func() bool { return one.calls == 0 }) {
				u.release(key, one)
				return
			}
		case <-u.ctx.Done():
			u.forget(key, one, func() bool { return true })
			u.release(key, one)
			return
		}
	}
}

// wait returns when all uses have been given back, after ctx has ended.
func (u *uses) wait() {
	// Whoever began before ctx ended has its goroutine counted once the lock is free.
	u.mu.Lock()
	u.mu.Unlock() //nolint:staticcheck // passing through is the point
	u.running.Wait()
}

// forget takes the use away if the condition holds: whoever comes next begins
// another.
func (u *uses) forget(key target, one *use, condition func() bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !condition() {
		return false
	}
	if u.open[key] == one {
		delete(u.open, key)
	}
	return true
}

// release gives the sandbox back. Failing it does no harm: the note ends by itself.
func (u *uses) release(key target, one *use) {
	if err := u.note(context.WithoutCancel(u.ctx), key, one, 0); err != nil {
		u.logger.Debug("use of a sandbox not released, it ends by itself", "session", key.session, "err", err)
	}
}

// note tells the session service until when the sandbox is used; 0 releases.
func (u *uses) note(ctx context.Context, key target, one *use, ahead time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	activity := verbs.ActivityBody{Holder: one.holder}
	if ahead > 0 {
		activity.Until = time.Now().Add(ahead).UTC()
	}
	body, err := json.Marshal(activity)
	if err != nil {
		return fmt.Errorf("encode activity: %w", err)
	}
	_, err = u.commands.Do(ctx, events.ServiceSession, key.tenant, verbs.NoteActivity, command.Request{
		Actor: gateway, Session: key.session, Body: body,
	})
	if err != nil {
		return problem.From(err)
	}
	return nil
}

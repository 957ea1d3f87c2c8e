package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/services/gateway"
	"github.com/holdfast-io/holdfast/services/holdfast/parts"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/command"
)

// startTimeout bounds the time until every part works; while the views catch up with
// what the log got without them, it is the time in which nothing moves.
const startTimeout = 60 * time.Second

// settle waits until every part works, applies what a new dev has, and makes the
// console's URL.
func (p *Program) settle(ctx context.Context, g ground, gw *gateway.Gateway) error {
	if err := p.waitReady(ctx, startTimeout); err != nil {
		return err
	}
	nc, err := g.broker.Connect(ctx, broker.UserGateway)
	if err != nil {
		return err
	}
	defer nc.Close()
	log, closeLog, err := p.OpenLog(ctx)
	if err != nil {
		return err
	}
	defer closeLog()
	if err := applyDefaults(ctx, &command.Client{NC: nc}, definedIn(log)); err != nil {
		return err
	}
	p.ConsoleURL = p.URL + "/#code=" + gw.NewCode("admin")
	return nil
}

// definedIn says, by the log, whether a runtime or policy is there and not removed.
func definedIn(log eventlog.Log) func(context.Context, events.Aggregate, string) bool {
	return func(ctx context.Context, aggregate events.Aggregate, name string) bool {
		subject, err := events.SubjectOf(aggregate, Tenant, name)
		if err != nil {
			return false
		}
		last, ok, err := log.Last(ctx, subject)
		if err != nil || !ok {
			return false
		}
		final := last.Envelope.Events[len(last.Envelope.Events)-1].Type
		return final != policy.TypeRemoved && final != runtime.TypeRemoved
	}
}

var errEnded = errors.New("the start was given up")

// waitReady asks readyz until it says yes; what it said last tells what isn't. Views
// that catch up with a long log may take longer than patience, as long as they move:
// giving up would only have them begin again.
func (p *Program) waitReady(ctx context.Context, patience time.Duration) error {
	last := errors.New("no answer yet")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case <-p.done: // a part ended: why is what there is to say
			return errors.Join(p.err, errEnded)
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w: %w", ctx.Err(), last)
		case <-late.C:
			select {
			case <-p.done:
				return errors.Join(p.err, errEnded)
			default:
				return fmt.Errorf("not ready: %w", last)
			}
		case <-tick.C:
		}
		before := last
		if last = p.ready(ctx); last == nil {
			return nil
		}
		if errors.Is(last, errCatchingUp) && last.Error() != before.Error() {
			late.Reset(patience)
		}
	}
}

// errCatchingUp says that all works but for views that are behind.
var errCatchingUp = errors.New("the views catch up")

func (p *Program) ready(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var r api.Readiness
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&r); err != nil {
		return err
	}
	if r.Ready {
		return nil
	}
	var missing []string
	for _, part := range r.Parts {
		if !part.Ready {
			missing = append(missing, part.Name+": "+part.Detail)
		}
	}
	if len(missing) == 1 && strings.HasPrefix(missing[0], "projector: ") {
		return fmt.Errorf("%w: %s", errCatchingUp, missing[0])
	}
	return errors.New(strings.Join(missing, "; "))
}

// Done is closed when the program has ended by itself.
func (p *Program) Done() <-chan struct{} { return p.done }

// Stop ends everything in order and waits for it. It may be called again.
func (p *Program) Stop() error {
	p.cancel()
	<-p.done
	return errors.Join(p.err, p.close())
}

// close undoes the start, last things first, once.
func (p *Program) close() error {
	var err error
	p.once.Do(func() {
		for _, f := range slices.Backward(p.closers) {
			err = errors.Join(err, f())
		}
	})
	return err
}

// Banner says what a person needs who has just started dev.
func (p *Program) Banner() string {
	dir := ""
	if d, err := DefaultDataDir(); err != nil || d != p.DataDir {
		dir = " --data-dir " + p.DataDir
	}
	command := "holdfast"
	if self, err := os.Executable(); err == nil && strings.Contains(self, "go-build") {
		command = "go run ./services/holdfast"
	}
	isolation := p.cfg.Isolation
	if isolation == "" {
		isolation = "namespaces"
	}
	warn := ""
	if isolation == "none" {
		warn = "   ← agents run as plain processes of this user"
	}
	return fmt.Sprintf(`  console    %s
  api        %s
  isolation  %s%s
  runtimes   shell (each line of a message is a command; a person is asked before most)
  tokens     %s (admin, alice, bob)

  next       %s demo%s
             or open the console, create a session of runtime shell, and send it: ls -la
`, p.ConsoleURL, p.URL, isolation, warn, TokensFile(p.DataDir), command, dir)
}

// Connect connects to the running program's NATS as one of its users; close it.
func (p *Program) Connect(ctx context.Context, u broker.User) (*nats.Conn, error) {
	return p.broker.Connect(ctx, u)
}

// OpenLog opens the running program's log for reading; close it.
func (p *Program) OpenLog(ctx context.Context) (eventlog.Log, func(), error) {
	return parts.ReadLog(ctx, p.broker)
}

// Package remote is the driver of the workload service: it has the host of the
// sandboxes, another process, do everything (see package hostapi). Replicas of the
// service share a host; its driver serialises what they want of one session and
// refuses older intents, as it would for one.
package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/hostapi"
)

// Config of a Driver; all is required.
type Config struct {
	// NC is a connection as the NATS user "workload". It stays the caller's.
	NC *nats.Conn
	// Host is the host's name, a token of a subject.
	Host string
	// Granter answers the host when a sandbox redeems its bind.
	Granter Granter
	Logger  *slog.Logger
}

// Granter redeems binds and renews tokens without any memory of its own: the host
// lets an incarnation redeem one bind, and presents it again to renew.
type Granter interface {
	// Redeem verifies the signed bind and its Pod UID.
	Redeem(ctx context.Context, podUID, bind string) (sandboxapi.Grant, error)
	// Renew is Redeem for a bind that was redeemed, and may have expired since.
	Renew(ctx context.Context, podUID, bind string) (sandboxapi.Grant, error)
}

// Driver implements driver.Driver. Its errors are those of the host's driver, or
// driver.ErrUnreachable where the host doesn't answer.
type Driver struct {
	cfg     Config
	answers *hostapi.Answerer
	sub     *nats.Subscription
	events  chan driver.Event
	stop    chan struct{}
	pump    sync.WaitGroup
	once    sync.Once
	ended   error
}

var _ driver.Driver = (*Driver)(nil)

// group is the queue group of the replicas: one of them answers and is told.
const group = "workload"

// told is how many events may wait; those beyond are found by a sweep.
const told = 4096

// New makes a Driver. The host needs not be there yet.
func New(cfg Config) (*Driver, error) {
	if cfg.NC == nil || cfg.Granter == nil || cfg.Logger == nil || !events.ValidToken(cfg.Host) {
		return nil, fmt.Errorf("remote driver: %w: NC, Host, Granter and Logger are required", driver.ErrInvalid)
	}
	ask, err := hostapi.AskSubject(cfg.Host, "*")
	if err != nil {
		return nil, err
	}
	tell, err := hostapi.TellSubject(cfg.Host)
	if err != nil {
		return nil, err
	}
	d := &Driver{cfg: cfg, events: make(chan driver.Event), stop: make(chan struct{})}
	messages := make(chan *nats.Msg, told)
	if d.sub, err = cfg.NC.ChanQueueSubscribe(tell, group, messages); err != nil {
		return nil, fmt.Errorf("events of host %s: %w", cfg.Host, err)
	}
	d.answers, err = hostapi.Answer(cfg.NC, ask, group, map[hostapi.Verb]hostapi.Handler{
		hostapi.VerbRedeem: hostapi.Handle(func(ctx context.Context, r hostapi.Redemption) (sandboxapi.Grant, error) {
			return cfg.Granter.Redeem(ctx, r.PodUID, r.Bind)
		}),
		hostapi.VerbRenew: hostapi.Handle(func(ctx context.Context, r hostapi.Redemption) (sandboxapi.Grant, error) {
			return cfg.Granter.Renew(ctx, r.PodUID, r.Bind)
		}),
	}, cfg.Logger)
	if err != nil {
		return nil, errors.Join(err, d.sub.Unsubscribe())
	}
	d.pump.Go(func() { d.pass(messages) })
	return d, nil
}

// pass hands the host's events on, until Close.
func (d *Driver) pass(messages <-chan *nats.Msg) {
	defer close(d.events)
	for {
		select {
		case <-d.stop:
			return
		case m := <-messages:
			var e driver.Event
			if err := json.Unmarshal(m.Data, &e); err != nil {
				d.cfg.Logger.Warn("the host tells nonsense", "host", d.cfg.Host, "err", err)
				continue
			}
			select {
			case d.events <- e:
			case <-d.stop:
				return
			}
		}
	}
}

// Close ends this end; sandboxes go on.
func (d *Driver) Close() error {
	d.once.Do(func() {
		d.ended = d.sub.Unsubscribe()
		if errors.Is(d.ended, nats.ErrConnectionClosed) {
			d.ended = nil
		}
		close(d.stop)
		d.ended = errors.Join(d.ended, d.answers.Stop())
	})
	d.pump.Wait()
	return d.ended
}

// do has the host carry out a verb.
func do[T any](ctx context.Context, d *Driver, verb hostapi.Verb, body any) (T, error) {
	var zero T
	select {
	case <-d.stop:
		return zero, driver.ErrClosed
	default:
	}
	subject, err := hostapi.DoSubject(d.cfg.Host, verb)
	if err != nil {
		return zero, err
	}
	return hostapi.Call[T](ctx, d.cfg.NC, subject, body)
}

// Claim implements driver.Driver.
func (d *Driver) Claim(ctx context.Context, c driver.Claim) (driver.Sandbox, error) {
	return do[driver.Sandbox](ctx, d, hostapi.VerbClaim, c)
}

// Resume implements driver.Driver.
func (d *Driver) Resume(ctx context.Context, c driver.Claim) (driver.Sandbox, error) {
	return do[driver.Sandbox](ctx, d, hostapi.VerbResume, c)
}

// Suspend implements driver.Driver.
func (d *Driver) Suspend(ctx context.Context, ref driver.Ref, intent uint64) error {
	_, err := do[hostapi.None](ctx, d, hostapi.VerbSuspend, hostapi.Effect{Ref: ref, Intent: intent})
	return err
}

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, ref driver.Ref, intent uint64, keepWorkspace bool) error {
	_, err := do[hostapi.None](ctx, d, hostapi.VerbRelease, hostapi.Effect{Ref: ref, Intent: intent, KeepWorkspace: keepWorkspace})
	return err
}

// Locate implements driver.Driver.
func (d *Driver) Locate(ctx context.Context, ref driver.Ref) (driver.Endpoint, error) {
	return do[driver.Endpoint](ctx, d, hostapi.VerbLocate, ref)
}

// Bind implements driver.Driver.
func (d *Driver) Bind(ctx context.Context, ref driver.Ref, bind string) (sandboxapi.Health, error) {
	return do[sandboxapi.Health](ctx, d, hostapi.VerbBind, hostapi.Bind{Ref: ref, Bind: bind})
}

// Ready implements driver.Driver.
func (d *Driver) Ready(ctx context.Context, ref driver.Ref, bound sandboxapi.Health) (sandboxapi.Health, error) {
	if bound.Entrypoint.Answers() {
		return bound, nil
	}
	return do[sandboxapi.Health](ctx, d, hostapi.VerbReady, ref)
}

// List implements driver.Driver. What comes or goes meanwhile may be missing; no
// sandbox is there twice.
func (d *Driver) List(ctx context.Context) ([]driver.Found, error) {
	var (
		found []driver.Found
		after driver.Ref
	)
	for {
		page, err := do[hostapi.Page](ctx, d, hostapi.VerbList, hostapi.List{After: after})
		if err != nil {
			return nil, err
		}
		found = append(found, page.Found...)
		if !page.More || len(page.Found) == 0 {
			return found, nil
		}
		after = found[len(found)-1].Ref
	}
}

// Events implements driver.Driver. Of several replicas one gets each event.
func (d *Driver) Events() <-chan driver.Event { return d.events }

// EnsurePool implements driver.Driver.
func (d *Driver) EnsurePool(ctx context.Context, runtime driver.RuntimeSpec, size int) error {
	_, err := do[hostapi.None](ctx, d, hostapi.VerbPool, hostapi.Pool{Runtime: runtime, Size: size})
	return err
}

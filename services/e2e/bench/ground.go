package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/install"
)

const (
	// tenant is where everything measured happens, recipe the runtime of its sessions.
	tenant = "bench"
	recipe = "coder"
)

// ground is what most benchmarks stand on: the embedded server as dev runs it, with
// the installed streams.
type ground struct {
	lab     *lab
	broker  *broker.Broker
	epoch   string
	closers []func() error
}

// newGround starts a ground with one runtime applied. Close it. Only where nothing
// that is measured writes to the log may it do without syncing each append.
func (l *lab) newGround(ctx context.Context, sync bool) (g *ground, err error) {
	g = &ground{lab: l}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.close())
		}
	}()
	dir, err := l.folder("nats")
	if err != nil {
		return g, err
	}
	g.broker, err = broker.Start(broker.Config{Dir: dir, SyncAlways: sync, Logger: l.logger})
	if err != nil {
		return g, err
	}
	g.onClose(func() error { g.broker.Stop(); return nil })
	c, err := g.connect(ctx, broker.UserInstaller)
	if err != nil {
		return g, err
	}
	genesis, err := install.Run(ctx, c.js)
	if err != nil {
		return g, err
	}
	g.epoch = genesis.Epoch
	workload, err := g.connect(ctx, broker.UserWorkload)
	if err != nil {
		return g, err
	}
	return g, workload.applyRuntime(ctx)
}

func (g *ground) onClose(f func() error) { g.closers = append(g.closers, f) }

// close ends what was started, last things first.
func (g *ground) close() error {
	var err error
	for _, f := range slices.Backward(g.closers) {
		err = errors.Join(err, f())
	}
	g.closers = nil
	return err
}

// connection is a user's, with the log on it.
type connection struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	log *natslog.Log
}

// connect connects as a user until the ground is closed.
func (g *ground) connect(ctx context.Context, user broker.User) (connection, error) {
	nc, err := g.broker.Connect(ctx, user)
	if err != nil {
		return connection{}, err
	}
	g.onClose(func() error { nc.Close(); return nil })
	return onConnection(nc)
}

func onConnection(nc *nats.Conn) (connection, error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return connection{}, err
	}
	log, err := natslog.New(js, nc, natslog.Options{})
	return connection{nc: nc, js: js, log: log}, err
}

// spec is the design's example of a runtime, as far as a session's terms go.
func spec() runtime.Spec {
	const minute = events.Duration(time.Minute)
	return runtime.Spec{
		Name: recipe, Kind: runtime.KindAgent,
		Adapter:     runtime.Adapter{Protocol: "agui", Entrypoint: "app", Path: "/run", Resume: "rerun"},
		Sandbox:     runtime.Sandbox{Command: []string{"/holdfast/sandboxd", "shell-agent"}},
		Workspace:   &runtime.Workspace{Path: "/workspace", Size: "5Gi"},
		Entrypoints: []runtime.Entrypoint{{Name: "app", PathPrefix: "/", Port: 8000, Protocol: "HTTP", Ready: "/health"}},
		Timeouts:    runtime.Timeouts{Claim: minute, Idle: 15 * minute, Max: 8 * 60 * minute, SuspendWhileWaiting: 2 * minute, DrainGrace: minute / 2},
		OnIdle:      "suspend", OnLoss: "restart", Policy: "default",
	}
}

// applyRuntime appends the runtime as the workload service would.
func (c connection) applyRuntime(ctx context.Context) error {
	subject, err := events.SubjectOf(events.AggregateRuntime, tenant, recipe)
	if err != nil {
		return err
	}
	record, err := runtime.New().ApplyRecord(spec())
	if err != nil {
		return err
	}
	_, err = c.log.Append(ctx, subject, events.Envelope{
		Command: "apply", Actor: person, Service: events.ServiceWorkload, N: 1, Time: time.Now().UTC(), Events: []events.Record{record},
	})
	if err != nil {
		return fmt.Errorf("apply runtime: %w", err)
	}
	return nil
}

// person is who asks for everything.
var person = events.Actor{Kind: events.ActorPerson, ID: "alice"}

// twin publishes the bytes of stored messages again, on subjects of its own, by a
// synchronous compare-and-set: what an append can't do without.
type twin struct {
	js   jetstream.JetStream
	last map[string]uint64
}

func newTwin(js jetstream.JetStream) *twin { return &twin{js: js, last: map[string]uint64{}} }

// publish stores m's bytes for the twin of its session. It isn't for concurrent use.
func (t *twin) publish(ctx context.Context, m events.Message) (time.Duration, error) {
	a, ok := events.ParseSubject(m.Subject)
	if !ok {
		return 0, fmt.Errorf("%s has no twin", m.Subject)
	}
	subject, err := events.SessionSubject(a.Tenant, a.Key+"-twin")
	if err != nil {
		return 0, err
	}
	msg := nats.NewMsg(subject)
	msg.Header.Set(events.HeaderTypes, m.Envelope.Types())
	msg.Data = m.Raw
	begin := time.Now()
	ack, err := t.js.PublishMsg(ctx, msg,
		jetstream.WithExpectStream(events.StreamEvents), jetstream.WithExpectLastSequencePerSubject(t.last[subject]))
	took := time.Since(begin)
	if err != nil {
		return 0, fmt.Errorf("baseline publish: %w", err)
	}
	t.last[subject] = ack.Sequence
	return took, nil
}

func mustJSON(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // of this program's own literals
	}
	return raw
}

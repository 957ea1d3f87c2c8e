package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/internal/broker"
)

// answers is the measurement of the way from a person's answer to the agent's next
// turn: the whole program as `holdfast dev` starts it, with an agent of ours that
// says when it was reached.
type answers struct {
	*program

	reports *net.UDPConn
	session string
	next    arrival
}

// measureAnswer compares it with the shortest message there and back.
func measureAnswer(ctx context.Context, l *lab) (f finding, err error) {
	a, err := l.newAnswers(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, a.close()) }()
	idle, err := l.newGround(ctx, true)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, idle.close()) }()
	bare, err := idle.echo(ctx)
	if err != nil {
		return f, err
	}
	pairs, count := l.size(50, 2), l.size(6, 1)
	var all rounds
	for range count {
		if err := a.newSession(ctx); err != nil { // a round each, so that sessions don't grow without end
			return f, err
		}
		r, err := inTurns(ctx, l.size(5, 1), 1, pairs, a.answer, bare)
		if err != nil {
			return f, err
		}
		all.ours, all.base = append(all.ours, r.ours...), append(all.base, r.base...)
	}
	return finding{
		title:    "Answer → continuation at the agent",
		baseline: "a request and its reply between two connections of an idle embedded NATS server",
		samples:  fmt.Sprintf("%d rounds of %d pairs, a session each", count, pairs),
		figures: []figure{
			latency("approve over HTTP → POST /run at the agent", all, 0.5, aim{}),
			latency("approve over HTTP → POST /run at the agent", all, 0.99, aim{}),
		},
		notes: []string{
			"In between, in order: the gateway's request to policy, a synced append of the answer, the runner's reactor, a synced append of run.started, the request to sandboxd over the sandbox's socket, and sandboxd's to the agent. The whole program runs beside it, and the agent is a plain process (isolation none), since one in a sandbox could not tell the time to the outside.",
		},
	}, nil
}

// newAnswers starts the program and applies a runtime with our agent.
func (l *lab) newAnswers(ctx context.Context) (a *answers, err error) {
	a = &answers{}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.close())
		}
	}()
	if a.program, err = l.newProgram(ctx, "none"); err != nil {
		return a, err
	}
	if a.reports, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		return a, err
	}
	return a, a.applyAgent(ctx, a.reports.LocalAddr().String())
}

func (a *answers) close() error {
	err := a.program.close()
	if a.reports != nil {
		err = errors.Join(err, a.reports.Close())
	}
	return err
}

// newSession makes a session whose agent has put its first question.
func (a *answers) newSession(ctx context.Context) error {
	created, err := a.client.CreateSessionWithResponse(ctx, nil, api.CreateSession{Runtime: recipe, Message: prose})
	if err != nil {
		return err
	}
	a.session = created.JSON201.ID
	a.next, err = a.hear(ctx)
	return err
}

// patience is how long a turn may take to come.
const patience = 30 * time.Second

// hear waits for the agent's next report.
func (a *answers) hear(ctx context.Context) (arrival, error) {
	deadline := time.Now().Add(patience)
	if until, ok := ctx.Deadline(); ok && until.Before(deadline) {
		deadline = until
	}
	if err := a.reports.SetReadDeadline(deadline); err != nil {
		return arrival{}, err
	}
	datagram := make([]byte, 2048)
	for {
		n, err := a.reports.Read(datagram)
		if err != nil {
			return arrival{}, fmt.Errorf("the agent's next turn: %w", err)
		}
		var got arrival
		if err := json.Unmarshal(datagram[:n], &got); err != nil {
			return arrival{}, err
		}
		if got.Session == a.session {
			return got, nil
		}
	}
}

// answer approves what is asked and gives how long the agent's next turn took to
// reach it.
func (a *answers) answer(ctx context.Context) (time.Duration, error) {
	if err := eventually(ctx, func() error { return a.parked(ctx) }); err != nil {
		return 0, err
	}
	begin := time.Now()
	_, err := a.client.DecideApprovalWithResponse(ctx, a.next.Call, nil, api.DecideApproval{Decision: api.AnswerApprove, ArgsHash: a.next.ArgsHash})
	if err != nil {
		return 0, err
	}
	if a.next, err = a.hear(ctx); err != nil {
		return 0, err
	}
	return time.Duration(a.next.At - begin.UnixNano()), nil
}

var errNotParked = errors.New("the run has not parked")

// parked says whether the run has ended with its question.
func (a *answers) parked(ctx context.Context) error {
	subject, err := events.SessionSubject(dev.Tenant, a.session)
	if err != nil {
		return err
	}
	last, ok, err := a.log.Last(ctx, subject)
	if err != nil {
		return err
	}
	if !ok || last.Envelope.Types() != session.TypeRunInterrupted {
		return fmt.Errorf("%w: the session's last event is %s", errNotParked, last.Envelope.Types())
	}
	return nil
}

// echo answers requests with what they say, and gives the operation of one.
func (g *ground) echo(ctx context.Context) (operation, error) {
	server, err := g.connect(ctx, broker.UserSession)
	if err != nil {
		return nil, err
	}
	const subject = "cmd.session.bench.echo"
	if _, err := server.nc.Subscribe(subject, func(m *nats.Msg) { _ = m.Respond(m.Data) }); err != nil { // the requester's timeout tells
		return nil, err
	}
	if err := server.nc.Flush(); err != nil {
		return nil, err
	}
	client, err := g.connect(ctx, broker.UserGateway)
	if err != nil {
		return nil, err
	}
	return timed(func(ctx context.Context) error {
		_, err := client.nc.RequestWithContext(ctx, subject, content)
		return err
	}), nil
}

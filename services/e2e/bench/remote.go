package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// prose is content as a client gives it.
const prose = "Please run the tests of the parser, find out why the one about nested quotes fails, and fix it without changing the grammar."

// measureRemote compares the latency of a message's way in from outside.
func measureRemote(ctx context.Context, l *lab) (f finding, err error) {
	s, err := l.newStand(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	// The services would take the twins' bytes for a broken chain.
	idle, err := l.newGround(ctx, true)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, idle.close()) }()
	bare, err := idle.connect(ctx, broker.UserSession)
	if err != nil {
		return f, err
	}
	reader, err := s.connect(ctx, broker.UserSession)
	if err != nil {
		return f, err
	}
	pairs, count := l.size(200, 4), l.size(7, 2)
	measure := func(send sender) (rounds, error) {
		return s.sendsFrom(ctx, send, reader, newTwin(bare.js), count, pairs)
	}
	overNATS, err := s.natsSender(ctx)
	if err != nil {
		return f, err
	}
	viaNATS, err := measure(overNATS)
	if err != nil {
		return f, fmt.Errorf("over NATS: %w", err)
	}
	overHTTP, err := s.httpSender()
	if err != nil {
		return f, err
	}
	viaHTTP, err := measure(overHTTP)
	if err != nil {
		return f, fmt.Errorf("over HTTP: %w", err)
	}
	return finding{
		title:    "The same command from outside, one writer",
		baseline: "a synchronous compare-and-set publish of the same bytes into the same stream of an idle server",
		samples:  fmt.Sprintf("%d rounds of %d pairs each; session service, gateway and projector run in this process and react to every message", count, pairs),
		figures: []figure{
			latency("send over NATS request/reply", viaNATS, 0.5, aim{}),
			latency("send over NATS request/reply", viaNATS, 0.99, aim{}),
			latency("send over HTTP, authenticated", viaHTTP, 0.5, aim{}),
			latency("send over HTTP, authenticated", viaHTTP, 0.99, aim{}),
		},
	}, nil
}

// sender gives a session a message and says where its event stands.
type sender func(ctx context.Context, session string) (seq uint64, err error)

func (s *stand) natsSender(ctx context.Context) (sender, error) {
	c, err := s.connect(ctx, broker.UserGateway)
	if err != nil {
		return nil, err
	}
	client := &command.Client{NC: c.nc}
	return func(ctx context.Context, session string) (uint64, error) {
		reply, err := client.Do(ctx, events.ServiceSession, tenant, verbs.Send, command.Request{
			Actor: person, Session: session, Body: mustJSON(verbs.SendBody{Content: content}),
		})
		return reply.Seq, err
	}, nil
}

func (s *stand) httpSender() (sender, error) {
	client, err := s.client()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, session string) (uint64, error) {
		sent, err := client.SendMessageWithResponse(ctx, session, nil, api.SendMessage{Content: prose})
		if err != nil {
			return 0, err
		}
		return strconv.ParseUint(sent.HTTPResponse.Header.Get("Holdfast-Seq"), 10, 64)
	}, nil
}

// sendsFrom measures messages to sessions that take turns.
func (s *stand) sendsFrom(ctx context.Context, send sender, reader connection, t *twin, count, pairs int) (rounds, error) {
	client, err := s.client()
	if err != nil {
		return rounds{}, err
	}
	var id string
	var last events.Message
	left := 0
	ours := func(ctx context.Context) (time.Duration, error) {
		if left == 0 {
			if id, err = createSession(ctx, client); err != nil {
				return 0, err
			}
			left = messagesEach
		}
		left--
		begin := time.Now()
		seq, err := send(ctx, id)
		took := time.Since(begin)
		if err != nil {
			return 0, err
		}
		last, err = reader.log.Get(ctx, seq)
		return took, err
	}
	base := func(ctx context.Context) (time.Duration, error) { return t.publish(ctx, last) }
	return inTurns(ctx, min(pairs, messagesEach), count, pairs, ours, base)
}

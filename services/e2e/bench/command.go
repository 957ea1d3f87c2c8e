package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/serving"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/session"
)

// messagesEach is how many messages one session gets before the next takes its
// place: a session queues no more than a hundred without a sandbox.
const messagesEach = 50

// content is a user's message of an ordinary length.
var content = mustJSON(prose)

// commander issues the session service's commands in its own process.
type commander struct {
	handlers map[string]command.Handler
	log      connection
	made     int
	name     string
}

func (g *ground) newCommander(ctx context.Context, name string) (*commander, error) {
	c, err := g.connect(ctx, broker.UserSession)
	if err != nil {
		return nil, err
	}
	return c.commander(g.epoch, name), nil
}

// commander issues commands on a connection.
func (c connection) commander(epoch, name string) *commander {
	return &commander{handlers: session.Commands(serving.Config{Log: c.log, Epoch: epoch}), log: c, name: name}
}

// create makes a session and gives the sequence of its first message.
func (c *commander) create(ctx context.Context) (id string, seq uint64, err error) {
	c.made++
	id = fmt.Sprintf("s-%s-%d", c.name, c.made)
	reply, err := c.do(ctx, verbs.Create, id, verbs.CreateBody{Runtime: recipe, BodyHash: id, Labels: map[string]string{"team": "parsers"}})
	return id, reply.Seq, err
}

// send gives a session a message.
func (c *commander) send(ctx context.Context, id string) (seq uint64, err error) {
	reply, err := c.do(ctx, verbs.Send, id, verbs.SendBody{Content: content})
	return reply.Seq, err
}

func (c *commander) do(ctx context.Context, verb, id string, body any) (command.Reply, error) {
	return c.handlers[verb](ctx, tenant, command.Request{
		CommandID: events.RandomID(events.PrefixCommand), Actor: person, Session: id,
		Deadline: time.Now().Add(time.Minute), Body: mustJSON(body),
	})
}

// measureCommand compares one writer's latency.
func measureCommand(ctx context.Context, l *lab) (f finding, err error) {
	g, err := l.newGround(ctx, true)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	c, err := g.newCommander(ctx, "latency")
	if err != nil {
		return f, err
	}
	pairs, count := l.size(250, 4), l.size(9, 2)
	sends, err := c.sends(ctx, newTwin(c.log.js), count, pairs)
	if err != nil {
		return f, err
	}
	creates, err := c.creates(ctx, newTwin(c.log.js), count, pairs/2)
	if err != nil {
		return f, err
	}
	return finding{
		title:    "Command → appended event, in process, one writer",
		baseline: "a synchronous compare-and-set publish of the same bytes into the same stream",
		samples:  fmt.Sprintf("%d rounds of %d pairs (create: %d)", count, pairs, pairs/2),
		figures: []figure{
			latency("send a message", sends, 0.5, aim{atMost: 1.3}),
			latency("send a message", sends, 0.99, aim{atMost: 1.3}),
			latency("create a session", creates, 0.5, aim{}),
			latency("create a session", creates, 0.99, aim{}),
		},
		notes: []string{"A create asks the stream's leader twice before it appends: for the runtime's revision, and whether the session is new."},
	}, nil
}

// sends measures messages to sessions that take turns.
func (c *commander) sends(ctx context.Context, t *twin, count, pairs int) (rounds, error) {
	var id string
	var last events.Message
	left := 0
	ours := func(ctx context.Context) (time.Duration, error) {
		if left == 0 {
			var err error
			if id, _, err = c.create(ctx); err != nil {
				return 0, err
			}
			left = messagesEach
		}
		left--
		begin := time.Now()
		seq, err := c.send(ctx, id)
		took := time.Since(begin)
		if err != nil {
			return 0, err
		}
		last, err = c.log.log.Get(ctx, seq)
		return took, err
	}
	base := func(ctx context.Context) (time.Duration, error) { return t.publish(ctx, last) }
	return inTurns(ctx, min(pairs, messagesEach), count, pairs, ours, base)
}

// creates measures creates of new sessions.
func (c *commander) creates(ctx context.Context, t *twin, count, pairs int) (rounds, error) {
	var last events.Message
	ours := func(ctx context.Context) (time.Duration, error) {
		begin := time.Now()
		_, seq, err := c.create(ctx)
		took := time.Since(begin)
		if err != nil {
			return 0, err
		}
		last, err = c.log.log.Get(ctx, seq)
		return took, err
	}
	base := func(ctx context.Context) (time.Duration, error) { return t.publish(ctx, last) }
	return inTurns(ctx, min(pairs, messagesEach), count, pairs, ours, base)
}

// writers is how many sessions write at once.
const writers = 64

// measureThroughput compares what many writers get done.
func measureThroughput(ctx context.Context, l *lab) (f finding, err error) {
	g, err := l.newGround(ctx, true)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	c, err := g.newCommander(ctx, "many")
	if err != nil {
		return f, err
	}
	twins := make([]*twin, writers)
	for w := range twins {
		twins[w] = newTwin(c.log.js)
	}
	each, count := l.size(messagesEach, 2), l.size(9, 2)
	var ours, base []time.Duration
	for round := range count + 1 {
		o, b, err := c.writeTogether(ctx, twins, each)
		if err != nil {
			return f, err
		}
		if round > 0 { // the first warms up
			ours, base = append(ours, o), append(base, b)
		}
	}
	return finding{
		title:    fmt.Sprintf("Command → appended event, in process, %d sessions writing", writers),
		baseline: "synchronous compare-and-set publishes of the same bytes by as many writers into the same stream",
		samples:  fmt.Sprintf("%d rounds of %d messages by each of %d writers", count, each, writers),
		figures:  []figure{rate("send a message", "msg", writers*each, ours, base, aim{atLeast: 0.7})},
	}, nil
}

// writeTogether is one round: all sessions write, then their twins the same.
func (c *commander) writeTogether(ctx context.Context, twins []*twin, each int) (ours, base time.Duration, err error) {
	ids := make([]string, len(twins))
	for w := range ids {
		if ids[w], _, err = c.create(ctx); err != nil {
			return 0, 0, err
		}
	}
	seqs := make([][]uint64, len(twins))
	ours, err = together(ctx, len(twins), func(ctx context.Context, w int) error {
		for range each {
			seq, err := c.send(ctx, ids[w])
			if err != nil {
				return err
			}
			seqs[w] = append(seqs[w], seq)
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	stored := make([][]events.Message, len(twins))
	for w := range stored {
		for _, seq := range seqs[w] {
			m, err := c.log.log.Get(ctx, seq)
			if err != nil {
				return 0, 0, err
			}
			stored[w] = append(stored[w], m)
		}
	}
	base, err = together(ctx, len(twins), func(ctx context.Context, w int) error {
		for _, m := range stored[w] {
			if _, err := twins[w].publish(ctx, m); err != nil {
				return err
			}
		}
		return nil
	})
	return ours, base, err
}

package hub

import (
	"context"
	"net/http"
	"strconv"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/cursor"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// subscribe starts a subscription; its frames follow `subscribed`.
func (s *socket) subscribe(m *api.WSSubscribe) error {
	operation := opSession
	if m.Inbox {
		operation = opInbox
	}
	who, err := s.admit(operation)
	if err != nil {
		return err
	}
	name, err := s.name()
	if err != nil {
		return err
	}
	sub := &subscription{out: s.conn.out, name: name}
	src, err := s.attach(who, m, sub)
	if err != nil {
		s.forget(name)
		return err
	}
	ctx, cancel := context.WithCancel(s.ctx)
	started := &socketSub{src: src, cancel: cancel, done: make(chan struct{})}
	s.mu.Lock()
	if s.subs == nil { // the connection ends
		s.mu.Unlock()
		cancel()
		src.detach()
		return nil
	}
	s.subs[name] = started
	s.mu.Unlock()
	s.reply(&api.WSSubscribed{Ref: m.Ref, Subscription: name})
	s.work.Go(func() {
		defer close(started.done)
		src.run(ctx)
	})
	return nil
}

// name reserves the name of the next subscription.
func (s *socket) name() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.subs) >= s.hub.cfg.SubscriptionsPerSocket {
		return "", problem.Newf(api.CodeQuotaExceeded, "A connection has at most %d subscriptions.", s.hub.cfg.SubscriptionsPerSocket)
	}
	if s.subs == nil {
		return "", problem.New(api.CodeNotReady, "The connection ends.")
	}
	s.next++
	name := strconv.FormatUint(uint64(s.next), 36)
	s.subs[name] = nil
	return name, nil
}

func (s *socket) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.subs, name)
}

func (s *socket) attach(who auth.Principal, m *api.WSSubscribe, sub *subscription) (source, error) {
	if m.Inbox {
		after, err := cursor.ParseInbox(m.After)
		if err != nil {
			return nil, badAfter()
		}
		return s.hub.attachInbox(s.ctx, who.Tenant, after, sub)
	}
	after, err := cursor.ParseSession(m.After)
	if err != nil {
		return nil, badAfter()
	}
	return s.hub.attach(s.ctx, sessionKey{who.Tenant, m.Session}, after, sub)
}

func badAfter() error {
	return problem.New(api.CodeInvalidCursor, "This cursor isn't one of this stream.").At("/after", "not a cursor of this stream")
}

// decide answers a question.
func (s *socket) decide(m *api.WSDecide) error {
	who, err := s.admit(opDecide)
	if err != nil {
		return err
	}
	body := api.DecideApproval{Decision: m.Decision, ArgsHash: m.ArgsHash, Comment: m.Comment}
	out, seq, first, err := s.hub.cfg.Commands.Decide(auth.With(s.ctx, who), m.ID, body, nil)
	if err != nil {
		return err
	}
	ack := &api.WSAck{Ref: m.Ref, Status: http.StatusOK, Seq: seq, Approval: &out}
	if first {
		ack.Status = http.StatusCreated
	}
	s.reply(ack)
	return nil
}

// send sends a message to a session.
func (s *socket) send(m *api.WSSend) error {
	who, err := s.admit(opSend)
	if err != nil {
		return err
	}
	var key *string
	if m.IdempotencyKey != "" {
		key = &m.IdempotencyKey
	}
	out, seq, err := s.hub.cfg.Commands.Send(auth.With(s.ctx, who), m.Session, api.SendMessage{Content: m.Content, WhenBusy: m.WhenBusy}, key)
	if err != nil {
		return err
	}
	s.reply(&api.WSAck{Ref: m.Ref, Status: http.StatusAccepted, Seq: seq, Message: &out})
	return nil
}

package natslog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

// codeNoMessage is the server's answer where a sequence or subject has none.
const codeNoMessage jetstream.ErrorCode = 10037

// getRequest is the body of STREAM.MSG.GET: one of the two.
type getRequest struct {
	Seq    uint64 `json:"seq,omitempty"`
	LastBy string `json:"last_by_subj,omitempty"`
}

// getResponse is its answer; data is base64 in JSON.
type getResponse struct {
	Error   *jetstream.APIError `json:"error,omitempty"`
	Message *struct {
		Subject string `json:"subject"`
		Seq     uint64 `json:"seq"`
		Data    []byte `json:"data"`
	} `json:"message,omitempty"`
}

// Last implements eventlog.Log.
func (l *Log) Last(ctx context.Context, subject string) (events.Message, bool, error) {
	if _, ok := events.ParseSubject(subject); !ok {
		return events.Message{}, false, fmt.Errorf("%w: %q", eventlog.ErrSubject, subject)
	}
	m, err := l.leaderRead(ctx, getRequest{LastBy: subject})
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		return events.Message{}, false, nil
	case err != nil:
		return events.Message{}, false, fmt.Errorf("last of %s: %w", subject, err)
	}
	return m, true, nil
}

// Get implements eventlog.Log.
func (l *Log) Get(ctx context.Context, seq uint64) (events.Message, error) {
	if seq == 0 {
		return events.Message{}, eventlog.ErrNotFound // 0 would ask for no sequence at all
	}
	m, err := l.leaderRead(ctx, getRequest{Seq: seq})
	if err != nil {
		return events.Message{}, fmt.Errorf("get %d: %w", seq, err)
	}
	return m, nil
}

// leaderRead asks the stream's leader, again while nobody answers, until ctx ends.
func (l *Log) leaderRead(ctx context.Context, req getRequest) (events.Message, error) {
	body, err := json.Marshal(req)
	if err != nil {
		return events.Message{}, err
	}
	var res getResponse
	err = l.retry(ctx, func(ctx context.Context) error {
		reply, err := l.nc.RequestWithContext(ctx, l.api("STREAM.MSG.GET."+events.StreamEvents), body)
		if err != nil {
			return err
		}
		res = getResponse{}
		if err := json.Unmarshal(reply.Data, &res); err != nil {
			return fmt.Errorf("answer to STREAM.MSG.GET: %w", err)
		}
		if res.Error != nil {
			return res.Error
		}
		return nil
	})
	var refused *jetstream.APIError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode == codeNoMessage:
		return events.Message{}, eventlog.ErrNotFound
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return events.Message{}, eventlog.ErrNoGenesis
	case err != nil:
		return events.Message{}, err
	case res.Message == nil:
		return events.Message{}, errors.New("answer to STREAM.MSG.GET holds neither message nor error")
	}
	return message(res.Message.Subject, res.Message.Seq, res.Message.Data), nil
}

// streamState gives the stream's extent as its leader knows it.
func (l *Log) streamState(ctx context.Context) (jetstream.StreamState, error) {
	var state jetstream.StreamState
	err := l.retry(ctx, func(ctx context.Context) error {
		stream, err := l.js.Stream(ctx, events.StreamEvents)
		if err != nil {
			return err
		}
		state = stream.CachedInfo().State
		return nil
	})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return state, eventlog.ErrNoGenesis
	case err != nil:
		return state, fmt.Errorf("info of stream %s: %w", events.StreamEvents, err)
	}
	return state, nil
}

// genesisAt reads the log's identity from its first message.
func (l *Log) genesisAt(ctx context.Context, first uint64) (eventlog.Genesis, error) {
	m, err := l.Get(ctx, max(first, 1))
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		return eventlog.Genesis{}, eventlog.ErrNoGenesis
	case err != nil:
		return eventlog.Genesis{}, err
	case m.Subject != events.SubjectGenesis:
		return eventlog.Genesis{}, eventlog.ErrNoGenesis
	}
	var g eventlog.Genesis
	if err := json.Unmarshal(m.Raw, &g); err != nil || g.LogID == "" || g.Epoch == "" {
		return eventlog.Genesis{}, fmt.Errorf("%w: its body is not one: %q", eventlog.ErrNoGenesis, m.Raw)
	}
	return g, nil
}

// retry runs a read, each time at most AttemptTimeout long, again while no leader
// answers. Reads change nothing, so asking again is always right.
func (l *Log) retry(ctx context.Context, read func(context.Context) error) error {
	pace := newPace()
	for {
		attempt, cancel := context.WithTimeout(ctx, l.opts.AttemptTimeout)
		err := read(attempt)
		cancel()
		if err == nil || !unanswered(err) {
			return err
		}
		if stop := pace.wait(ctx); stop != nil {
			return fmt.Errorf("%w: %w", stop, err)
		}
	}
}

// unanswered says that an error tells nothing of the stream: nobody answered, or
// the server can't at the moment.
func unanswered(err error) bool {
	var refused *jetstream.APIError
	if errors.As(err, &refused) {
		return refused.Code == 503
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrDisconnected) ||
		errors.Is(err, jetstream.ErrNoStreamResponse)
}

// api puts the API's prefix before a request's name: another in a domain or
// across accounts.
func (l *Log) api(name string) string {
	opts := l.js.Options()
	switch {
	case opts.APIPrefix != "":
		return opts.APIPrefix + name
	case opts.Domain != "":
		return "$JS." + opts.Domain + ".API." + name
	}
	return jetstream.DefaultAPIPrefix + name
}

package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
)

// GenesisError says that EVENTS is there and its first message is not its genesis.
// Nothing was changed: either this is not Holdfast's log, or it was emptied, and
// only an operator can say what to do about that.
type GenesisError struct {
	// Detail says what was found instead.
	Detail string
}

// Error names the way out.
func (e *GenesisError) Error() string {
	return fmt.Sprintf("stream %s has no genesis (%s): nothing was changed; restore the log, or move the stream away to begin a new one",
		events.StreamEvents, e.Detail)
}

// firstSeq is where a genesis stands: a log is never trimmed.
const firstSeq = 1

// verifyGenesis refuses a stream that held messages and doesn't begin with a
// genesis. A stream that isn't there, or never held any, is fine.
func (in installation) verifyGenesis(ctx context.Context) error {
	s, err := in.js.Stream(ctx, events.StreamEvents)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", events.StreamEvents, err)
	}
	if s.CachedInfo().State.LastSeq == 0 {
		return nil
	}
	_, err = readGenesis(ctx, s)
	return err
}

// readGenesis reads the first message of a stream that has held messages.
func readGenesis(ctx context.Context, s jetstream.Stream) (eventlog.Genesis, error) {
	var g eventlog.Genesis
	state := s.CachedInfo().State
	switch {
	case state.Msgs == 0:
		return g, &GenesisError{Detail: fmt.Sprintf("it was emptied at sequence %d", state.LastSeq)}
	case state.FirstSeq != firstSeq:
		return g, &GenesisError{Detail: fmt.Sprintf("it begins at sequence %d", state.FirstSeq)}
	}
	m, err := s.GetMsg(ctx, firstSeq)
	if err != nil {
		return g, fmt.Errorf("read first message of %s: %w", events.StreamEvents, err)
	}
	if m.Subject != events.SubjectGenesis {
		return g, &GenesisError{Detail: fmt.Sprintf("its first message is on %q", m.Subject)}
	}
	if err := json.Unmarshal(m.Data, &g); err != nil {
		return g, &GenesisError{Detail: "its first message can't be read: " + err.Error()}
	}
	if g.LogID == "" || g.Epoch == "" {
		return g, &GenesisError{Detail: "its first message names no log or no epoch"}
	}
	return g, nil
}

// genesis writes the first message, unless another did meanwhile, and gives it as
// it is stored.
func (in installation) genesis(ctx context.Context) (eventlog.Genesis, error) {
	s, err := in.js.Stream(ctx, events.StreamEvents)
	if err != nil {
		return eventlog.Genesis{}, fmt.Errorf("look at stream %s: %w", events.StreamEvents, err)
	}
	if s.CachedInfo().State.LastSeq == 0 {
		if err := in.writeGenesis(ctx); err != nil {
			return eventlog.Genesis{}, err
		}
		if _, err := s.Info(ctx); err != nil {
			return eventlog.Genesis{}, fmt.Errorf("look at stream %s: %w", events.StreamEvents, err)
		}
	}
	return readGenesis(ctx, s)
}

func (in installation) writeGenesis(ctx context.Context) error {
	body, err := json.Marshal(eventlog.Genesis{LogID: events.RandomID("log"), Epoch: events.RandomID("epoch")})
	if err != nil {
		return fmt.Errorf("genesis: %w", err)
	}
	// Expecting an empty stream makes two installers at once write one genesis. No
	// attempt is repeated by the library: its second would be refused by its first.
	_, err = in.js.Publish(ctx, events.SubjectGenesis, body,
		jetstream.WithExpectStream(events.StreamEvents), jetstream.WithExpectLastSequence(0), jetstream.WithRetryAttempts(0))
	var refused *jetstream.APIError
	if errors.As(err, &refused) && refused.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return nil // another's genesis, which is read next
	}
	if err != nil {
		return fmt.Errorf("write genesis: %w", err)
	}
	return nil
}

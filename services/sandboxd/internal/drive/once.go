package drive

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

// Once does one run and tells its events as they are said, up to the one that ends it:
// for an agent beside another sandboxd, which spools them. Whatever happens they are a
// well-formed run. maxEvent and maxRun bound an event and all of them, in bytes. When ctx
// ends, or tell fails, the agent is made to stop.
//
// It fails with [ErrInvalid] where there is no run, and then has told nothing; else with
// what tell failed with last.
func Once(ctx context.Context, agent Agent, input json.RawMessage, maxEvent int, maxRun int64, tell func(event []byte) error) error {
	var ids agui.RunInput
	if err := json.Unmarshal(input, &ids); err != nil {
		return fmt.Errorf("%w: input: %w", ErrInvalid, err)
	}
	req := sandboxapi.RunRequest{RunID: ids.RunID, Input: input}
	parsed, err := check(req)
	if err != nil {
		return err
	}
	to := &told{tell: tell}
	t := newTurn(req, parsed, to, maxEvent, maxRun)
	err = t.close(agent.Converse(ctx, t))
	last, _, _, _ := t.conclude(err, context.Cause(ctx)) //nolint:dogsled // what else it says is in the events
	_, err = to.Append(last...)
	return err
}

// told is the record of a turn that somebody else keeps.
type told struct {
	tell func(event []byte) error
	n    uint64
	size int64
}

// Append implements record.
func (t *told) Append(events ...[]byte) (uint64, error) {
	for _, e := range events {
		if err := t.tell(e); err != nil {
			return t.n, err
		}
		t.n++
		t.size += int64(len(e))
	}
	return t.n, nil
}

// Size implements record.
func (t *told) Size() int64 { return t.size }

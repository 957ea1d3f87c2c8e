package drive_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/session"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/runner/internal/drive"
	"github.com/holdfast-io/holdfast/services/runner/internal/transcript"
)

// delegating is the policy service: it lets everything, and keeps what it was asked.
type delegating struct {
	w     *world
	asked []transcript.ToolCall
	fails []error // instead of an answer, one after the other
}

// Delegate implements drive.Delegator.
func (d *delegating) Delegate(ctx context.Context, run drive.Run, c transcript.ToolCall) (string, error) {
	d.asked = append(d.asked, c)
	if len(d.fails) > 0 {
		err := d.fails[0]
		d.fails = d.fails[1:]
		return "", err
	}
	args, hash, err := events.CanonicalArgs(json.RawMessage(c.Args))
	if err != nil {
		return "", err
	}
	id := events.CallID(run.Session, c.ID, c.Name, hash)
	store := eventlog.NewStore(eventlog.Config[*session.State]{Log: d.w.log, New: session.New, Service: events.ServicePolicy})
	_, err = store.Execute(ctx, d.w.subject(), eventlog.Command{
		ID: events.RandomID("cmd"), Actor: events.Actor{Kind: events.ActorAgent, ID: run.Session},
	}, func(s *session.State, now time.Time) ([]events.Record, error) {
		if s.Calls[id] != nil {
			return nil, nil
		}
		return session.Records(events.ServicePolicy,
			session.CallProposed{CallID: id, AgentCallID: c.ID, RunID: run.ID, Tool: c.Name, Args: args, ArgsHash: hash, Modes: []string{session.ModeDelegate}},
			session.CallDecided{CallID: id, Decision: "allow"},
			session.CallDelegated{CallID: id, ToolCallID: c.ID, RunID: run.ID, Deadline: now.Add(time.Hour)})
	})
	return id, err
}

// picks is a run that calls two tools of the client's and one of its own.
func picks(end string) []string {
	return []string{
		`{"type":"RUN_STARTED","threadId":"t","runId":"r-1"}`,
		`{"type":"TOOL_CALL_START","toolCallId":"tc-1","toolCallName":"pick"}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"tc-1","delta":"{\"n\":1}"}`, `{"type":"TOOL_CALL_END","toolCallId":"tc-1"}`,
		`{"type":"TOOL_CALL_START","toolCallId":"tc-2","toolCallName":"shell"}`, `{"type":"TOOL_CALL_END","toolCallId":"tc-2"}`,
		`{"type":"TOOL_CALL_RESULT","messageId":"a-2","toolCallId":"tc-2","content":"ok"}`,
		`{"type":"TOOL_CALL_START","toolCallId":"tc-3","toolCallName":"pick"}`, `{"type":"TOOL_CALL_ARGS","toolCallId":"tc-3","delta":"{}"}`, `{"type":"TOOL_CALL_END","toolCallId":"tc-3"}`,
		`{"type":"RUN_FINISHED","threadId":"t","runId":"r-1"` + end + `}`,
	}
}

// What a run leaves to its client is put to the policy, and parks the run.
func TestClientTools(t *testing.T) {
	t.Parallel()
	tools := []string{"pick"}
	refused := problem.New(api.CodeIllegalTransition, "the client of this run doesn't offer it")
	for name, tc := range map[string]struct {
		end   string
		tools []string
		fails []error
		asked string // ids
		fate  string
	}{
		"named":               {`,"outcome":{"type":"success","pendingToolCallIds":["tc-3"]}`, tools, nil, "tc-3", "parked on 1"},
		"named, all":          {`,"outcome":{"type":"success","pendingToolCallIds":["tc-1","tc-3"]}`, tools, nil, "tc-1 tc-3", "parked on 2"},
		"meant":               {``, tools, nil, "tc-1 tc-3", "parked on 2"},
		"none is the clients": {``, nil, nil, "", "success"},
		"a stranger":          {`,"outcome":{"type":"success","pendingToolCallIds":["tc-9"]}`, tools, nil, "", "protocol-error"},
		"one that is done":    {`,"outcome":{"type":"success","pendingToolCallIds":["tc-2"]}`, tools, nil, "", "protocol-error"},
		"one of nobody's":     {`,"outcome":{"type":"success","pendingToolCallIds":["tc-1"]}`, nil, nil, "", "protocol-error"},
		"refused":             {`,"outcome":{"type":"success","pendingToolCallIds":["tc-1"]}`, tools, []error{refused}, "tc-1", "protocol-error"},
		"not answered":        {`,"outcome":{"type":"success","pendingToolCallIds":["tc-1"]}`, tools, []error{problem.New(api.CodeNotReady, "")}, "tc-1 tc-1", "parked on 1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := &delegating{w: w, fails: tc.fails}
			w.driver.Calls = d
			box := newSandbox(t, picks(tc.end), "success")
			run := drive.Run{Tenant: given.Tenant, Session: given.Session, ID: "r-1", Instance: "i-1", N: 1, Input: json.RawMessage(`{}`), Tools: tc.tools}
			err := w.driver.Drive(t.Context(), box.Client, run)
			if len(tc.fails) > 0 && errors.Is(err, problem.New(api.CodeNotReady, "")) {
				err = w.driver.Drive(t.Context(), box.Client, run) // as the runner does
			}
			if err != nil {
				t.Fatal(err)
			}
			var asked []string
			for _, c := range d.asked {
				asked = append(asked, c.ID)
			}
			if got := strings.Join(asked, " "); got != tc.asked {
				t.Errorf("asked about %q, want %q", got, tc.asked)
			}
			if got := fate(w); got != tc.fate {
				t.Errorf("%s, want %s", got, tc.fate)
			}
		})
	}
}

// fate is how the run ended.
func fate(w *world) string {
	all := w.payloads()
	switch p := all[len(all)-1].(type) {
	case session.RunInterrupted:
		s := w.state()
		if s.ContinuationDue() || slices.ContainsFunc(p.Calls, func(id string) bool { return !s.Calls[id].ForClient() }) {
			return "parked, and not on the client"
		}
		return "parked on " + string(rune('0'+len(p.Calls)))
	case session.RunFinished:
		return p.Outcome
	case session.RunFailed:
		return p.Cause
	}
	return "nothing"
}

package metered_test

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/metered"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

type scripted struct {
	eventlog.Log

	err error
}

func (s scripted) Append(context.Context, string, events.Envelope) (uint64, error) { return 1, s.err }

func TestMetrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := metered.New(reg)
	handlers := m.Handlers(events.ServiceSession, map[string]command.Handler{
		"send": func(context.Context, string, command.Request) (command.Reply, error) {
			return command.Reply{}, problem.New(api.CodeSessionEnded, "over")
		},
		"create": func(context.Context, string, command.Request) (command.Reply, error) { return command.Reply{N: 1}, nil },
	})
	if r, err := handlers["create"](t.Context(), "default", command.Request{}); err != nil || r.N != 1 {
		t.Errorf("create: %+v, %v", r, err)
	}
	if _, err := handlers["send"](t.Context(), "default", command.Request{}); err == nil {
		t.Error("the refusal is lost")
	}
	for _, err := range []error{nil, &eventlog.ConflictError{}, &eventlog.OutcomeUnknownError{}, eventlog.ErrSubject} {
		if seq, got := m.Log(events.ServiceSession, scripted{err: err}).Append(t.Context(), "s", events.Envelope{}); !errors.Is(got, err) || seq != 1 {
			t.Errorf("append: %d, %v", seq, got)
		}
	}
	if n := testutil.CollectAndCount(reg, "holdfast_command_seconds"); n != 2 {
		t.Errorf("%d series of commands", n)
	}
	if n := testutil.CollectAndCount(reg, "holdfast_log_append_seconds"); n != 4 {
		t.Errorf("%d series of appends", n)
	}
	if lint, err := testutil.GatherAndLint(reg); err != nil || len(lint) > 0 {
		t.Errorf("conventions: %v, %v", lint, err)
	}
}

func TestWithoutMetrics(t *testing.T) {
	t.Parallel()
	var none *metered.Metrics
	log := scripted{}
	if none.Log(events.ServiceSession, log) != eventlog.Log(log) || none.Handlers(events.ServiceSession, nil) != nil {
		t.Error("something was put around")
	}
}

// Package definitions applies and removes what is kept in revisions: runtimes and
// policies. What a spec may say is its service's affair and checked before.
package definitions

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/revisions"
	"github.com/holdfast-io/holdfast/services/internal/command"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

// Definitions are all things of one kind.
type Definitions[S any] struct {
	Aggregate events.Aggregate
	Store     *eventlog.Store[*revisions.State[S]]
	// NotFound is the code of a thing that isn't there, Invalid that of one that
	// can't be read.
	NotFound, Invalid api.Code
}

// Read decodes the spec of an apply strictly.
func (d Definitions[S]) Read(body verbs.ApplyBody) (S, error) {
	var spec S
	dec := json.NewDecoder(bytes.NewReader(body.Spec))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&spec); err != nil {
		return spec, problem.Newf(d.Invalid, "the %s can't be read: %v", d.Aggregate, err)
	}
	return spec, nil
}

// Apply makes a revision of a checked spec, unless it is the newest already.
func (d Definitions[S]) Apply(ctx context.Context, tenant string, req command.Request, name string, spec S) (command.Reply, error) {
	subject, err := events.SubjectOf(d.Aggregate, tenant, name)
	if err != nil {
		return command.Reply{}, problem.New(api.CodeInvalidRequest, err.Error()).At("path/name", "not a valid name")
	}
	res, err := d.Store.Execute(ctx, subject, named(req), func(s *revisions.State[S], _ time.Time) ([]events.Record, error) {
		if rev, ok := s.Current(); ok && same(rev.Spec, spec) {
			return nil, nil
		}
		r, err := s.ApplyRecord(spec)
		return []events.Record{r}, err
	})
	if err != nil {
		return command.Reply{}, err
	}
	return command.Result(res.N, res.Seq, res.Repeated, verbs.ApplyResult{Revision: res.N, Changed: len(res.Records) > 0})
}

// Remove takes a thing away; what was pinned to a revision of it stays readable.
func (d Definitions[S]) Remove(ctx context.Context, tenant string, req command.Request, name string) (command.Reply, error) {
	missing := problem.Newf(d.NotFound, "there is no %s %q", d.Aggregate, name)
	subject, err := events.SubjectOf(d.Aggregate, tenant, name)
	if err != nil {
		return command.Reply{}, missing
	}
	res, err := d.Store.Execute(ctx, subject, named(req), func(s *revisions.State[S], _ time.Time) ([]events.Record, error) {
		if _, ok := s.Current(); !ok {
			return nil, missing
		}
		return []events.Record{s.RemoveRecord()}, nil
	})
	return command.Reply{N: res.N, Seq: res.Seq, Repeated: res.Repeated}, err
}

func named(req command.Request) eventlog.Command {
	return eventlog.Command{ID: req.CommandID, Actor: req.Actor, Trace: req.Trace}
}

// same compares two specs by what would be stored.
func same[S any](a, b S) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

package live

import (
	"context"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/revisions"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// Definition is the fold of a runtime or a policy that also remembers where in
// the log each revision stands.
type Definition[S any] struct {
	*revisions.State[S]
	seqs map[uint64]uint64
}

func newRuntime() *Definition[runtime.Spec] {
	return &Definition[runtime.Spec]{State: runtime.New(), seqs: map[uint64]uint64{}}
}

func newPolicy() *Definition[policy.Spec] {
	return &Definition[policy.Spec]{State: policy.New(), seqs: map[uint64]uint64{}}
}

// Apply folds one message in.
func (d *Definition[S]) Apply(m events.Message) error {
	if err := d.State.Apply(m); err != nil {
		return err
	}
	for i := range m.Envelope.Events {
		d.seqs[m.MetaAt(i).N] = m.Seq
	}
	return nil
}

// Revision is a revision with its name and where it stands in the log.
type Revision[S any] struct {
	revisions.Revision[S]

	Name string
	Seq  uint64
}

// read gives one revision, the newest for 0.
func read[S any](
	ctx context.Context, store *eventlog.Store[*Definition[S]], agg events.Aggregate, tenant, name string, number uint64, missing api.Code,
) (Revision[S], error) {
	notFound := problem.Newf(missing, "There is no %s %q in this tenant.", agg, name)
	if number > 0 {
		notFound = problem.Newf(missing, "There is no revision %d of %s %q in this tenant.", number, agg, name)
	}
	subject, err := events.SubjectOf(agg, tenant, name)
	if err != nil {
		return Revision[S]{}, notFound
	}
	out := Revision[S]{Name: name}
	err = store.Read(ctx, subject, func(s eventlog.Snapshot[*Definition[S]]) error {
		find := s.State.Current
		if number > 0 {
			find = func() (revisions.Revision[S], bool) { return s.State.Revision(number) }
		}
		rev, ok := find()
		if !ok {
			return notFound
		}
		out.Revision, out.Seq = rev, s.State.seqs[rev.Number]
		return nil
	})
	return out, err
}

package projections

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
	"github.com/holdfast-io/holdfast/projections/view"
)

// SessionFilter narrows a list of sessions; what is left zero doesn't.
type SessionFilter struct {
	// Phases: in one of them. Labels: with all of them.
	Phases  []session.Phase
	Labels  map[string]string
	Runtime string
	Owner   string
	// Waiting: with calls that wait for a person.
	Waiting bool
}

// Sessions lists a tenant's sessions, newest first.
func (r *Reader) Sessions(ctx context.Context, tenant string, f SessionFilter, p Page) (List[view.Session], error) {
	const name = "sessions"
	at, err := p.from(name, last)
	if err != nil {
		return List[view.Session]{}, err
	}
	labels, err := json.Marshal(cleanLabels(f.Labels))
	if err != nil {
		return List[view.Session]{}, fmt.Errorf("labels: %w", err)
	}
	rows, err := r.q.Sessions(ctx, dbsqlc.SessionsParams{
		Tenant: tenant, Labels: labels, Runtime: clean(f.Runtime), Owner: clean(f.Owner), Waiting: f.Waiting,
		Phases:   texts(f.Phases, func(p session.Phase) string { return string(p) }),
		BeforeAt: at.At, BeforeID: at.ID, Most: int32(p.limit() + 1),
	})
	if err != nil {
		return List[view.Session]{}, readError(err)
	}
	return list(name, rows, p.limit(),
		func(row dbsqlc.SessionsRow) (view.Session, error) { return decode[view.Session](row.View) },
		func(row dbsqlc.SessionsRow) place { return place{At: row.CreatedAt, ID: row.ID} })
}

// Session gives a session as of the read models' checkpoint.
func (r *Reader) Session(ctx context.Context, tenant, id string) (view.Session, error) {
	raw, err := r.q.Session(ctx, dbsqlc.SessionParams{Tenant: tenant, ID: clean(id)})
	if err != nil {
		return view.Session{}, readError(err)
	}
	return decode[view.Session](raw)
}

// SessionAtN gives a session as it was at n. ErrNotFound where it hasn't been there.
func (r *Reader) SessionAtN(ctx context.Context, tenant, id string, n uint64) (view.Session, error) {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return view.Session{}, ErrNotFound
	}
	rows, err := r.q.EnvelopesUpToN(ctx, dbsqlc.EnvelopesUpToNParams{Subject: subject, N: int64(min(n, last.N))})
	if err != nil {
		return view.Session{}, readError(err)
	}
	ms := column(rows, func(row dbsqlc.EnvelopesUpToNRow) events.Message { return message(row.Subject, row.Seq, row.Raw) })
	st, err := r.foldUpTo(ctx, ms, n)
	if err != nil {
		return view.Session{}, err
	}
	if st.N != n {
		return view.Session{}, ErrNotFound
	}
	return view.SessionOf(st), nil
}

// SessionAtTime gives a session as it was at a time. ErrNotFound where it was not
// there yet.
func (r *Reader) SessionAtTime(ctx context.Context, tenant, id string, at time.Time) (view.Session, error) {
	subject, err := events.SessionSubject(tenant, id)
	if err != nil {
		return view.Session{}, ErrNotFound
	}
	rows, err := r.q.EnvelopesUpToTime(ctx, dbsqlc.EnvelopesUpToTimeParams{Subject: subject, At: at})
	if err != nil {
		return view.Session{}, readError(err)
	}
	ms := column(rows, func(row dbsqlc.EnvelopesUpToTimeRow) events.Message { return message(row.Subject, row.Seq, row.Raw) })
	st, err := r.foldUpTo(ctx, ms, last.N)
	if err != nil {
		return view.Session{}, err
	}
	if !st.Exists() {
		return view.Session{}, ErrNotFound
	}
	return view.SessionOf(st), nil
}

// message reads a kept envelope. One that can't be decoded has none, as on a tail.
func message(subject string, seq int64, raw []byte) events.Message {
	m := events.Message{Subject: subject, Seq: uint64(seq), Raw: raw}
	if e, err := events.DecodeEnvelope(raw); err == nil {
		m.Envelope = e
	}
	return m
}

// whole gives a kept message with the data that lies beside the log.
func (r *Reader) whole(ctx context.Context, m events.Message) (events.Message, error) {
	if r.cfg.Log == nil {
		return m, nil
	}
	return r.cfg.Log.Whole(ctx, m)
}

// foldUpTo folds messages up to an event, as far as their chain goes: writers'
// clocks may disagree a little, so a cut by time may leave a hole.
func (r *Reader) foldUpTo(ctx context.Context, ms []events.Message, n uint64) (*session.State, error) {
	st := session.New()
	for _, m := range ms {
		m, err := r.whole(ctx, m)
		if err != nil {
			return nil, err
		}
		if m.Envelope.N != st.N+1 || m.Envelope.N > n {
			break
		}
		if over := m.Envelope.LastN(); over > n {
			m.Envelope.Events = m.Envelope.Events[:n-m.Envelope.N+1]
		}
		if err := st.Apply(m); err != nil {
			return nil, fmt.Errorf("%s at %d: %w", m.Subject, m.Seq, err)
		}
	}
	return st, nil
}

// Messages lists a session's conversation, oldest first.
func (r *Reader) Messages(ctx context.Context, tenant, id string, p Page) (List[view.Message], error) {
	const name = "messages"
	at, err := p.from(name, place{})
	if err != nil {
		return List[view.Message]{}, err
	}
	rows, err := r.q.Messages(ctx, dbsqlc.MessagesParams{Tenant: tenant, Session: clean(id), After: int64(at.N), Most: int32(p.limit() + 1), Bytes: pageBytes})
	if err != nil {
		return List[view.Message]{}, readError(err)
	}
	return listBytes(name, rows, p.limit(), func(row dbsqlc.MessagesRow) int64 { return row.Found },
		func(row dbsqlc.MessagesRow) (view.Message, error) { return decode[view.Message](row.View) },
		func(row dbsqlc.MessagesRow) place { return place{N: uint64(row.N)} })
}

// Runs lists a session's runs in the order in which they were queued.
func (r *Reader) Runs(ctx context.Context, tenant, id string, p Page) (List[view.Run], error) {
	const name = "runs"
	at, err := p.from(name, place{})
	if err != nil {
		return List[view.Run]{}, err
	}
	rows, err := r.q.Runs(ctx, dbsqlc.RunsParams{
		Tenant: tenant, Session: clean(id), AfterAt: at.At, AfterID: at.ID, Most: int32(p.limit() + 1),
	})
	if err != nil {
		return List[view.Run]{}, readError(err)
	}
	return list(name, rows, p.limit(),
		func(row dbsqlc.RunsRow) (view.Run, error) {
			calls, err := decode[[]string](row.Calls)
			return view.Run{
				ID: row.ID, Session: id, ParentRunID: row.Parent, State: view.RunState(row.State), Requester: row.Requester,
				Cause: row.Cause, Detail: row.Detail, Calls: calls, StartedAt: row.StartedAt, EndedAt: row.EndedAt, N: uint64(row.N),
			}, err
		},
		func(row dbsqlc.RunsRow) place { return place{At: row.QueuedAt, ID: row.ID} })
}

// mask gives what masks a session's contents.
func (r *Reader) mask(ctx context.Context, tenant, id string) (view.Masker, error) {
	raw, err := r.q.Redact(ctx, dbsqlc.RedactParams{Tenant: tenant, ID: clean(id)})
	if err := readError(err); err != nil {
		if errors.Is(err, ErrNotFound) {
			return view.Masker{}, nil
		}
		return view.Masker{}, err
	}
	redact, err := decode[[]string](raw)
	return view.NewMasker(redact), err
}

package projections

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/revisions"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/events/sweep"
	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
	"github.com/holdfast-io/holdfast/projections/view"
)

// checkpoint is a place in a log: what has been applied.
type checkpoint struct {
	epoch string
	seq   uint64
	hash  []byte
}

func hashOf(raw []byte) []byte {
	sum := sha256.Sum256(raw)
	return sum[:]
}

// folds follow the aggregates along the tail.
type folds struct {
	sessions *eventlog.Follower[*story]
	runtimes *eventlog.Follower[definition[runtime.Spec]]
	policies *eventlog.Follower[definition[policy.Spec]]
	sweeps   *eventlog.Follower[swept]
}

func newFolds(log eventlog.Log, epoch string, copied eventlog.Copy, cacheSize int) *folds {
	return &folds{
		sessions: eventlog.NewFollower(eventlog.Config[*story]{
			Log: log, Epoch: epoch, Copy: copied, CacheSize: cacheSize, New: newStory,
		}),
		runtimes: eventlog.NewFollower(eventlog.Config[definition[runtime.Spec]]{
			Log: log, Epoch: epoch, Copy: copied, CacheSize: cacheSize,
			New: func() definition[runtime.Spec] { return definition[runtime.Spec]{runtime.New()} },
		}),
		policies: eventlog.NewFollower(eventlog.Config[definition[policy.Spec]]{
			Log: log, Epoch: epoch, Copy: copied, CacheSize: cacheSize,
			New: func() definition[policy.Spec] { return definition[policy.Spec]{policy.New()} },
		}),
		sweeps: eventlog.NewFollower(eventlog.Config[swept]{
			Log: log, Epoch: epoch, Copy: copied, CacheSize: cacheSize, New: func() swept { return swept{sweep.New()} },
		}),
	}
}

// batch collects the rows of consecutive messages. What is appended (envelopes,
// audit, timeline, messages) has a row each; what changes has the final state of
// each session once.
type batch struct {
	last checkpoint
	// count is how many messages are in it.
	count int

	envelopes   []dbsqlc.InsertEnvelopesParams
	audit       []dbsqlc.InsertAuditParams
	timeline    []dbsqlc.InsertTimelineParams
	messages    []view.Message
	tenants     []string // of messages
	stories     map[string]*changed
	order       []*changed
	definitions []definitionRow
	faults      map[string]dbsqlc.InsertFaultParams
	// healed are subjects that were given up and are followed again.
	healed []string
}

// changed is a session that the batch touches, with the rows beside its own.
type changed struct {
	story       *story
	runs, calls map[string]bool
	generations map[uint64]bool
}

// definitionRow is one revision of a runtime or a policy, or its removal.
type definitionRow struct {
	kind         events.Aggregate
	tenant, name string
	n, seq       uint64
	spec         []byte
	removed      bool
	by           string
	at           time.Time
}

func newBatch() *batch {
	return &batch{stories: map[string]*changed{}, faults: map[string]dbsqlc.InsertFaultParams{}}
}

// add collects what m changes. faulted are the subjects that are given up already.
// An error is of reading the log: the same may work later. refuse says why
// Postgres doesn't take the message's rows, nil where it hasn't been asked yet.
func (b *batch) add(ctx context.Context, f *folds, m events.Message, faulted map[string]bool, refuse error) error {
	a, isAggregate := events.ParseSubject(m.Subject)
	_, now := b.faults[m.Subject]
	follow := isAggregate && !now && !faulted[m.Subject] && refuse == nil
	if follow {
		err := b.follow(ctx, f, a, m)
		if err != nil && !faulty(err) {
			return fmt.Errorf("follow %s at %d: %w", m.Subject, m.Seq, err)
		}
		refuse = err
	}
	if isAggregate && refuse != nil && !now && !faulted[m.Subject] {
		b.faults[m.Subject] = dbsqlc.InsertFaultParams{
			Subject: m.Subject, Tenant: a.Tenant, Aggregate: string(a.Aggregate), Key: a.Key, Seq: int64(m.Seq), Cause: clean(refuse.Error()),
		}
	}
	b.keep(a, m)
	b.last.seq, b.last.hash = m.Seq, hashOf(m.Raw)
	b.count++
	return nil
}

// keep collects the raw bytes and the audit rows, which need no fold.
func (b *batch) keep(a events.Address, m events.Message) {
	e := m.Envelope
	at := e.Time
	if at.IsZero() {
		at = time.Unix(0, 0).UTC() // not an envelope: it says no time
	}
	b.envelopes = append(b.envelopes, dbsqlc.InsertEnvelopesParams{
		Seq: int64(m.Seq), Subject: m.Subject, Tenant: a.Tenant, Aggregate: string(a.Aggregate), Key: a.Key,
		N: int64(e.N), Events: int32(len(e.Events)), Command: clean(e.Command), At: at, Raw: m.Raw,
	})
	if a.Tenant == "" {
		return
	}
	for i, r := range e.Events {
		b.audit = append(b.audit, dbsqlc.InsertAuditParams{
			Seq: int64(m.Seq), Idx: int16(i), Tenant: a.Tenant, Aggregate: string(a.Aggregate), Key: a.Key,
			N: int64(e.N) + int64(i), Type: clean(r.Type), Service: clean(string(e.Service)), ActorKind: clean(string(e.Actor.Kind)),
			Actor: clean(view.Principal(e.Actor)), Command: clean(e.Command), Cause: clean(e.Cause),
			Outcome: string(view.OutcomeOf(r)), At: at,
		})
	}
}

// follow folds m in and collects what it changes.
func (b *batch) follow(ctx context.Context, f *folds, a events.Address, m events.Message) error {
	if m.Envelope.N == 0 {
		return &eventlog.ChainError{Subject: m.Subject, Seq: m.Seq, Detail: "not an envelope"}
	}
	switch a.Aggregate {
	case events.AggregateSession:
		s, err := f.sessions.Follow(ctx, m)
		if err != nil {
			return err
		}
		b.touch(m, s)
	case events.AggregateRuntime:
		d, err := f.runtimes.Follow(ctx, m)
		if err != nil {
			return err
		}
		b.definitions = append(b.definitions, revisionRows(a, m, runtime.TypeRemoved, d.State, view.RuntimeSpec)...)
	case events.AggregatePolicy:
		d, err := f.policies.Follow(ctx, m)
		if err != nil {
			return err
		}
		b.definitions = append(b.definitions, revisionRows(a, m, policy.TypeRemoved, d.State, view.PolicySpec)...)
	case events.AggregateSweep:
		if _, err := f.sweeps.Follow(ctx, m); err != nil { // it has no rows but those of the audit
			return err
		}
	}
	return nil
}

func (b *batch) touch(m events.Message, s *story) {
	c := b.stories[m.Subject]
	if c == nil {
		c = &changed{runs: map[string]bool{}, calls: map[string]bool{}, generations: map[uint64]bool{}}
		b.stories[m.Subject] = c
		b.order = append(b.order, c)
	}
	c.story = s // another one where the cache had dropped it
	for _, id := range s.last.runs {
		c.runs[id] = true
	}
	for _, id := range s.last.calls {
		c.calls[id] = true
	}
	for _, g := range s.last.generations {
		c.generations[g] = true
	}
	for _, msg := range s.last.messages {
		b.messages = append(b.messages, msg)
		b.tenants = append(b.tenants, s.Tenant)
	}
	for i, f := range view.Frames(s.State, m) {
		b.timeline = append(b.timeline, dbsqlc.InsertTimelineParams{
			Tenant: s.Tenant, Session: s.ID, N: int64(f.N), Seq: int64(m.Seq), Idx: int16(i),
			Kind: string(f.Kind), Data: cleanJSON(f.Data), At: f.Time,
		})
	}
}

// revisionRows gives a row for each event of a runtime's or policy's message. A
// removal keeps the spec that it removed.
func revisionRows[S any](
	a events.Address, m events.Message, removed string, st *revisions.State[S], spec func(S) []byte,
) []definitionRow {
	rows := make([]definitionRow, 0, len(m.Envelope.Events))
	for i, r := range m.Envelope.Events {
		meta := m.MetaAt(i)
		row := definitionRow{
			kind: a.Aggregate, tenant: a.Tenant, name: a.Key, n: meta.N, seq: m.Seq, at: meta.Time,
			removed: r.Type == removed, by: clean(view.Principal(meta.Actor)), spec: []byte("{}"),
		}
		for _, rev := range st.Revisions {
			if rev.Number <= meta.N {
				row.spec = cleanJSON(spec(rev.Spec))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// clean makes a text that Postgres takes: no NUL, no broken UTF-8.
func clean(s string) string {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// cleanJSON does the same for a document; NUL can't stand in it raw.
func cleanJSON(doc []byte) []byte {
	if utf8.Valid(doc) {
		return doc
	}
	return []byte(strings.ToValidUTF8(string(doc), "\uFFFD"))
}

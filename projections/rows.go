package projections

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/internal/dbsqlc"
	"github.com/holdfast-io/holdfast/projections/view"
)

// column takes one column out of rows, as unnest wants them.
func column[R, C any](rows []R, get func(R) C) []C {
	c := make([]C, len(rows))
	for i, r := range rows {
		c[i] = get(r)
	}
	return c
}

func texts[R any](rows []R, get func(R) string) []string {
	return column(rows, func(r R) string { return clean(get(r)) })
}

// document encodes what is kept as JSON.
func document(v any) string {
	b, err := events.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("projections: encode %T: %v", v, err)) // strings and numbers: can't fail
	}
	return string(cleanJSON(b))
}

func tenant(c *changed) string    { return c.story.Tenant }
func sessionID(c *changed) string { return c.story.ID }

func (b *batch) sessionRows() dbsqlc.UpsertSessionsParams {
	rows := b.order
	views := column(rows, func(c *changed) view.Session { return view.SessionOf(c.story.State) })
	return dbsqlc.UpsertSessionsParams{
		Tenants: texts(rows, tenant), Ids: texts(rows, sessionID),
		Owners:      texts(rows, func(c *changed) string { return c.story.Owner }),
		Runtimes:    texts(rows, func(c *changed) string { return c.story.Runtime.Name }),
		Revisions:   column(rows, func(c *changed) int64 { return int64(c.story.Runtime.Revision) }),
		Phases:      texts(views, func(v view.Session) string { return string(v.Phase) }),
		Desired:     texts(rows, func(c *changed) string { return desired(c.story.State) }),
		Outcomes:    texts(views, func(v view.Session) string { return string(v.Outcome) }),
		Causes:      texts(views, func(v view.Session) string { return v.Cause }),
		Waiting:     column(views, func(v view.Session) int32 { return int32(v.Waiting) }),
		Generations: column(views, func(v view.Session) int64 { return int64(v.Generation) }),
		Isolations:  texts(views, func(v view.Session) string { return v.Isolation }),
		Runs:        texts(views, func(v view.Session) string { return v.Run }),
		Labels:      texts(views, func(v view.Session) string { return document(cleanLabels(v.Labels)) }),
		Views:       column(views, func(v view.Session) string { return document(v) }),
		Redacts:     texts(rows, func(c *changed) string { return document(append([]string{}, c.story.Terms.Redact...)) }),
		Unsettled:   texts(rows, func(c *changed) string { return services(c.story.State) }),
		CreatedAt:   column(rows, func(c *changed) time.Time { return c.story.CreatedAt }),
		UpdatedAt:   column(rows, func(c *changed) time.Time { return c.story.UpdatedAt }),
		Ns:          column(rows, func(c *changed) int64 { return int64(c.story.N) }),
		Seqs:        column(rows, func(c *changed) int64 { return int64(c.story.Seq) }),
	}
}

// cleanLabels makes labels that jsonb takes.
func cleanLabels(labels map[string]string) map[string]string {
	c := make(map[string]string, len(labels))
	for k, v := range labels {
		c[clean(k)] = clean(v)
	}
	return c
}

// desired is what is wanted of the session's sandbox.
func desired(st *session.State) string {
	switch {
	case st.Ending || st.Ended:
		return "ended"
	case st.WantRunning:
		return "running"
	}
	return "suspended"
}

func services(st *session.State) string {
	return strings.Join(column(unsettled(st), func(s events.Service) string { return string(s) }), ",")
}

// deadlineRow is a deadline with its session.
type deadlineRow struct {
	c *changed
	d session.Deadline
}

func (b *batch) deadlineRows() dbsqlc.InsertDeadlinesParams {
	var rows []deadlineRow
	for _, c := range b.order {
		for _, d := range c.story.Deadlines() {
			rows = append(rows, deadlineRow{c, d})
		}
	}
	return dbsqlc.InsertDeadlinesParams{
		Tenants: texts(rows, func(r deadlineRow) string { return r.c.story.Tenant }), Sessions: texts(rows, func(r deadlineRow) string { return r.c.story.ID }),
		Kinds:    texts(rows, func(r deadlineRow) string { return string(r.d.Kind) }),
		Keys:     texts(rows, func(r deadlineRow) string { return r.d.Key }),
		Services: texts(rows, func(r deadlineRow) string { return string(r.d.Service) }),
		DueAt:    column(rows, func(r deadlineRow) time.Time { return r.d.At }),
	}
}

// part is a row that belongs to a session.
type part[T any] struct {
	tenant, session string
	row             T
}

// parts collects the touched rows of all sessions in a fixed order.
func parts[K ~string | ~uint64, T any](b *batch, keys func(*changed) map[K]bool, get func(*story, K) (T, bool)) []part[T] {
	var rows []part[T]
	for _, c := range b.order {
		for _, k := range slices.Sorted(maps.Keys(keys(c))) {
			if row, ok := get(c.story, k); ok {
				rows = append(rows, part[T]{clean(c.story.Tenant), clean(c.story.ID), row})
			}
		}
	}
	return rows
}

func tenants[T any](rows []part[T]) []string {
	return column(rows, func(p part[T]) string { return p.tenant })
}

func sessions[T any](rows []part[T]) []string {
	return column(rows, func(p part[T]) string { return p.session })
}

func partText[T any](rows []part[T], get func(T) string) []string {
	return column(rows, func(p part[T]) string { return clean(get(p.row)) })
}

func partColumn[T, C any](rows []part[T], get func(T) C) []C {
	return column(rows, func(p part[T]) C { return get(p.row) })
}

func (b *batch) workloadRows() dbsqlc.UpsertWorkloadsParams {
	rows := parts(b, func(c *changed) map[uint64]bool { return c.generations }, func(s *story, g uint64) (*workload, bool) {
		return s.workloads[g], s.workloads[g] != nil
	})
	return dbsqlc.UpsertWorkloadsParams{
		Tenants: tenants(rows), Sessions: sessions(rows),
		Generations:      partColumn(rows, func(w *workload) int64 { return int64(w.Generation) }),
		States:           partText(rows, func(w *workload) string { return string(w.Status) }),
		SandboxUids:      partText(rows, func(w *workload) string { return w.SandboxUID }),
		PodUids:          partText(rows, func(w *workload) string { return w.PodUID }),
		Paths:            partText(rows, func(w *workload) string { return w.Path }),
		Isolations:       partText(rows, func(w *workload) string { return w.Isolation }),
		Restarts:         partColumn(rows, func(w *workload) int32 { return int32(w.Restarts) }),
		Layers:           partText(rows, func(w *workload) string { return document(cleanLayers(w.LayersMs)) }),
		Causes:           partText(rows, func(w *workload) string { return view.Masker{}.Text(w.Cause) }),
		ClaimRequestedAt: partColumn(rows, func(w *workload) time.Time { return w.requestedAt }),
		ClaimedAt:        partColumn(rows, func(w *workload) time.Time { return w.claimedAt }),
		ReadyAt:          partColumn(rows, func(w *workload) time.Time { return w.readyAt }),
		ReleasedAt:       partColumn(rows, func(w *workload) time.Time { return w.releasedAt }),
		Ns:               partColumn(rows, func(w *workload) int64 { return int64(w.n) }),
	}
}

func cleanLayers(layers map[string]int64) map[string]int64 {
	c := make(map[string]int64, len(layers))
	for k, v := range layers {
		c[clean(k)] = v
	}
	return c
}

func (b *batch) runRows() dbsqlc.UpsertRunsParams {
	rows := parts(b, func(c *changed) map[string]bool { return c.runs }, func(s *story, id string) (*run, bool) {
		return s.runs[id], s.runs[id] != nil
	})
	return dbsqlc.UpsertRunsParams{
		Tenants: tenants(rows), Sessions: sessions(rows),
		Ids:        partText(rows, func(r *run) string { return r.id }),
		Parents:    partText(rows, func(r *run) string { return r.parent }),
		States:     partText(rows, func(r *run) string { return string(r.state) }),
		Requesters: partText(rows, func(r *run) string { return r.requester }),
		Instances:  partText(rows, func(r *run) string { return r.instance }),
		LastKs:     partColumn(rows, func(r *run) int64 { return int64(r.lastK) }),
		Causes:     partText(rows, func(r *run) string { return view.Visible(view.Masker{}.Text(r.cause)) }),
		Details:    partText(rows, func(r *run) string { return r.detail }),
		Calls:      partText(rows, func(r *run) string { return document(append([]string{}, r.calls...)) }),
		QueuedAt:   partColumn(rows, func(r *run) time.Time { return r.queuedAt }),
		StartedAt:  partColumn(rows, func(r *run) time.Time { return r.startedAt }),
		EndedAt:    partColumn(rows, func(r *run) time.Time { return r.endedAt }),
		Ns:         partColumn(rows, func(r *run) int64 { return int64(r.n) }),
	}
}

func (b *batch) messageRows() dbsqlc.InsertMessagesParams {
	rows := b.messages
	return dbsqlc.InsertMessagesParams{
		Tenants:  b.tenants,
		Sessions: texts(rows, func(m view.Message) string { return m.Session }),
		Ids:      texts(rows, func(m view.Message) string { return m.ID }),
		Runs:     texts(rows, func(m view.Message) string { return m.RunID }),
		Views:    column(rows, func(m view.Message) string { return document(m) }),
		At:       column(rows, func(m view.Message) time.Time { return m.Time }),
		Ns:       column(rows, func(m view.Message) int64 { return int64(m.N) }),
	}
}

// callRow is a call with what masks it.
type callRow struct {
	*session.Call
	mask view.Masker
}

func (b *batch) callRows() dbsqlc.UpsertCallsParams {
	rows := parts(b, func(c *changed) map[string]bool { return c.calls }, func(s *story, id string) (callRow, bool) {
		return callRow{s.Calls[id], view.ForSession(s.State)}, s.Calls[id] != nil
	})
	return dbsqlc.UpsertCallsParams{
		Tenants: tenants(rows), Sessions: sessions(rows),
		Ids:          partText(rows, func(c callRow) string { return c.ID }),
		AgentCallIds: partText(rows, func(c callRow) string { return c.mask.Text(c.AgentCallID) }),
		Runs:         partText(rows, func(c callRow) string { return c.RunID }),
		Tools:        partText(rows, func(c callRow) string { return c.Tool }),
		Args:         partText(rows, func(c callRow) string { return string(c.mask.Args(c.Args)) }),
		ArgsHashes:   partText(rows, func(c callRow) string { return c.ArgsHash }),
		States:       partText(rows, func(c callRow) string { return string(c.State) }),
		Decisions:    partText(rows, func(c callRow) string { return c.Decision }),
		Rules:        partText(rows, func(c callRow) string { return c.Rule }),
		Policies:     partText(rows, func(c callRow) string { return c.Policy }),
		Revisions:    partColumn(rows, func(c callRow) int64 { return int64(c.Revision) }),
		Enforcements: partText(rows, func(c callRow) string { return c.Enforcement }),
		StartedAt:    partColumn(rows, func(c callRow) time.Time { return c.StartedAt }),
		CompletedAt: partColumn(rows, func(c callRow) time.Time {
			if c.Completed == nil {
				return time.Time{}
			}
			return c.At
		}),
		ExitCodes: partText(rows, func(c callRow) string {
			if c.Completed == nil || c.Completed.ExitCode == nil {
				return ""
			}
			return strconv.Itoa(*c.Completed.ExitCode)
		}),
		Results: partText(rows, func(c callRow) string {
			if c.Completed == nil {
				return ""
			}
			return string(c.mask.Args(c.Completed.Result))
		}),
		Ns: partColumn(rows, func(c callRow) int64 { return int64(c.N) }),
	}
}

// approvalRow is a question with when it was asked.
type approvalRow struct {
	view.Approval
	askedAt time.Time
}

func (b *batch) approvalRows() dbsqlc.UpsertApprovalsParams {
	rows := parts(b, func(c *changed) map[string]bool { return c.calls }, func(s *story, id string) (approvalRow, bool) {
		c := s.Calls[id]
		if c == nil || c.Asked == nil {
			return approvalRow{}, false
		}
		return approvalRow{view.ApprovalOf(s.State, c), c.ProposedAt}, true
	})
	decided := func(get func(view.Decision) string) func(approvalRow) string {
		return func(a approvalRow) string {
			if a.Decision == nil {
				return ""
			}
			return get(*a.Decision)
		}
	}
	return dbsqlc.UpsertApprovalsParams{
		Tenants: tenants(rows), Sessions: sessions(rows),
		Ids:        partText(rows, func(a approvalRow) string { return a.ID }),
		States:     partText(rows, func(a approvalRow) string { return string(a.State) }),
		Requesters: partText(rows, func(a approvalRow) string { return a.Requester }),
		Deadlines: partColumn(rows, func(a approvalRow) time.Time {
			if a.Deadline == nil {
				return time.Time{}
			}
			return *a.Deadline
		}),
		AskedAt:   partColumn(rows, func(a approvalRow) time.Time { return a.askedAt }),
		DecidedBy: partText(rows, decided(func(d view.Decision) string { return d.By })),
		DecidedAt: partColumn(rows, func(a approvalRow) time.Time {
			if a.Decision == nil {
				return time.Time{}
			}
			return a.Decision.At
		}),
		Reasons: partText(rows, decided(func(d view.Decision) string { return d.Reason })),
		Views:   partColumn(rows, func(a approvalRow) string { return document(a.Approval) }),
		Ns:      partColumn(rows, func(a approvalRow) int64 { return int64(a.N) }),
	}
}

package replay_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	fold "github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/projections/view"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// asOf reads the session in the past.
func (l *life) asOf(t *testing.T, when string) (*api.Session, error) {
	t.Helper()
	r, err := l.h.Client("alice").GetSessionWithResponse(l.h.Context(), l.id, &api.GetSessionParams{AsOf: &when})
	if err != nil {
		return nil, err
	}
	return r.JSON200, nil
}

func asOfN(t *testing.T, l *life) {
	state := fold.New()
	facts := l.h.Facts(l.id)
	for i, f := range facts {
		if i > 0 && facts[i-1].Message.Seq == f.Message.Seq {
			continue
		}
		if err := state.Apply(f.Message); err != nil {
			t.Fatal(err)
		}
		want := view.SessionOf(state)
		got, err := l.asOf(t, strconv.FormatUint(want.N, 10))
		if err != nil {
			t.Fatalf("as of n %d: %v", want.N, err)
		}
		if got.N != want.N || string(got.Phase) != string(want.Phase) || got.Waiting != want.Waiting || got.Generation != want.Generation || got.Run != want.Run {
			t.Errorf("as of n %d it was %+v, want %+v", want.N, got, want)
		}
	}
	now, err := l.asOf(t, strconv.FormatUint(state.N, 10))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintf("%+v", now); got != fmt.Sprintf("%+v", l.h.Session(l.id)) {
		t.Errorf("as of its last n it is %s", got)
	}
	_, err = l.asOf(t, strconv.FormatUint(state.N+1, 10))
	harness.Refused(t, err, api.CodeNotFound)
	for _, nonsense := range []string{"yesterday", "-1", "1.5", "0"} {
		if _, err := l.asOf(t, nonsense); err == nil {
			t.Errorf("as of %s there was something", nonsense)
		}
	}
}

func asOfTime(t *testing.T, l *life) {
	facts := l.h.Facts(l.id)
	for _, f := range facts {
		last := f
		for _, other := range facts { // what else happened by that time
			if !other.Message.Envelope.Time.After(f.Message.Envelope.Time) {
				last = other
			}
		}
		at := f.Message.Envelope.Time
		got, err := l.asOf(t, at.Format(time.RFC3339Nano))
		if err != nil {
			t.Fatalf("as of %s: %v", at, err)
		}
		if got.N != last.N {
			t.Errorf("as of %s its n was %d, want %d", at, got.N, last.N)
		}
	}
	_, err := l.asOf(t, facts[0].Message.Envelope.Time.Add(-time.Second).Format(time.RFC3339Nano))
	harness.Refused(t, err, api.CodeNotFound)
}

// entries reads all pages of the audit under a filter.
func (l *life) entries(t *testing.T, filter api.ListAuditParams) []api.AuditEntry {
	t.Helper()
	limit, seq := 7, l.h.Session(l.id).Seq
	filter.Session, filter.Limit, filter.MinSeq = &l.id, &limit, &seq
	var all []api.AuditEntry
	for {
		r, err := l.h.Client("admin").ListAuditWithResponse(l.h.Context(), &filter)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r.JSON200.Items...)
		if r.JSON200.Next == "" {
			return all
		}
		filter.Cursor = &r.JSON200.Next
	}
}

func audit(t *testing.T, l *life) {
	facts := l.h.Facts(l.id)
	all := l.entries(t, api.ListAuditParams{})
	if len(all) != len(facts) {
		t.Fatalf("the audit holds %d events, the log %d", len(all), len(facts))
	}
	outcomes := map[string]string{
		"call.answer-refused": "refused", "call.denied": "denied", "session.created": "done", "call.approved": "done", "session.ended": "done",
	}
	for i, e := range slices.Backward(all) {
		f := facts[len(all)-1-i]
		if e.N != f.N || e.Seq != f.Message.Seq || e.Type != f.Type || !e.Time.Equal(f.Message.Envelope.Time) || e.Subject != l.id || e.Kind != "session" {
			t.Fatalf("entry %+v is of %+v", e, f)
		}
		if e.Actor == "" || e.Command == "" || e.Service == "" || e.Outcome == "" {
			t.Errorf("%s doesn't say who, why or how: %+v", e.Type, e)
		}
		if want := outcomes[e.Type]; want != "" && e.Outcome != want {
			t.Errorf("%s came out as %s", e.Type, e.Outcome)
		}
		if e.Type == "call.decided" && e.Enforcement != api.EnforcementAsked {
			t.Errorf("%s is enforced as %q", e.Type, e.Enforcement)
		}
	}
	bob, middle := "user:bob", all[len(all)/2].Time
	for name, tc := range map[string]struct {
		filter api.ListAuditParams
		holds  func(api.AuditEntry) bool
	}{
		"by an actor":   {api.ListAuditParams{Actor: &bob}, func(e api.AuditEntry) bool { return e.Actor == bob }},
		"of two types":  {api.ListAuditParams{Type: &[]api.EventType{"call.denied", "call.approved"}}, func(e api.AuditEntry) bool { return e.Type == "call.denied" || e.Type == "call.approved" }},
		"from a time":   {api.ListAuditParams{From: &middle}, func(e api.AuditEntry) bool { return !e.Time.Before(middle) }},
		"before a time": {api.ListAuditParams{To: &middle}, func(e api.AuditEntry) bool { return e.Time.Before(middle) }},
		"both":          {api.ListAuditParams{Actor: &bob, To: &middle}, func(e api.AuditEntry) bool { return e.Actor == bob && e.Time.Before(middle) }},
	} {
		want := slices.DeleteFunc(slices.Clone(all), func(e api.AuditEntry) bool { return !tc.holds(e) })
		got := l.entries(t, tc.filter)
		if !slices.EqualFunc(got, want, func(a, b api.AuditEntry) bool { return a.Seq == b.Seq && a.N == b.N }) || len(got) == 0 {
			t.Errorf("%s: %d entries, want %d", name, len(got), len(want))
		}
	}
	if got := l.entries(t, api.ListAuditParams{Type: &[]api.EventType{"no.such"}}); len(got) != 0 {
		t.Errorf("%d events of no type", len(got))
	}
	_, err := l.h.Client("alice").ListAuditWithResponse(l.h.Context(), nil)
	harness.Refused(t, err, api.CodeForbidden)
}

package events_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/events"
)

func TestSubjects(t *testing.T) {
	for agg, want := range map[events.Aggregate]string{
		events.AggregateSession: "ev.t-1.s.a-9", events.AggregateRuntime: "ev.t-1.runtime.a-9", events.AggregatePolicy: "ev.t-1.policy.a-9",
		events.AggregateSweep: "ev.t-1.sweep.a-9",
	} {
		got, err := events.SubjectOf(agg, "t-1", "a-9")
		if err != nil || got != want {
			t.Errorf("%s: %q, %v", agg, got, err)
		}
		if a, ok := events.ParseSubject(got); !ok || a != (events.Address{Aggregate: agg, Tenant: "t-1", Key: "a-9"}) {
			t.Errorf("%q is %+v, %t", got, a, ok)
		}
	}
	var bad *events.BadTokenError
	for _, token := range []string{"", "A", "a.b", "*", ">", "a b", "é", "a_b", strings.Repeat("a", 64), "a\n"} {
		_, first := events.SessionSubject(token, "a")
		_, second := events.SessionSubject("a", token)
		_, third := events.OutputSubject(token, "a")
		_, fourth := events.OutputSubject("a", token)
		_, fifth := events.CommandSubject(events.ServiceSession, token, "create")
		for i, err := range []error{first, second, third, fourth, fifth} {
			if !errors.As(err, &bad) || bad.Value != token {
				t.Errorf("token %q is taken in place %d: %v", token, i, err)
			}
		}
	}
	if s, err := events.OutputSubject("t", "s-1"); err != nil || s != "out.t.s-1" {
		t.Errorf("%q, %v", s, err)
	}
	if tenant, session, ok := events.ParseOutputSubject("out.t.s-1"); !ok || tenant != "t" || session != "s-1" {
		t.Errorf("%q, %q, %t", tenant, session, ok)
	}
	for _, s := range []string{"out.t", "out.t.s.x", "ev.t.s", "out.*.s", "out.t."} {
		if _, _, ok := events.ParseOutputSubject(s); ok {
			t.Errorf("%q is taken for output", s)
		}
	}
	if s, err := events.CommandSubject(events.ServicePolicy, "t", "decide"); err != nil || s != "cmd.policy.t.decide" {
		t.Errorf("%q, %v", s, err)
	}
}

func FuzzParseSubject(f *testing.F) {
	for _, s := range []string{"ev.t.s.a", "ev.t.runtime.a", "ev.t.policy.a", "ev.t.sweep.a", events.SubjectGenesis, "ev..s.a", "ev.t.s.a.b", "out.t.a", "ev.*.s.>"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, subject string) {
		if a, ok := events.ParseSubject(subject); ok {
			if again, err := events.SubjectOf(a.Aggregate, a.Tenant, a.Key); err != nil || again != subject {
				t.Fatalf("%q is %+v, which is %q (%v)", subject, a, again, err)
			}
			if strings.ContainsAny(subject, "*> \t\r\n") || len(subject) > 150 {
				t.Fatalf("%q is no literal subject", subject)
			}
		}
		if tenant, session, ok := events.ParseOutputSubject(subject); ok {
			if again, err := events.OutputSubject(tenant, session); err != nil || again != subject {
				t.Fatalf("%q is output of %q and %q (%v)", subject, tenant, session, err)
			}
		}
	})
}

func TestIDs(t *testing.T) {
	// Parts are length-prefixed: no two lists of parts are the same bytes.
	seen := map[string][]string{}
	for _, parts := range [][]string{{}, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"", "ab"}, {"ab", ""}, {"a", "", "b"}} {
		id := events.HashID("s", parts...)
		if other, ok := seen[id]; ok {
			t.Errorf("%q and %q have the same id", parts, other)
		}
		seen[id] = parts
		if len(id) != 22 || !events.ValidToken(id) || id != events.HashID("s", parts...) {
			t.Errorf("id %q", id)
		}
	}
	if a, b := events.RandomID("r"), events.RandomID("r"); a == b || len(a) != 22 || !events.ValidToken(a) {
		t.Errorf("%q, %q", a, b)
	}
	call := events.CallID("s-1", "a-1", "shell", "hash")
	if session, ok := events.SessionOfCall(call); !ok || session != "s-1" || call == events.CallID("s-1", "a-1", "shell", "other") {
		t.Errorf("%q is of %q, %t", call, session, ok)
	}
	for _, id := range []string{"", "s-1", "s-1.", "s-1.x-1", ".c-1", "S.c-1", "s-1.c-1.c-2", "s-1.c-*"} {
		if session, ok := events.SessionOfCall(id); ok {
			t.Errorf("%q is taken for a call of %q", id, session)
		}
	}
}

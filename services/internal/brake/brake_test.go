package brake

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/policy"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/events/session"
)

// limit is that of the measure in a test, in bytes.
const limit = 1_000_000

// measured makes a brake whose one source gives what it is told, or fails.
func measured(t *testing.T) (b *Brake, reads func(share float64, err error), m *Metrics) {
	t.Helper()
	var share float64
	var fails error
	m = NewMetrics(prometheus.NewRegistry())
	b, err := New(Config{
		Sources: []Source{func(context.Context) ([]Usage, error) {
			if fails != nil {
				return nil, fails
			}
			return []Usage{{What: "stream", Used: uint64(share * limit), Limit: limit}, {What: "account", Used: 5}}, nil
		}},
		Logger: slog.New(slog.DiscardHandler), Metrics: m,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b, func(s float64, err error) {
		share, fails = s, err
		b.Measure(t.Context())
	}, m
}

// The brake is set at 85 % and let off under 80 %, and a measure that can't be taken
// changes nothing.
func TestHysteresis(t *testing.T) {
	b, reads, m := measured(t)
	for i, step := range []struct {
		share float64
		err   error
		set   bool
	}{
		{0.849, nil, false},
		{0.85, nil, true},
		{0.81, nil, true},
		{0, errors.New("nobody answers"), true},
		{0.80, nil, true},
		{0.799, nil, false},
		{0.84, nil, false},
		{1.2, nil, true},
	} {
		reads(step.share, step.err)
		if set, _ := b.State(); set != step.set {
			t.Errorf("step %d, at %v (%v): set is %v", i, step.share, step.err, set)
		}
		if got := testutil.ToFloat64(m.braking) == 1; got != step.set {
			t.Errorf("step %d: the metric says %v", i, got)
		}
	}
	if _, worst := b.State(); worst.What != "stream" || worst.Used != 1.2*limit {
		t.Errorf("the fullest is %+v", worst)
	}
}

// While the brake is set only what concludes is appended, by whichever service, and a
// refusal leaves nothing behind.
func TestOnlyWhatConcludesPasses(t *testing.T) {
	b, reads, m := measured(t)
	inner := memlog.New(eventlog.Genesis{LogID: "l", Epoch: "e"})
	log := b.Log(inner)
	put := func(subject string, by events.Service, records ...events.Record) error {
		last, _, err := log.Last(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(1)
		if last.Seq > 0 {
			n = last.Envelope.LastN() + 1
		}
		_, err = log.Append(t.Context(), subject, events.Envelope{
			Command: events.RandomID("cmd"), Actor: events.Actor{Kind: events.ActorService, ID: "t"}, Service: by,
			N: n, Prev: last.Seq, Time: time.Now(), Events: records,
		})
		return err
	}
	reads(0.9, nil)
	const subject = "ev.t1.s.one"
	for name, c := range map[string]struct {
		by       events.Service
		payloads []session.Payload
		passes   bool
	}{
		"create":             {events.ServiceSession, []session.Payload{session.Created{}}, false},
		"message and resume": {events.ServiceSession, []session.Payload{session.MessageReceived{}, session.ResumeRequested{}}, false},
		"terminate":          {events.ServiceSession, []session.Payload{session.Terminated{}}, true},
		"terminate and more": {events.ServiceSession, []session.Payload{session.Terminated{}, session.Extended{}}, false},
		"use":                {events.ServiceSession, []session.Payload{session.ActivityNoted{Until: time.Now()}}, false},
		"use is over":        {events.ServiceSession, []session.Payload{session.ActivityNoted{}}, true},
		"claim":              {events.ServiceWorkload, []session.Payload{session.ClaimRequested{}}, false},
		"what was claimed":   {events.ServiceWorkload, []session.Payload{session.Claimed{}}, true},
		"run":                {events.ServiceRunner, []session.Payload{session.RunStarted{}}, false},
		"what was said":      {events.ServiceRunner, []session.Payload{session.RunMessageRecorded{}, session.RunFinished{}}, true},
		"vote for":           {events.ServicePolicy, []session.Payload{session.CallVoteCast{Decision: "approve"}, session.CallApproved{}}, false},
		"one of two for":     {events.ServicePolicy, []session.Payload{session.CallVoteCast{Decision: "approve"}}, false},
		"vote against":       {events.ServicePolicy, []session.Payload{session.CallVoteCast{Decision: "deny"}, session.CallDenied{}}, true},
		"start of a call":    {events.ServicePolicy, []session.Payload{session.CallStarted{}}, false},
		"its end":            {events.ServicePolicy, []session.Payload{session.CallCompleted{}}, true},
	} {
		records, err := session.Records(c.by, c.payloads...)
		if err != nil {
			t.Fatal(err)
		}
		before, _, _ := inner.Last(t.Context(), subject)
		err = put(subject, c.by, records...)
		after, _, _ := inner.Last(t.Context(), subject)
		_, refused := errors.AsType[*eventlog.NoRoomError](err)
		if refused == c.passes || !refused && err != nil || (after.Seq != before.Seq) != c.passes {
			t.Errorf("%s: %v, from sequence %d to %d", name, err, before.Seq, after.Seq)
		}
	}
	for name, passes := range map[string]bool{runtime.TypeApplied: false, runtime.TypeRemoved: true, policy.TypeApplied: false, policy.TypeRemoved: true, "session.later": false} {
		record := events.Record{Type: name, V: 1, Data: []byte(`{}`)}
		if concludes(events.Envelope{Service: events.ServiceSession, Events: []events.Record{record}}) != passes {
			t.Errorf("%s passes: %v", name, !passes)
		}
	}
	if testutil.ToFloat64(m.refused) == 0 {
		t.Error("refusals aren't counted")
	}
	reads(0.5, nil)
	if err := put("ev.t1.s.two", events.ServiceSession, mustRecords(t, session.Created{})...); err != nil {
		t.Errorf("with room: %v", err)
	}
}

func mustRecords(t *testing.T, p session.Payload) []events.Record {
	t.Helper()
	records, err := session.Records(events.ServiceSession, p)
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(records)
}

// Of a large file system only its last 32 GiB count.
func TestDisk(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		size, free uint64
		set        bool
	}{
		{20 * gib, 4 * gib, false},
		{20 * gib, 3*gib - 1, true},
		{4000 * gib, 100 * gib, false}, // 97 % used
		{4000 * gib, 4 * gib, true},
	} {
		if u := lastOf(c.size, c.free); u.Share() >= SetAt != c.set {
			t.Errorf("%d of %d GiB free: %.2f", c.free/gib, c.size/gib, u.Share())
		}
	}
	if found, err := Disk(t.TempDir())(t.Context()); err != nil || found[0].Limit == 0 {
		t.Errorf("this file system: %+v, %v", found, err)
	}
	if _, err := Disk("/no/such/place")(t.Context()); err == nil {
		t.Error("a place that isn't there was measured")
	}
}

// What there is no room for at all is refused before it is sent, so for good, whatever
// it is; contents beside the log have a room of their own.
func TestNothingIsSentToAFullLog(t *testing.T) {
	t.Parallel()
	usage := Usage{What: "stream", Used: 990_000, Limit: 1_000_000}
	b, err := New(Config{Sources: []Source{func(context.Context) ([]Usage, error) {
		return []Usage{usage, {What: "blobs", Used: 1000, Limit: 1000}, {What: "account", Used: 5_000_000}}, nil
	}}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	sent := &taking{}
	end := func(reason int) error {
		_, err := b.Log(sent).Append(t.Context(), "ev.t1.s.one", events.Envelope{
			Service: events.ServiceSession, Events: mustRecords(t, session.Terminated{Reason: strings.Repeat("x", reason)}),
		})
		return err
	}
	for _, c := range []struct {
		used   uint64
		reason int
		sent   bool
	}{
		{990_000, 10, true},
		{990_000, 20_000, false},
		{990_000, 300 << 10, true}, // it goes beside the log
		{999_900, 10, false},
		{1_200_000, 10, false},
		{10, 10, true},
	} {
		usage.Used, sent.n = c.used, 0
		b.Measure(t.Context())
		err := end(c.reason)
		_, low := errors.AsType[*LowError](err)
		_, full := errors.AsType[*eventlog.NoRoomError](err)
		if (err == nil) != c.sent || low == c.sent || full == c.sent || (sent.n == 1) != c.sent {
			t.Errorf("%d used, %d more: %v, sent %d times", c.used, c.reason, err, sent.n)
		}
	}
}

// taking is a log that takes everything.
type taking struct {
	eventlog.Log
	n int
}

// Append implements eventlog.Log.
func (c *taking) Append(context.Context, string, events.Envelope) (uint64, error) {
	c.n++
	return uint64(c.n), nil
}

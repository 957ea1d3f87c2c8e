package baddays_test

import (
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/internal/broker"
)

// A newer build has written a type of event that the older doesn't know. The older
// decides nothing on that session, says so, and goes on with all others; after its
// upgrade the session's views are as if nothing had been, and it lives on.
func TestOlderBuildMeetsANewerEvent(t *testing.T) {
	t.Parallel()
	older, err := harness.Build("github.com/holdfast-io/holdfast/services/holdfast", "older")
	if err != nil {
		t.Fatal(err)
	}
	h := harness.Start(t)
	freely(h)
	newer, other := h.CreateOf("alice", api.CreateSession{Runtime: "free"}), h.CreateOf("alice", api.CreateSession{Runtime: "free"})
	h.Stop()
	until := time.Now().Add(100 * time.Hour).UTC().Truncate(time.Second)
	append1(t, filepath.Join(h.DataDir, "nats"), newer.ID, session.Extended{MaxAt: &until})

	child := harness.SpawnBuild(t, older, nil, "dev", "--data-dir", h.DataDir, "--addr", "127.0.0.1:0", "--isolation", harness.Isolation())
	child.Await("holdfast demo")
	alice := client(t, h)
	ctx := harness.Context(t)
	_, err = alice.SuspendSessionWithResponse(ctx, newer.ID, nil)
	harness.Refused(t, err, api.CodeUnknownEventType)
	_, err = alice.SendMessageWithResponse(ctx, newer.ID, nil, api.SendMessage{Content: "pwd"})
	harness.Refused(t, err, api.CodeUnknownEventType)
	_, err = alice.GetSessionWithResponse(ctx, newer.ID, nil)
	harness.Refused(t, err, api.CodeUnknownEventType)
	if _, err := alice.SendMessageWithResponse(ctx, other.ID, nil, api.SendMessage{Content: "pwd"}); err != nil {
		t.Errorf("send to another session: %v", err)
	}
	harness.Eventually(t, "the view of the other session goes on", func() bool {
		r, err := alice.ListRunsWithResponse(ctx, other.ID, nil)
		return err == nil && len(r.JSON200.Items) == 1 && r.JSON200.Items[0].State == api.RunStateFinished
	})
	if listed := listedOf(t, alice, newer.ID); listed.N != newer.N {
		t.Errorf("the older build's view went from n %d to %d", newer.N, listed.N)
	}
	if code := child.Interrupt(); code != 0 {
		t.Fatalf("the older build ended with %d: %s", code, child.Said())
	}

	h.Begin()
	alice = client(t, h)
	harness.Eventually(t, "the view has what the older build could not read", func() bool {
		return listedOf(t, alice, newer.ID).Deadlines.Max.Equal(until)
	})
	h.Send("alice", newer.ID, "pwd")
	h.AwaitFact(newer.ID, "its run is over", runs(1))
}

// append1 appends to a session of a program that is stopped, as another process would.
func append1(t *testing.T, dir, id string, p session.Payload) {
	t.Helper()
	b, err := broker.Start(broker.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stop()
	ctx := harness.Context(t)
	nc, err := b.Connect(ctx, broker.UserSession)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	log, err := natslog.New(js, nc, natslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	records, err := session.Records(events.ServiceSession, p)
	if err != nil {
		t.Fatal(err)
	}
	appendRecords(t, log, id, records)
}

// appendRecords appends what no decider has seen, after what the session has.
func appendRecords(t *testing.T, log eventlog.Log, id string, records []events.Record) {
	t.Helper()
	ctx := harness.Context(t)
	subject, err := events.SessionSubject(harness.Tenant, id)
	if err != nil {
		t.Fatal(err)
	}
	last, ok, err := log.Last(ctx, subject)
	if err != nil || !ok {
		t.Fatalf("last of %s: %v, %v", id, ok, err)
	}
	if _, err := log.Append(ctx, subject, events.Envelope{
		Command: events.RandomID(events.PrefixCommand), Actor: events.Actor{Kind: events.ActorService, ID: "newer"},
		Service: events.ServiceSession, N: last.Envelope.LastN() + 1, Prev: last.Seq, Time: time.Now().UTC(), Events: records,
	}); err != nil {
		t.Fatal(err)
	}
}

// client is alice at whatever runs on the data directory.
func client(t *testing.T, h *harness.Holdfast) *apiclient.ClientWithResponses {
	t.Helper()
	server, err := dev.ReadServer(h.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	c, err := apiclient.New(apiclient.Config{URL: server.URL, Token: h.Token("alice")})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// listedOf is a session as the views have it.
func listedOf(t *testing.T, c *apiclient.ClientWithResponses, id string) api.Session {
	t.Helper()
	r, err := c.ListSessionsWithResponse(harness.Context(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range r.JSON200.Items {
		if s.ID == id {
			return s
		}
	}
	t.Fatalf("%s isn't listed", id)
	return api.Session{}
}

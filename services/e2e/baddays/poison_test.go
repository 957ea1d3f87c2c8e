package baddays_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog/natslog"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/internal/broker"
)

// An event that nobody may have written makes one session unusable: it is refused by
// name, its service parks it and lists it, a retry is taken and parks it again, and
// neither other sessions nor other tenants see any of it.
func TestPoisonEvent(t *testing.T) {
	t.Parallel()
	h := harness.Start(t, harness.SharedPostgres(t))
	freely(h)
	poisoned, other := h.CreateOf("alice", api.CreateSession{Runtime: "free"}), h.CreateOf("alice", api.CreateSession{Runtime: "free"})
	nc, js := as(t, h, broker.UserSession)
	log, err := natslog.New(js, nc, natslog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	appendRecords(t, log, poisoned.ID, []events.Record{
		{Type: "workload.lost", V: 1, Data: json.RawMessage(`{"generation":1,"podUid":"forged","cause":"forged"}`)},
	})

	_, err = h.Client("alice").SendMessageWithResponse(h.Context(), poisoned.ID, nil, api.SendMessage{Content: "pwd"})
	harness.Refused(t, err, api.CodeLogFaulted)
	parked := awaitParked(t, h, poisoned.ID)
	if parked.Service != api.ParkingServiceSession || parked.Failures != 10 || !strings.Contains(parked.Reason, `belongs to "workload"`) {
		t.Errorf("parked: %+v", parked)
	}
	_, err = h.Client("alice").ListParkedWithResponse(h.Context())
	harness.Refused(t, err, api.CodeForbidden)

	run := h.Send("alice", other.ID, "pwd")
	h.AwaitRun(other.ID, run, api.RunStateFinished)

	if _, err := h.Client("admin").RetryParkedWithResponse(h.Context(), parked.Service, parked.Session); err != nil {
		t.Fatal(err)
	}
	if again := awaitParkedSince(t, h, parked); again.Failures != 10 {
		t.Errorf("parked again: %+v", again)
	}
	_, err = h.Client("admin").RetryParkedWithResponse(h.Context(), api.ParkingServicePolicy, other.ID)
	harness.Refused(t, err, api.CodeNotFound)
	h.Stop() // the log is broken on purpose
}

func awaitParked(t *testing.T, h *harness.Holdfast, id string) api.Parked {
	t.Helper()
	return awaitParkedSince(t, h, api.Parked{Service: api.ParkingServiceSession, Session: id})
}

// awaitParkedSince waits until a session is parked by a service, later than before.
func awaitParkedSince(t *testing.T, h *harness.Holdfast, before api.Parked) api.Parked {
	t.Helper()
	var found api.Parked
	harness.Eventually(t, before.Session+" is parked", func() bool {
		r, err := h.Client("admin").ListParkedWithResponse(h.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, found = range r.JSON200.Items {
			if found.Service == before.Service && found.Session == before.Session && found.At.After(before.At) {
				return true
			}
		}
		return false
	})
	return found
}

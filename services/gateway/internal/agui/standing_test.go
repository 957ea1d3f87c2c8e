package agui

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/agentinput"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
)

func thread(t *testing.T, past given.Past) *agentinput.Thread {
	t.Helper()
	th := agentinput.NewThread()
	subject, err := events.SessionSubject(given.Tenant, given.Session)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range past {
		service, _ := session.Owner(session.TypeOf(p))
		records, err := session.Records(service, p)
		if err != nil {
			t.Fatal(err)
		}
		if err := th.Apply(events.Message{Subject: subject, Seq: uint64(i + 2), Envelope: events.Envelope{
			Command: fmt.Sprint(i), Service: service, N: uint64(i + 1), Time: given.Start, Events: records,
		}}); err != nil {
			t.Fatal(err)
		}
	}
	return th
}

// What a stream tells of a thread is masked as every other view of it is: messages,
// state and why the last run failed.
func TestStandingIsMasked(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	asked := given.Queued("r-1").(session.MessageReceived)
	asked.Content = []byte(`"log in with --password=` + secret + `"`)
	waiting := given.Queued("r-3").(session.MessageReceived)
	waiting.Content = asked.Content
	s, err := standingOf(thread(t, given.Ready.And(asked, given.Started("r-1"),
		session.RunFinished{RunID: "r-1", Outcome: "success", State: []byte(`{"step":1,"password":"` + secret + `"}`)},
		given.Queued("r-2"), given.Started("r-2"),
		session.RunFailed{RunID: "r-2", Cause: "agent-error", Detail: "no login with --password=" + secret}, waiting)))
	if err != nil {
		t.Fatal(err)
	}
	if s.state == nil || s.last == nil || len(s.all) != 2 || len(s.waiting) != 1 {
		t.Fatalf("%+v", s)
	}
	told := fmt.Sprintf("%s %s %s %s", s.all, s.waiting, s.state, s.last.Detail)
	if strings.Contains(told, secret) || !strings.Contains(told, `"step":1`) || !strings.Contains(told, "no login with") {
		t.Error(told)
	}
}

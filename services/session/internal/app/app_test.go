package app_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/runtime"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/command"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/reactor"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/session/internal/app"
)

// world is the app on a log that has the runtime shell.
type world struct {
	t   *testing.T
	log *memlog.Log
	now time.Time
	app *app.App
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, log: memlog.New(eventlog.Genesis{LogID: "log", Epoch: "1"}), now: given.Start}
	w.restart()
	w.runtime("shell", func(s *runtime.State) (events.Record, error) {
		return s.ApplyRecord(runtime.Spec{
			Name: "shell", Kind: runtime.KindAgent, Adapter: runtime.Adapter{Protocol: "agui"}, Workspace: &runtime.Workspace{Path: "/workspace"},
			Timeouts: runtime.Timeouts{Claim: events.Duration(time.Minute), Idle: events.Duration(time.Hour), Max: events.Duration(8 * time.Hour)},
			OnIdle:   "suspend", OnLoss: "restart", Policy: "coder",
		})
	})
	w.runtime("tool", func(s *runtime.State) (events.Record, error) {
		return s.ApplyRecord(runtime.Spec{Name: "tool", Kind: runtime.KindCodeInterpreter, Adapter: runtime.Adapter{Protocol: "none"}})
	})
	return w
}

func (w *world) restart() {
	w.app = app.New(app.Config{Log: w.log, Epoch: "1", Now: func() time.Time { return w.now }})
}

func (w *world) runtime(name string, decide func(*runtime.State) (events.Record, error)) {
	w.t.Helper()
	subject, err := events.SubjectOf(events.AggregateRuntime, given.Tenant, name)
	if err != nil {
		w.t.Fatal(err)
	}
	store := eventlog.NewStore(eventlog.Config[*runtime.State]{Log: w.log, New: runtime.New, Service: events.ServiceWorkload})
	_, err = store.Execute(context.Background(), subject, eventlog.Command{
		ID: events.RandomID("cmd"), Actor: events.Actor{Kind: events.ActorPerson, ID: "admin"},
	}, func(s *runtime.State, _ time.Time) ([]events.Record, error) {
		r, err := decide(s)
		return []events.Record{r}, err
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// do sends a command under an id; its answer is the result, or the problem's code.
func (w *world) do(verb, id, body string) string {
	w.t.Helper()
	reply, err := w.app.Handlers()[verb](context.Background(), given.Tenant, command.Request{
		CommandID: id, Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}, Session: given.Session,
		Deadline: w.now.Add(time.Minute), Body: json.RawMessage(body),
	})
	if err != nil {
		return string(problem.From(err).Code)
	}
	return fmt.Sprintf("n=%d repeated=%t %s", reply.N, reply.Repeated, reply.Result)
}

func (w *world) length() uint64 {
	info, err := w.log.Info(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	return info.LastSeq
}

const (
	create  = `{"runtime":"shell","bodyHash":"one"}`
	created = `n=1 repeated=false {"session":"` + given.Session + `","created":true}`
)

// The same key gets the same answer, whatever has become of the runtime and of the
// process since; another body under it is refused.
func TestCreateAgain(t *testing.T) {
	t.Parallel()
	const again = `n=1 repeated=true {"session":"` + given.Session + `","created":false}`
	for name, meanwhile := range map[string]func(*world){
		"at once":         func(*world) {},
		"after a restart": (*world).restart,
		"the runtime is removed": func(w *world) {
			w.runtime("shell", func(s *runtime.State) (events.Record, error) { return s.RemoveRecord(), nil })
		},
		"after more of its life": func(w *world) { w.do(verbs.Terminate, "cmd-2", `{}`) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if got := w.do(verbs.Create, "cmd-1", create); got != created {
				t.Fatal(got)
			}
			meanwhile(w)
			before := w.length()
			if got := w.do(verbs.Create, "cmd-1", create); got != again {
				t.Errorf("again: %s", got)
			}
			if got := w.do(verbs.Create, "cmd-1", strings.Replace(create, "one", "two", 1)); got != "idempotency-conflict" {
				t.Errorf("another body: %s", got)
			}
			if w.length() != before {
				t.Error("a repetition was appended")
			}
		})
	}
}

func TestSendAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do(verbs.Create, "cmd-1", create)
	first := w.do(verbs.Send, "cmd-2", `{"content":"\"hi\"","bodyHash":"one"}`)
	w.restart()
	if got := w.do(verbs.Send, "cmd-2", `{"content":"\"hi\"","bodyHash":"one"}`); got != strings.Replace(first, "repeated=false", "repeated=true", 1) || got == first {
		t.Errorf("first %s, again %s", first, got)
	}
	if got := w.do(verbs.Send, "cmd-2", `{"content":"\"ho\"","bodyHash":"two"}`); got != "idempotency-conflict" {
		t.Errorf("another body: %s", got)
	}
	if got := w.do(verbs.Send, "cmd-3", `{"content":"\"hi\"","bodyHash":"one"}`); got == first {
		t.Error("another key got the first message's ids")
	}
}

// A message in the create has the ids that a repetition names.
func TestCreateWithMessageAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const body = `{"runtime":"shell","message":"\"hi\"","bodyHash":"one"}`
	first := w.do(verbs.Create, "cmd-1", body)
	again := w.do(verbs.Create, "cmd-1", body)
	run := func(answer string) string { _, r, _ := strings.Cut(answer, `"runId":"`); return r[:min(len(r), 22)] }
	if run(first) == "" || run(first) != run(again) {
		t.Errorf("%s, then %s", first, again)
	}
}

// Every nonsense is refused with its code, and nothing is appended.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.length()
	long := strings.Repeat("k", 64)
	for name, tc := range map[string]struct{ verb, body, code string }{
		"no body":               {verbs.Create, ``, "invalid-request"},
		"not an object":         {verbs.Create, `[]`, "invalid-request"},
		"an unknown field":      {verbs.Create, `{"runtime":"shell","x":1}`, "invalid-request"},
		"no runtime":            {verbs.Create, `{}`, "runtime-not-found"},
		"a stranger":            {verbs.Create, `{"runtime":"stranger"}`, "runtime-not-found"},
		"a runtime's subject":   {verbs.Create, `{"runtime":"a.>"}`, "runtime-not-found"},
		"a message to no agent": {verbs.Create, `{"runtime":"tool","message":"\"hi\""}`, "invalid-request"},
		"a longer idleness":     {verbs.Create, `{"runtime":"shell","idleTimeout":"2h"}`, "invalid-request"},
		"no idleness":           {verbs.Create, `{"runtime":"shell","idleTimeout":"0s"}`, "invalid-request"},
		"a longer age":          {verbs.Create, `{"runtime":"shell","maxDuration":"9h"}`, "invalid-request"},
		"an empty label":        {verbs.Create, `{"runtime":"shell","labels":{"":"x"}}`, "invalid-request"},
		"a long label":          {verbs.Create, `{"runtime":"shell","labels":{"` + long + `":"x"}}`, "invalid-request"},
		"a label with a space":  {verbs.Create, `{"runtime":"shell","labels":{"a b":"x"}}`, "invalid-request"},
		"a label in two lines":  {verbs.Create, `{"runtime":"shell","labels":{"a\n":"x"}}`, "invalid-request"},
		"a label of a script":   {verbs.Create, `{"runtime":"shell","labels":{"é":"x"}}`, "invalid-request"},
		"a message to nobody":   {verbs.Send, `{"content":"\"hi\""}`, "not-found"},
		"suspend nobody":        {verbs.Suspend, `{}`, "not-found"},
		"extend by nonsense":    {verbs.Extend, `{"max":"soon"}`, "invalid-request"},
		"terminate nobody":      {verbs.Terminate, `{}`, "not-found"},
		"hold nobody":           {verbs.NoteActivity, `{"holder":"h","until":"2030-01-01T00:00:00Z"}`, "not-found"},
	} {
		if got := w.do(tc.verb, events.RandomID("cmd"), tc.body); got != tc.code {
			t.Errorf("%s: %s, want %s", name, got, tc.code)
		}
	}
	if w.length() != before {
		t.Error("something was appended")
	}
}

// Each label that is wrong is named.
func TestLabelsAreNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, err := w.app.Handlers()[verbs.Create](context.Background(), given.Tenant, command.Request{
		CommandID: "cmd-1", Actor: events.Actor{Kind: events.ActorPerson, ID: "alice"}, Session: given.Session,
		Body: json.RawMessage(`{"runtime":"shell","labels":{"b~/ ":"x","a !":"y","team/search.v-1_x":"z","` + strings.Repeat("k", 63) + `":"x"}}`),
	})
	var pointers []string
	for _, f := range problem.From(err).Errors {
		pointers = append(pointers, f.Pointer)
	}
	if got := strings.Join(pointers, ", "); got != "/labels/a !, /labels/b~0~1 " {
		t.Errorf("%s", got)
	}
}

// The terms that are pinned are the runtime's, shortened as the create says.
func TestTermsArePinned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do(verbs.Create, "cmd-1", `{"runtime":"shell","idleTimeout":"5m","maxDuration":"1h","labels":{"team":"search"}}`)
	m, err := w.log.Get(context.Background(), w.length())
	if err != nil {
		t.Fatal(err)
	}
	c := given.Only[session.Created](t, m.Envelope.Events)
	if c.Terms.Idle != events.Duration(5*time.Minute) || c.Terms.Max != events.Duration(time.Hour) || !c.Terms.Suspends || c.Terms.Policy != "coder" ||
		c.Owner != "alice" || c.Runtime != (session.RuntimeRef{Name: "shell", Revision: 1}) || c.Labels["team"] != "search" {
		t.Errorf("%+v", c)
	}
}

// What the service does by itself it does once.
func TestSettleAndDue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.do(verbs.Create, "cmd-1", create)
	key := reactor.Key{Tenant: given.Tenant, Session: given.Session}
	w.now = w.now.Add(8 * time.Hour)
	for range 2 {
		if err := w.app.Due(context.Background(), key.Tenant, key.Session, session.Deadline{Kind: session.DeadlineMax}); err != nil {
			t.Fatal(err)
		}
		if err := w.app.Settle(context.Background(), key); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.do(verbs.Send, "cmd-2", `{"content":"\"hi\""}`); got != "session-ended" {
		t.Errorf("%s", got)
	}
	if n := w.length(); n != 6 { // genesis, two runtimes, created, expired, ended
		t.Errorf("%d messages", n)
	}
}

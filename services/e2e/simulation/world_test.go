package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/policy/policytest"
	"github.com/holdfast-io/holdfast/services/runner/runnertest"
	"github.com/holdfast-io/holdfast/services/session/sessiontest"
	"github.com/holdfast-io/holdfast/services/workload/workloadtest"
)

type decide = func(*session.State, time.Time) ([]events.Record, error)

// reactors in the order in which they get their turn.
var reactors = []events.Service{events.ServiceSession, events.ServiceWorkload, events.ServicePolicy, events.ServiceRunner}

var interested = map[events.Service]func([]string) bool{
	events.ServiceSession:  sessiontest.Interested,
	events.ServiceWorkload: workloadtest.Interested,
	events.ServicePolicy:   policytest.Interested,
	events.ServiceRunner:   runnertest.Interested,
}

// world is one session with everything around it.
type world struct {
	t       *rapid.T
	log     *memlog.Log
	subject string
	now     time.Time
	stores  map[events.Service]*eventlog.Store[*session.State]
	// heard is how far the log was handed to the reactors; dirty are those that
	// heard of something since they last found nothing to do.
	heard uint64
	dirty map[events.Service]bool

	ids      int
	driver   driver
	effect   *effect // what the workload service is in the middle of
	instance string  // the runner that lives
	k        map[string]uint64
}

func newWorld(t *rapid.T, terms session.Terms) *world {
	w := &world{
		t: t, log: memlog.New(eventlog.Genesis{LogID: "simulation", Epoch: "1"}), now: time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC),
		stores: map[events.Service]*eventlog.Store[*session.State]{}, dirty: map[events.Service]bool{}, heard: 1,
		driver: driver{boxes: map[uint64]*box{}}, k: map[string]uint64{},
	}
	w.instance = w.id("runner")
	var err error
	if w.subject, err = events.SessionSubject("default", "s-aaaaaaaaaaaaaaaaaaaa"); err != nil {
		t.Fatal(err)
	}
	for _, service := range reactors {
		w.stores[service] = eventlog.NewStore(eventlog.Config[*session.State]{
			Log: w.log, New: session.New, Service: service, Now: func() time.Time { return w.now },
		})
	}
	w.do(events.ServiceSession, person("alice"), sessiontest.Create{
		Owner: "alice", Runtime: session.RuntimeRef{Name: "shell", Revision: 1}, Terms: terms,
	}.Decide)
	return w
}

func person(name string) events.Actor { return events.Actor{Kind: events.ActorPerson, ID: name} }

func own(s events.Service) events.Actor {
	return events.Actor{Kind: events.ActorService, ID: string(s)}
}

func (w *world) id(prefix string) string {
	w.ids++
	return fmt.Sprintf("%s-%d", prefix, w.ids)
}

// state is the session as of now. It is shared with a store: only read it.
func (w *world) state() *session.State {
	var st *session.State
	err := w.stores[events.ServiceSession].Read(context.Background(), w.subject, func(s eventlog.Snapshot[*session.State]) error {
		st = s.State
		return nil
	})
	if err != nil {
		w.t.Fatalf("read: %v", err)
	}
	return st
}

// do runs a command and hands what it appended to the reactors. It gives the
// refusal, which must be one that is meant and must have changed nothing.
func (w *world) do(service events.Service, who events.Actor, decide decide) error {
	before := w.heard
	_, err := w.stores[service].Execute(context.Background(), w.subject,
		eventlog.Command{ID: w.id("cmd"), Actor: who}, decide)
	types := w.hear()
	if err == nil {
		return nil
	}
	var p *problem.Error
	switch {
	case errors.Is(err, workloadtest.ErrOvertaken), errors.Is(err, runnertest.ErrNotMine):
	case errors.As(err, &p) && p.Code.Known():
	default:
		w.t.Fatalf("%s: not a refusal: %v", service, err)
	}
	if w.heard != before && !slices.Contains(types, session.TypeCallAnswerRefused) {
		w.t.Fatalf("%s refused (%v) and appended %v", service, err, types)
	}
	return err
}

// hear hands new messages to the reactors' filters, and gives their types.
func (w *world) hear() (all []string) {
	info, err := w.log.Info(context.Background())
	if err != nil {
		w.t.Fatal(err)
	}
	for ; w.heard < info.LastSeq; w.heard++ {
		m, err := w.log.Get(context.Background(), w.heard+1)
		if err != nil {
			w.t.Fatal(err)
		}
		var types []string
		for _, r := range m.Envelope.Events {
			types = append(types, r.Type)
		}
		for _, service := range reactors {
			w.dirty[service] = w.dirty[service] || interested[service](types)
		}
		all = append(all, types...)
	}
	return all
}

// settle gives a service that has heard of something one turn.
func (w *world) settle(service events.Service) {
	switch {
	case service == events.ServiceWorkload && (w.effect != nil || w.dirty[service]):
		w.work(false)
		return
	case !w.dirty[service]:
		return
	}
	before := w.heard
	switch service {
	case events.ServiceSession:
		w.must(w.do(service, own(service), sessiontest.Settle))
	case events.ServicePolicy:
		w.must(w.do(service, own(service), policytest.Settle))
	case events.ServiceRunner:
		w.must(w.do(service, own(service), runnertest.Settle(w.instance)))
		if run := w.state().Run; run != nil && run.Instance != w.instance {
			w.must(w.do(service, own(service), runnertest.TakeOver(run.ID, run.Instance, w.instance)))
		}
	case events.ServiceWorkload, events.ServiceInstaller: // the first works, above; the second has nothing to settle
	}
	if w.heard == before {
		w.dirty[service] = false
	} else {
		w.dirty[service] = true // a reactor looks again until it finds nothing to do
	}
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Fatalf("a service refused itself: %v", err)
	}
}

// due has every deadline that has passed acted on.
func (w *world) due() {
	for _, d := range w.state().Deadlines() {
		if d.At.After(w.now) {
			continue
		}
		switch d.Service {
		case events.ServiceSession:
			w.must(w.do(d.Service, own(d.Service), sessiontest.Due(d.Kind)))
		case events.ServicePolicy:
			w.must(w.do(d.Service, own(d.Service), policytest.Due(d)))
		case events.ServiceWorkload:
			w.must(w.do(d.Service, own(d.Service), workloadtest.Due(true, "still-starting", "")))
		default:
			w.t.Fatalf("a deadline of %s", d.Service)
		}
	}
}

// maxRounds bounds how long everything may take to come to rest.
const maxRounds = 300

// rest carries everything out, with a driver and an agent that do what they are
// asked, until nobody has anything to do.
func (w *world) rest() {
	w.carryOut(w.finishRun)
	w.settled()
}

// carryOut has the services do all that they want to, and beside each round what
// else is given.
func (w *world) carryOut(beside func()) {
	for range maxRounds {
		before, busy := w.heard, w.effect != nil
		w.due()
		for _, service := range reactors {
			busy = busy || w.dirty[service]
			w.settle(service)
		}
		beside()
		if !busy && w.heard == before {
			return
		}
	}
	w.t.Fatalf("not at rest after %d rounds: %s", maxRounds, w.describe())
}

// settled is what rest has to lead to.
func (w *world) settled() {
	st := w.state()
	switch st.Phase() {
	case session.PhaseReady, session.PhaseSuspended, session.PhaseEnded:
	default:
		w.t.Fatalf("stuck: %s", w.describe())
	}
	if st.Run != nil || st.RunDue() {
		w.t.Fatalf("stuck with a run open or due: %s", w.describe())
	}
	if st.Interrupted != nil && st.Waiting() == 0 {
		w.t.Fatalf("stuck with a parked run that nobody is asked about: %s", w.describe())
	}
	if st.Interrupted != nil && slices.ContainsFunc(st.Queue, func(q session.Queued) bool { return q.CancelOpen }) {
		w.t.Fatalf("a parked run that a message wanted cancelled: %s", w.describe())
	}
	if st.Interrupted == nil && st.OpenCalls() > 0 {
		w.t.Fatalf("stuck with calls that no run can start: %s", w.describe())
	}
	for gen, b := range w.driver.boxes {
		has := st.Phase() == session.PhaseReady && st.Workload.Generation == gen && st.Workload.PodUID == b.pod
		if b.running && !has {
			w.t.Fatalf("orphan: generation %d, pod %s: %s", gen, b.pod, w.describe())
		}
		if st.Ended {
			w.t.Fatalf("a sandbox is left of an ended session: generation %d", gen)
		}
	}
	if b := w.driver.boxes[st.Workload.Generation]; st.Phase() == session.PhaseReady && (b == nil || !b.running) {
		w.t.Fatalf("ready without a sandbox: %s", w.describe())
	}
}

func (w *world) describe() string {
	st := w.state()
	return fmt.Sprintf("phase %s, workload %+v, wanted %t, suspending %t, ending %t, run %+v, parked %+v, queue %d, open calls %d, waiting %d, heard of something %v",
		st.Phase(), st.Workload, st.WantRunning, st.Suspending, st.Ending, st.Run, st.Interrupted, len(st.Queue), st.OpenCalls(), st.Waiting(), w.dirty)
}

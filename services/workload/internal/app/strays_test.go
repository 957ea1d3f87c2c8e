package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

const (
	unknown = "s-bbbbbbbbbbbbbbbbbbbb"
	foreign = "s-cccccccccccccccccccc"
)

// strays lists them by why and name.
func (w *world) strays() []string {
	w.t.Helper()
	reply, err := w.do(verbs.SweepList, "{}")
	if err != nil {
		w.t.Fatalf("list strays: %v", err)
	}
	var list verbs.SweepListResult
	if err := json.Unmarshal(reply.Result, &list); err != nil {
		w.t.Fatal(err)
	}
	out := []string{}
	for _, s := range list.Items {
		out = append(out, s.Why+" "+s.Kind+" "+s.Name)
	}
	return out
}

// remove removes what is named, and says what came of each.
func (w *world) remove(names ...verbs.StrayName) []string {
	w.t.Helper()
	body, err := json.Marshal(verbs.SweepRemoveBody{Items: names})
	if err != nil {
		w.t.Fatal(err)
	}
	reply, err := w.do(verbs.SweepRemove, string(body))
	if err != nil {
		w.t.Fatalf("remove strays: %v", err)
	}
	var done verbs.SweepRemoveResult
	if err := json.Unmarshal(reply.Result, &done); err != nil {
		w.t.Fatal(err)
	}
	out := []string{}
	for i, s := range done.Items {
		if s.StrayName != names[i] {
			w.t.Errorf("answered %+v for %+v", s.StrayName, names[i])
		}
		out = append(out, s.Outcome)
	}
	return out
}

// stands puts a sandbox there that nobody in the log asked for.
func (w *world) stands(id string, generation uint64, epoch string) driver.Ref {
	at := driver.Ref{Tenant: given.Tenant, Session: id, Generation: generation}
	w.driver.boxes[at] = &sandbox{uid: id, pod: "pod-of-" + id, running: true, epoch: epoch}
	return at
}

// Of a host sandboxes are all that there is. What is listed is what a sweep leaves alone,
// and it stays until it is named, by who it is.
func TestStraysOfAHost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	a, b := w.stands(unknown, 1, epoch), w.stands(foreign, 3, "epoch-0")
	w.driver.boxes[driver.Ref{Tenant: "other", Session: unknown, Generation: 1}] = &sandbox{uid: "others", epoch: epoch}
	w.watch()
	want := []string{"unknown-session sandbox " + unknown, "other-epoch sandbox " + foreign}
	if got := w.strays(); !slices.Equal(got, want) {
		t.Fatalf("listed %q, want %q", got, want)
	}
	name := verbs.StrayName{Kind: "sandbox", Name: unknown, UID: unknown}
	another, ours := name, verbs.StrayName{Kind: "sandbox", Name: "box", UID: "box"}
	another.UID = "u-9"
	if got := w.remove(another, ours); !slices.Equal(got, []string{"gone", "gone"}) {
		t.Errorf("another of that name, and one of the log's: %q", got)
	}
	if exist, _ := w.driver.left(); exist != 4 {
		t.Fatalf("%d are left of 4", exist)
	}
	if got := w.remove(name, name); !slices.Equal(got, []string{"removed", "removed"}) {
		t.Errorf("removed: %q", got)
	}
	if w.driver.boxes[a] != nil || w.driver.boxes[b] == nil || w.driver.boxes[ref] == nil {
		t.Error("not exactly what was named is gone")
	}
	if got := w.strays(); !slices.Equal(got, want[1:]) {
		t.Errorf("listed %q", got)
	}
	w.want(session.PhaseReady, 1)
	swept := w.swept()
	if got, want := typesOf(swept...), []string{"stray.removal-requested", "stray.removed"}; !slices.Equal(got, want) {
		t.Fatalf("the log says %q of it, want %q", got, want)
	}
	if asked, done := swept[0].Envelope, swept[1].Envelope; asked.Actor.ID != "alice" || done.Actor.Kind != events.ActorService || done.Cause != asked.Command ||
		!strings.Contains(string(asked.Events[0].Data), `"why":"unknown-session"`) {
		t.Errorf("the log says %+v, then %+v", asked, done)
	}
}

// What can't be removed is in the log as well.
func TestRemovalIsOnRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	w.stands(unknown, 1, epoch)
	name := verbs.StrayName{Kind: "sandbox", Name: unknown, UID: unknown}
	w.driver.fail("Release", 1, driver.ErrUnreachable)
	w.driver.fail("Clear", 1, driver.ErrUnreachable)
	if got := w.remove(name); !slices.Equal(got, []string{"failed"}) {
		t.Errorf("came of it: %q", got)
	}
	if got, want := typesOf(w.swept()...), []string{"stray.removal-requested", "stray.removal-failed"}; !slices.Equal(got, want) {
		t.Errorf("the log says %q of it, want %q", got, want)
	}
}

// swept are the messages of all sweeps by hand.
func (w *world) swept() (all []events.Message) {
	w.t.Helper()
	info, err := w.log.Info(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for seq := uint64(2); seq <= info.LastSeq; seq++ {
		m, err := w.log.Get(w.t.Context(), seq)
		if err != nil {
			w.t.Fatal(err)
		}
		if a, ok := events.ParseSubject(m.Subject); ok && a.Aggregate == events.AggregateSweep {
			all = append(all, m)
		}
	}
	return all
}

func typesOf(messages ...events.Message) (types []string) {
	for _, m := range messages {
		for _, r := range m.Envelope.Events {
			types = append(types, r.Type)
		}
	}
	return types
}

// A log that was restored has another epoch, but its sessions still have what they had.
func TestSandboxOfARestoredLogIsNoStray(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	w.driver.boxes[ref].epoch = "epoch-0"
	if got := w.strays(); len(got) != 0 {
		t.Errorf("listed %q", got)
	}
	w.driver.boxes[ref].uid = "another"
	if got := w.strays(); !slices.Equal(got, []string{"other-epoch sandbox another"}) {
		t.Errorf("listed %q", got)
	}
	if got := w.remove(verbs.StrayName{Kind: "sandbox", Name: "another", UID: "another"}); !slices.Equal(got, []string{"removed"}) {
		t.Errorf("removed: %q", got)
	}
	if last := w.driver.calls[len(w.driver.calls)-1]; last != "Clear" {
		t.Errorf("%s: the workspace is the known session's", last)
	}
}

// keeping is a driver that has more than sandboxes.
type keeping struct {
	*scripted
	kept      []driver.Kept
	discarded []string
	fault     map[string]error
}

// Kept implements driver.Keeper.
func (k *keeping) Kept(context.Context) ([]driver.Kept, error) { return k.kept, k.fault["list"] }

// Discard implements driver.Keeper.
func (k *keeping) Discard(_ context.Context, one driver.Kept) error {
	if err := k.fault[one.Name]; err != nil {
		return err
	}
	k.discarded = append(k.discarded, one.Name)
	return nil
}

func TestStraysOfACluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	of := func(id string) driver.Ref { return driver.Ref{Tenant: given.Tenant, Session: id} }
	d := &keeping{scripted: w.driver, fault: map[string]error{}, kept: []driver.Kept{
		{Kind: driver.KindVolume, Name: "v-unknown", UID: "1", Ref: of(unknown), Epoch: epoch},
		{Kind: driver.KindVolume, Name: "v-other", UID: "2", Ref: of(foreign), Epoch: "epoch-0"},
		{Kind: driver.KindVolume, Name: "v-ours", UID: "3", Ref: of(given.Session), Epoch: epoch},
		{Kind: driver.KindTemplate, Name: "t-unknown", UID: "4", Ref: of(""), Runtime: given.Tenant + ".gone", Revision: 1},
		{Kind: driver.KindTemplate, Name: "t-ours", UID: "5", Ref: of(""), Runtime: given.Tenant + ".shell", Revision: 1},
		{Kind: driver.KindPool, Name: "p-later", UID: "6", Ref: of(""), Runtime: given.Tenant + ".shell", Revision: 99},
		{Kind: driver.KindPool, Name: "p-own", UID: "7", Ref: of(unknown), Runtime: given.Tenant + ".shell", Revision: 1},
		{Kind: driver.KindSandbox, Name: "c-unknown", UID: "8", Ref: driver.Ref{Tenant: given.Tenant, Session: unknown, Generation: 1}, Epoch: epoch},
		{Kind: driver.KindSandbox, Name: "c-later", UID: "9", Ref: driver.Ref{Tenant: given.Tenant, Session: given.Session, Generation: 2}, Epoch: epoch},
		{Kind: driver.KindSandbox, Name: "c-ours", UID: "10", Ref: ref, SandboxUID: "box", Epoch: epoch},
		{Kind: driver.KindSandbox, Name: "c-theirs", UID: "11", Ref: driver.Ref{Tenant: "other", Session: unknown, Generation: 1}, Epoch: epoch},
	}}
	w.app.UseDriver(d)
	want := []string{
		"unknown-session sandbox c-later", "unknown-session sandbox c-unknown",
		"unknown-runtime pool p-later", "unknown-session pool p-own",
		"unknown-runtime template t-unknown", "other-epoch volume v-other", "unknown-session volume v-unknown",
	}
	if got := w.strays(); !slices.Equal(got, want) {
		t.Fatalf("listed %q, want %q", got, want)
	}
	d.fault["t-unknown"], d.fault["v-other"] = driver.ErrNotFound, errors.New("the API server is away")
	got := w.remove(
		verbs.StrayName{Kind: "volume", Name: "v-unknown", UID: "1"}, verbs.StrayName{Kind: "volume", Name: "v-other", UID: "2"},
		verbs.StrayName{Kind: "volume", Name: "v-ours", UID: "3"}, verbs.StrayName{Kind: "template", Name: "t-unknown", UID: "4"},
		verbs.StrayName{Kind: "sandbox", Name: "c-unknown", UID: "8"}, verbs.StrayName{Kind: "sandbox", Name: "c-theirs", UID: "11"},
		verbs.StrayName{Kind: "sandbox", Namespace: "elsewhere", Name: "c-later", UID: "9"},
	)
	if want := []string{"removed", "failed", "gone", "gone", "removed", "gone", "gone"}; !slices.Equal(got, want) {
		t.Errorf("came of it %q, want %q", got, want)
	}
	// What uses a volume goes first.
	if want := []string{"c-unknown", "v-unknown"}; !slices.Equal(d.discarded, want) {
		t.Errorf("removed %q, want %q", d.discarded, want)
	}
}

// What can't be listed isn't an empty list.
func TestStraysOfAHostThatIsAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.driver.fail("List", 2, driver.ErrUnreachable)
	for _, verb := range []string{verbs.SweepList, verbs.SweepRemove} {
		_, err := w.do(verb, `{"items":[]}`)
		if p, ok := errors.AsType[*problem.Error](err); !ok || p.Code != api.CodeNotReady {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

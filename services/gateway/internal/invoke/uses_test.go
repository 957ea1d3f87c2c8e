package invoke

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/events/eventlog/memlog"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/gateway/internal/auth"
	"github.com/holdfast-io/holdfast/services/gateway/internal/live"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/command"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

const (
	patience = 30 * time.Second
	// brief lets a use end an eighth of a second after its last call.
	brief = 500 * time.Millisecond
)

// holders is the session service as far as uses need it: who holds the sandbox.
type holders struct {
	mu    sync.Mutex
	held  map[string]bool
	notes int // of use
	freed int // notes of release
	// releasing is told of each release before it is decided, and decides once it is
	// let; nil decides at once.
	releasing chan chan struct{}
	// noted is called with the number of each note of use, after it was decided.
	noted func(n int)
}

func (h *holders) note(ctx context.Context, _ string, req command.Request) (command.Reply, error) {
	body, err := command.Decode[verbs.ActivityBody](req)
	if err != nil {
		return command.Reply{}, err
	}
	if body.Until.IsZero() && h.releasing != nil {
		decide := make(chan struct{})
		h.releasing <- decide
		select {
		case <-decide:
		case <-ctx.Done():
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if body.Until.IsZero() {
		h.freed++
		delete(h.held, body.Holder)
		return command.Reply{N: 1, Seq: 1}, nil
	}
	h.notes++
	h.held[body.Holder] = true
	if h.noted != nil {
		h.noted(h.notes)
	}
	return command.Reply{N: 1, Seq: 1}, nil
}

func (h *holders) count() (held, notes int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held), h.notes
}

// decided waits for a number of releases.
func (h *holders) decided(t *testing.T, releases int) {
	t.Helper()
	brokertest.Eventually(t, patience, "releases", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.freed == releases
	})
}

// commands serves the session service's verb and gives the gateway's client.
func (h *holders) commands(t *testing.T) *command.Client {
	t.Helper()
	h.held = map[string]bool{}
	nats := brokertest.Start(t)
	server, err := command.Serve(nats.NC(broker.UserSession), events.ServiceSession,
		map[string]command.Handler{verbs.NoteActivity: h.note}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return &command.Client{NC: nats.NC(broker.UserGateway)}
}

func newTestUses(t *testing.T, h *holders) *uses {
	t.Helper()
	commands := h.commands(t)
	ctx, stop := context.WithCancel(context.Background())
	u := newUses(ctx, commands, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { stop(); u.wait() })
	return u
}

func begin(t *testing.T, u *uses, key target) (end func()) {
	t.Helper()
	end, err := u.begin(t.Context(), key, brief)
	if err != nil {
		t.Fatal(err)
	}
	return end
}

// The release of a use that is decided late does not take the sandbox from the calls
// that came meanwhile.
func TestLateReleaseLeavesTheNextUse(t *testing.T) {
	t.Parallel()
	h := &holders{releasing: make(chan chan struct{}, 8)}
	u := newTestUses(t, h)
	key := target{tenant: given.Tenant, session: given.Session, generation: 1, podUID: "pod-1"}
	begin(t, u, key)()
	decide := <-h.releasing
	end := begin(t, u, key)
	close(decide)
	h.decided(t, 1)
	if held, _ := h.count(); held != 1 {
		t.Errorf("%d hold a sandbox that a call is in", held)
	}
	end()
	close(<-h.releasing)
	h.decided(t, 2)
	if held, _ := h.count(); held != 0 {
		t.Errorf("%d hold a sandbox that no call is in", held)
	}
}

// Calls of one sandbox share a use. Those of the session's next one begin another:
// what was noted before holds nothing any more.
func TestEachIncarnationIsNoted(t *testing.T) {
	t.Parallel()
	h := &holders{}
	u := newTestUses(t, h)
	first := target{tenant: given.Tenant, session: given.Session, generation: 1, podUID: "pod-1"}
	resumed, restarted := first, first
	resumed.podUID, restarted.generation = "pod-2", 2
	for i, key := range []target{first, first, resumed, restarted} {
		end, err := u.begin(t.Context(), key, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		if _, notes := h.count(); notes != max(i, 1) {
			t.Errorf("%d notes after call %d", notes, i)
		}
	}
}

// A session that gets another sandbox while the use of the one before is noted is
// entered by the new one, which is noted too.
func TestEnterHoldsTheSandboxItGives(t *testing.T) {
	t.Parallel()
	log := memlog.New(eventlog.Genesis{LogID: "log", Epoch: "1"})
	all := given.Resuming.And(session.Resumed{Generation: 1, PodUID: "pod-2"})
	appendTo(t, log, 0, all[:len(given.Ready)])
	h := &holders{noted: func(n int) {
		if n == 1 {
			appendTo(t, log, len(given.Ready), all)
		}
	}}
	commands := h.commands(t)
	lives := live.New(live.Config{Log: log, Epoch: "1"})
	defer lives.Stop()
	i := New(Config{Commands: commands, Live: lives, Logger: slog.New(slog.DiscardHandler)})
	defer i.Stop()
	to, end, err := i.enter(auth.With(t.Context(), auth.Principal{Tenant: given.Tenant}), given.Session)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if _, notes := h.count(); to.podUID != "pod-2" || notes != 2 {
		t.Errorf("%+v after %d notes", to, notes)
	}
}

// appendTo appends what follows the first n of a past that has an event a message.
func appendTo(t *testing.T, log eventlog.Log, n int, past given.Past) {
	subject, err := events.SessionSubject(given.Tenant, given.Session)
	if err != nil {
		t.Error(err)
		return
	}
	last, _, err := log.Last(context.Background(), subject)
	if err != nil {
		t.Error(err)
		return
	}
	prev := last.Seq
	for i, p := range past[n:] {
		service, _ := session.Owner(session.TypeOf(p))
		records, err := session.Records(service, p)
		if err != nil {
			t.Error(err)
			return
		}
		if prev, err = log.Append(context.Background(), subject, events.Envelope{
			Command: fmt.Sprintf("given-%d", n+i), Actor: gateway, Service: service, N: uint64(n + i + 1), Prev: prev,
			Time: given.Start, Events: records,
		}); err != nil {
			t.Error(err)
			return
		}
	}
}

package main

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
)

// step is one message of a session's life: what one service appends at a time.
type step struct {
	service  events.Service
	at       time.Time
	payloads []session.Payload
}

// author writes lives of sessions as they come about in use: a few turns each, most
// calls allowed, some asked for and answered, put away and brought back in between;
// now and then a loss, a failure, a refused answer, a run that is cancelled. The
// same seed writes the same life.
type author struct {
	rng    *rand.Rand
	id     string
	now    time.Time
	ids    int
	steps  []step
	events int

	queued     string // the run that is due
	generation uint64
	pod        string
	suspended  bool
	lost       bool
}

// lifeStart is when the first session of a log begins.
var lifeStart = time.Date(2026, 5, 4, 8, 0, 0, 0, time.UTC)

// eventsEach is about how many events a life has.
const eventsEach = 50

// life writes the life of a session.
func life(id string, seed uint64) []step {
	a := newAuthor(id, seed)
	if !a.lives(eventsEach - 10) {
		return a.steps
	}
	a.end()
	return a.steps
}

// longLife writes the life of a session that has at least so many events and goes
// on: it waits for its next message.
func longLife(id string, events int) []step {
	for seed := uint64(1); ; seed++ {
		a := newAuthor(id, seed)
		if a.lives(events) {
			return a.steps
		}
	}
}

func newAuthor(id string, seed uint64) *author {
	return &author{rng: rand.New(rand.NewPCG(seed, 1)), id: id, now: lifeStart.Add(time.Duration(seed) * time.Second)} //nolint:gosec // repeatable on purpose
}

// lives has the session go on until it has so many events; false says that it got no
// sandbox and has ended.
func (a *author) lives(events int) bool {
	a.begin()
	if !a.claim() {
		return false
	}
	for a.turn(); a.events < events; a.turn() {
		a.pause()
		a.message()
	}
	return true
}

func (a *author) add(service events.Service, payloads ...session.Payload) {
	a.now = a.now.Add(time.Duration(50+a.rng.IntN(2000)) * time.Millisecond)
	a.steps = append(a.steps, step{service: service, at: a.now, payloads: payloads})
	a.events += len(payloads)
}

func (a *author) newID(prefix string) string {
	a.ids++
	return events.HashID(prefix, a.id, strconv.Itoa(a.ids))
}

// chance is true in so many of a hundred cases.
func (a *author) chance(percent int) bool { return a.rng.IntN(100) < percent }

var words = strings.Fields("parser quotes nested grammar test failing lexer escape output file change because where line reads expected got fix run again branch commit")

// text is prose of so many words. One text in ten speaks of what may be a secret, so
// that masking has to look closely at it.
func (a *author) text(count int) string {
	picked := make([]string, count)
	for i := range picked {
		picked[i] = words[a.rng.IntN(len(words))]
	}
	if count > 0 && a.chance(10) {
		picked[0] = "token"
	}
	return strings.Join(picked, " ")
}

func (a *author) received() session.MessageReceived {
	a.queued = a.newID(events.PrefixRun)
	return session.MessageReceived{
		MessageID: a.newID(events.PrefixMessage), RunID: a.queued, Content: mustJSON(a.text(15 + a.rng.IntN(60))),
		Requester: person.ID, BodyHash: a.newID("h"),
	}
}

func (a *author) begin() {
	s := spec()
	a.add(
		events.ServiceSession,
		session.Created{
			Owner: person.ID, Runtime: session.RuntimeRef{Name: recipe, Revision: 1},
			Terms: session.Terms{
				Kind: string(s.Kind), Adapter: s.Adapter.Protocol, Policy: s.Policy, OnIdle: s.OnIdle, OnLoss: s.OnLoss, Suspends: true,
				Claim: s.Timeouts.Claim, Idle: s.Timeouts.Idle, Max: s.Timeouts.Max,
				SuspendWhileWaiting: s.Timeouts.SuspendWhileWaiting, DrainGrace: s.Timeouts.DrainGrace,
			},
			Labels: map[string]string{"team": words[a.rng.IntN(len(words))], "repo": "parsers"}, BodyHash: a.newID("h"),
		},
		a.received(),
	)
}

// claim gives the session a sandbox; false says that none was to be had and the
// session ended.
func (a *author) claim() bool {
	a.generation++
	a.add(events.ServiceWorkload, session.ClaimRequested{Generation: a.generation, Deadline: a.now.Add(time.Minute)})
	if a.chance(2) {
		a.add(events.ServiceWorkload, session.Failed{Generation: a.generation, Cause: "claim-timeout", Detail: "no sandbox in a minute"})
		a.add(events.ServiceSession, session.EndRequested{Outcome: session.OutcomeFailed, Cause: "workload failed: claim-timeout"})
		a.add(events.ServiceRunner, session.RunFinished{RunID: a.queued, Outcome: "cancelled"})
		a.release(session.OutcomeFailed, "workload failed: claim-timeout")
		return false
	}
	a.pod = a.newID("pod-")
	sandbox := a.newID("sb-")
	claimed := session.Claimed{
		Generation: a.generation, SandboxUID: sandbox, PodUID: a.pod, Path: "warm", Isolation: "namespaces", LayersMs: map[string]int64{"claim": 4},
	}
	a.add(events.ServiceWorkload, claimed)
	a.add(events.ServiceWorkload, session.Ready{
		Generation: a.generation, SandboxUID: sandbox, PodUID: a.pod, Path: "warm", Isolation: "namespaces",
		LayersMs: map[string]int64{"claim": 4, "bind": 3, "entrypoint": 41},
	})
	return true
}

// pause is what happens to a session between two turns.
func (a *author) pause() {
	if a.chance(30) {
		a.add(events.ServiceSession, session.ActivityNoted{Holder: "gw-1", Until: a.now.Add(4 * time.Minute)})
		a.add(events.ServiceSession, session.ActivityNoted{Holder: "gw-1"})
	}
	if a.chance(5) {
		at := lifeStart.Add(24 * time.Hour).Add(a.now.Sub(lifeStart))
		a.add(events.ServiceSession, session.Extended{MaxAt: &at})
	}
	switch {
	case a.chance(3):
		a.add(events.ServiceWorkload, session.Lost{Generation: a.generation, PodUID: a.pod, Cause: "sandbox-died"})
		a.lost = true
	case a.chance(40):
		a.now = a.now.Add(15 * time.Minute)
		a.add(events.ServiceSession, session.SuspendRequested{Cause: "idle"})
		a.add(events.ServiceWorkload, session.Suspended{Generation: a.generation})
		a.suspended = true
	}
}

// message queues the next turn, and brings the sandbox back for it.
func (a *author) message() {
	if !a.suspended && !a.lost {
		a.add(events.ServiceSession, a.received())
		return
	}
	a.add(events.ServiceSession, a.received(), session.ResumeRequested{Cause: "message"})
	if a.suspended {
		a.pod = a.newID("pod-")
		a.add(events.ServiceWorkload, session.Resumed{
			Generation: a.generation, PodUID: a.pod, Isolation: "namespaces", LayersMs: map[string]int64{"start": 12, "entrypoint": 38},
		})
		a.suspended = false
		return
	}
	a.lost = false
	a.generation++
	a.pod = a.newID("pod-")
	sandbox := a.newID("sb-")
	a.add(events.ServiceWorkload, session.ClaimRequested{Generation: a.generation, Deadline: a.now.Add(time.Minute)})
	a.add(events.ServiceWorkload, session.Claimed{Generation: a.generation, SandboxUID: sandbox, PodUID: a.pod, Path: "cold", Isolation: "namespaces"})
	a.add(events.ServiceWorkload, session.Ready{Generation: a.generation, SandboxUID: sandbox, PodUID: a.pod, Path: "cold", Isolation: "namespaces"})
}

// end closes the life.
func (a *author) end() {
	outcome, cause := session.OutcomeTerminated, "done"
	if a.chance(20) {
		outcome, cause = session.OutcomeCompleted, "idle"
		a.add(events.ServiceSession, session.EndRequested{Outcome: outcome, Cause: cause})
	} else {
		a.add(events.ServiceSession, session.Terminated{Reason: cause})
	}
	a.release(outcome, cause)
}

func (a *author) release(outcome session.Outcome, cause string) {
	a.add(events.ServiceWorkload, session.Released{Generation: a.generation})
	a.add(events.ServiceSession, session.Ended{Outcome: outcome, Cause: cause})
}

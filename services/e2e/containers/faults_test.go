//go:build containers

package containers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// victim is a container that a fault strikes.
type victim struct {
	name string
	// of finds it, at the time of the fault.
	of func(context.Context, *installation) *node
	// gateway, if set, is the gateway that it is, which then gives no answer at all.
	gateway string
	// sandboxes says that they go with it, and with them a run under way.
	sandboxes bool
}

// victims are one of each kind.
func victims() []victim {
	named := func(name string) func(context.Context, *installation) *node {
		return func(_ context.Context, in *installation) *node { return in.nodes[name] }
	}
	return []victim{
		{name: "session", of: named("session-1")},
		{name: "workload", of: named("workload-1")},
		{name: "policy", of: named("policy-1")},
		{name: "runner", of: named("runner-1")},
		{name: "projector", of: named("projector-1")},
		{name: "gateway", of: named("gateway-1"), gateway: "gateway-1"},
		{name: "leader of EVENTS", of: func(ctx context.Context, in *installation) *node { return in.leader(ctx) }},
		{name: "Postgres", of: named("postgres")},
		{name: "host", of: named("host"), sandboxes: true},
	}
}

// blow is what is done to a victim, and how it ends.
type blow struct{ strike, heal func(*node, context.Context) }

const (
	// lasts is how long a fault lasts at least: as long as NATS takes, mostly, to elect a
	// leader.
	lasts = 5 * time.Second
	// attempts is how many sessions each gateway is asked for meanwhile.
	attempts = 2
	// answered is when an answer must have come, whatever it is: a command's time and
	// some for the way.
	answered = 15 * time.Second
)

// attempt is a session that is asked for while a fault lasts.
type attempt struct {
	key, gateway string
	// id is the session, "" until it was accepted.
	id string
}

// struck strikes a victim while people work and heals it, and looks for what is lost.
func struck(t *testing.T, in *installation, v victim, b blow) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*harness.Patience)
	defer cancel()
	bob := in.as("bob", "gateway-2")
	before := &attempt{key: t.Name() + "/before", gateway: "gateway-2"}
	if err := before.make(ctx, in, "touch asked-before && ls"); err != nil {
		t.Fatal(err)
	}
	asked := harness.Follow(t, in.as("alice", "gateway-2"), before.id, harness.OnPrompt(api.CallStatePending))

	n := v.of(ctx, in)
	b.strike(n, ctx)
	enough := time.NewTimer(lasts)
	defer enough.Stop()
	tried := work(ctx, t, in, v)
	<-enough.C
	b.heal(n, ctx)

	in.ready(t)
	for _, a := range tried {
		harness.Eventually(t, "what was refused is accepted under the same key", func() bool {
			return a.id != "" || a.make(ctx, in, said(a)) == nil
		})
	}
	approve(t, in, bob, asked[len(asked)-1])
	alice := in.as("alice", "gateway-2")
	frames := over(t, alice, before.id, v.sandboxes, "\nasked-before\n")
	if failed(frames) {
		again(t, alice, before.id, "echo still-there")
	}
	end(t, alice, before.id)
	for _, a := range tried {
		done(t, alice, a, v.sandboxes)
		end(t, alice, a.id)
	}
}

// work asks both gateways for sessions, one after the other each. Whatever comes is an
// answer: accepted, or a problem with a code that says to try again. Only a gateway
// that is the victim itself may give none.
func work(ctx context.Context, t *testing.T, in *installation, v victim) []*attempt {
	t.Helper()
	var working sync.WaitGroup
	var tried []*attempt
	for _, gateway := range []string{"gateway-1", "gateway-2"} {
		mine := make([]*attempt, attempts)
		for i := range mine {
			mine[i] = &attempt{key: fmt.Sprintf("%s/%s/%d", t.Name(), gateway, i), gateway: gateway}
		}
		tried = append(tried, mine...)
		patience := answered
		if gateway == v.gateway {
			patience = lasts / attempts // there is nothing to wait for
		}
		working.Go(func() {
			for _, a := range mine {
				began := time.Now()
				bounded, cancel := context.WithTimeout(ctx, patience)
				err := a.make(bounded, in, said(a))
				cancel()
				if refused, ok := errors.AsType[*api.Error](err); err != nil && a.gateway != v.gateway &&
					(!ok || !refused.Problem.Code.Known() || refused.Problem.Status != http.StatusServiceUnavailable) {
					t.Errorf("%s answered after %s: %v", gateway, time.Since(began).Round(time.Millisecond), err)
				}
			}
		})
	}
	working.Wait()
	return tried
}

// make asks for the session, with a message, under the attempt's key.
func (a *attempt) make(ctx context.Context, in *installation, message string) error {
	r, err := in.as("alice", a.gateway).CreateSessionWithResponse(ctx, &api.CreateSessionParams{IdempotencyKey: &a.key},
		api.CreateSession{Runtime: "shell", Message: message})
	switch {
	case err != nil:
		return err
	case r.JSON201 != nil:
		a.id = r.JSON201.ID
	case r.JSON200 != nil: // done before, though nobody was told
		a.id = r.JSON200.ID
	}
	return nil
}

// said is what an attempt's agent is told to do, without asking.
func said(a *attempt) string { return "echo did-" + a.key }

// done wants what was accepted done, once.
func done(t *testing.T, alice *apiclient.ClientWithResponses, a *attempt, mayFail bool) {
	t.Helper()
	frames := over(t, alice, a.id, mayFail, "\n"+strings.TrimPrefix(said(a), "echo ")+"\n")
	if failed(frames) {
		frames = again(t, alice, a.id, said(a))
	}
	if n := strings.Count(text(frames), "\ndid-"+a.key+"\n"); n != 1 {
		t.Errorf("the agent of %s said it %d times: %s", a.id, n, text(frames))
	}
}

// over follows a session until its agent has finished and the same viewer has seen it say
// something; or has failed, where its sandbox may have gone under it: a call that was
// allowed is not tried twice. What was said comes before the end of its run, unless a
// stream that lost its leader can't be followed for longer than a gateway waits for it: then
// it comes behind the end, but it comes, to this viewer.
func over(t *testing.T, alice *apiclient.ClientWithResponses, id string, mayFail bool, said string) []api.Frame {
	t.Helper()
	var seen []api.Frame
	finished := false
	return harness.Follow(t, alice, id, func(f api.Frame) bool {
		seen = append(seen, f)
		e := harness.EventOf(f)
		finished = finished || e.Type == "run.finished"
		return finished && strings.Contains(text(seen), said) || mayFail && e.Type == "run.failed"
	})
}

// failed says whether the last that is seen is that a run has failed.
func failed(frames []api.Frame) bool {
	return harness.EventOf(frames[len(frames)-1]).Type == "run.failed"
}

// again tells a session whose sandbox was lost something, and wants it done in the next.
func again(t *testing.T, alice *apiclient.ClientWithResponses, id, message string) []api.Frame {
	t.Helper()
	if _, err := alice.SendMessageWithResponse(harness.Context(t), id, nil, api.SendMessage{Content: message}); err != nil {
		t.Fatalf("after a lost sandbox: %v", err)
	}
	return harness.Follow(t, alice, id, harness.OnEvent("run.finished"))
}

// approve answers the question of a frame with yes; a repeated answer is the same.
func approve(t *testing.T, in *installation, bob *apiclient.ClientWithResponses, f api.Frame) {
	t.Helper()
	a, ok := harness.ApprovalOf(f)
	if !ok {
		t.Fatalf("no question: %+v", f)
	}
	if _, err := bob.DecideApprovalWithResponse(harness.Context(t), a.ID, nil, api.DecideApproval{Decision: api.AnswerApprove, ArgsHash: a.ArgsHash}); err != nil {
		t.Fatalf("approve: %v", err)
	}
}

// end terminates a session, so that the host has room for the next.
func end(t *testing.T, alice *apiclient.ClientWithResponses, id string) {
	t.Helper()
	if _, err := alice.TerminateSessionWithResponse(harness.Context(t), id, nil, api.TerminateSession{}); err != nil {
		t.Fatalf("terminate %s: %v", id, err)
	}
}

// text is all that the agent has said.
func text(frames []api.Frame) string {
	var said strings.Builder
	for _, f := range frames {
		if f.Kind != api.FrameKindAgui {
			continue
		}
		var events []struct{ Delta string }
		_ = json.Unmarshal(f.Data, &events) // what isn't output says nothing
		for _, e := range events {
			said.WriteString(e.Delta)
		}
	}
	return said.String()
}

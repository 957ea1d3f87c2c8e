package app_test

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/command"
	given "github.com/holdfast-io/holdfast/services/internal/decidertest"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
	"github.com/holdfast-io/holdfast/services/workload/internal/app"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// reviewed says whose each token is; "" is one that Kubernetes can't be asked about.
type reviewed map[string]string

// Review implements app.Reviewer.
func (r reviewed) Review(_ context.Context, token string) (string, error) {
	pod, known := r[token]
	switch {
	case !known:
		return "", fmt.Errorf("%w: forged", app.ErrUnproven)
	case pod == "":
		return "", errors.New("the API server is away")
	}
	return pod, nil
}

// present has a Pod present a bind, as the gateway passes it on.
func (w *world) present(token, signed string, renew bool) (sandboxapi.Grant, error) {
	w.t.Helper()
	return w.presentBy("", token, signed, renew)
}

// presentBy is present with a process's secret.
func (w *world) presentBy(secret, token, signed string, renew bool) (sandboxapi.Grant, error) {
	w.t.Helper()
	body, err := json.Marshal(verbs.RedeemBindBody{Token: token, Bind: signed, Secret: secret, Renew: renew})
	if err != nil {
		w.t.Fatal(err)
	}
	reply, err := w.app.Handlers()[verbs.RedeemBind](context.Background(), given.Tenant, command.Request{
		CommandID: "c", Actor: events.Actor{Kind: events.ActorAgent, ID: given.Session}, Session: given.Session, Body: body,
	})
	var grant sandboxapi.Grant
	if err == nil {
		err = json.Unmarshal(reply.Result, &grant)
	}
	return grant, err
}

// A Pod is granted a session by both: the bind of this service, and the token that
// Kubernetes gave to that very Pod.
func TestPodPresentsItsBind(t *testing.T) {
	t.Parallel()
	pods := reviewed{"of-pod-1": "pod-1", "of-pod-2": "pod-2", "unknown": ""}
	for name, test := range map[string]struct {
		token  string
		renew  bool
		given  func(w *world)
		signed func(w *world) string
		code   api.Code // "" where it is granted
	}{
		"the bind's Pod":         {token: "of-pod-1"},
		"it renews":              {token: "of-pod-1", renew: true},
		"another Pod":            {token: "of-pod-2", code: api.CodeBindRefused},
		"another Pod renews":     {token: "of-pod-2", renew: true, code: api.CodeBindRefused},
		"no Pod":                 {token: "token-of-nobody", code: api.CodeUnauthenticated},
		"nobody knows":           {token: "unknown", code: api.CodeNotReady},
		"another key's bind":     {token: "of-pod-1", signed: func(*world) string { return "a.b.c" }, code: api.CodeBindRefused},
		"a Pod of no session":    {token: "of-pod-2", signed: ofPod2, code: api.CodeBindRefused},
		"after the deadline":     {token: "of-pod-1", given: later, code: api.CodeBindRefused},
		"renewed after it":       {token: "of-pod-1", given: later, renew: true},
		"of a session that ends": {token: "of-pod-1", given: func(w *world) { w.append(session.Terminated{}) }, code: api.CodeBindRefused},
		"of a lost sandbox":      {token: "of-pod-1", given: func(w *world) { w.watch(w.driver.die()) }, renew: true, code: api.CodeBindRefused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.settle()
			w.reviewer = pods
			w.restart()
			signed := w.sign(nil)
			if test.signed != nil {
				signed = test.signed(w)
			}
			if test.given != nil {
				test.given(w)
			}
			grant, err := w.present(test.token, signed, test.renew)
			switch {
			case test.code == "" && (err != nil || grant.PodUID != "pod-1" || grant.Session != given.Session || grant.Token == ""):
				t.Errorf("%+v, %v", grant, err)
			case test.code != "" && (problem.From(err).Code != test.code || grant.Token != ""):
				t.Errorf("granted %+v, %v", grant, err)
			}
			if err != nil && (strings.Contains(err.Error(), test.token) || strings.Contains(err.Error(), signed)) {
				t.Errorf("a secret is in the error: %v", err)
			}
		})
	}
}

// prover is a driver whose sandboxes redeem their binds themselves.
type prover struct{ *scripted }

// Process implements driver.Prover.
func (prover) Process(context.Context, driver.Ref) (string, error) {
	return bind.ProcessOf("secret"), nil
}

// A bind is redeemed once: by the process that it was made for, again where its answer was
// lost, and by nobody else who got hold of it and of the Pod's token, before or after.
func TestBindIsOneProcesss(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reviewer = reviewed{"of-pod-1": "pod-1"}
	w.restart()
	w.app.UseDriver(prover{w.driver})
	w.settle()
	made, err := bind.Read(signer.Public().(ed25519.PublicKey), w.driver.boxes[ref].signed)
	if err != nil || made.Process != bind.ProcessOf("secret") {
		t.Fatalf("bound by %+v, %v", made, err)
	}
	signed := w.sign(func(b *bind.Bind) { b.Process = made.Process })
	for i, secret := range []string{"other", "secret", "", "other", "secret", made.Process} {
		for _, renew := range []bool{false, true} {
			grant, err := w.presentBy(secret, "of-pod-1", signed, renew)
			if good := secret == "secret"; good != (err == nil && grant.Token != "") {
				t.Errorf("try %d, by %q: %+v, %v", i, secret, grant, err)
			}
			if err != nil && problem.From(err).Code != api.CodeBindRefused {
				t.Errorf("try %d, by %q: %v", i, secret, err)
			}
		}
	}
}

func later(w *world) { w.now = w.now.Add(time.Hour) }

func ofPod2(w *world) string { return w.sign(func(b *bind.Bind) { b.PodUID = "pod-2" }) }

// The lives of a Pod's containers are incarnations of their own, of the same Pod.
func TestRestartedPodPresentsItsBind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reviewer = reviewed{"of-the-pod": "uid-of-it", "of-another": "uid-of-another"}
	w.driver.named = "uid-of-it.2"
	w.restart()
	w.settle()
	signed := w.sign(func(b *bind.Bind) { b.PodUID = "uid-of-it.2" })
	if grant, err := w.present("of-the-pod", signed, false); err != nil || grant.PodUID != "uid-of-it.2" {
		t.Errorf("%+v, %v", grant, err)
	}
	if _, err := w.present("of-another", signed, false); problem.From(err).Code != api.CodeBindRefused {
		t.Errorf("by another Pod: %v", err)
	}
	before := w.sign(func(b *bind.Bind) { b.PodUID = "uid-of-it.1" })
	if _, err := w.present("of-the-pod", before, true); problem.From(err).Code != api.CodeBindRefused {
		t.Errorf("the life before: %v", err)
	}
}

// Without Kubernetes nobody is granted anything this way.
func TestNoPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.settle()
	if _, err := w.present("of-pod-1", w.sign(nil), false); problem.From(err).Code != api.CodeBindRefused {
		t.Errorf("granted: %v", err)
	}
}

// A bind says where it is redeemed.
func TestBindNamesTheGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agents = "http://10.0.0.7:7001"
	w.restart()
	w.settle()
	b, err := bind.Read(signer.Public().(ed25519.PublicKey), w.driver.boxes[ref].signed)
	if err != nil || b.Agents != w.agents || b.PodUID != "pod-1" {
		t.Errorf("%+v, %v", b, err)
	}
}

// A Pod is bound while its claim is written down, in one look and with one bind; a Pod that
// dies meanwhile is claimed again.
func TestPodIsBoundMeanwhile(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]bool{"it lives": false, "it died": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.reviewer = reviewed{}
			w.restart()
			written := make(chan struct{})
			w.driver.hooks["Bind"] = func() { <-written }
			go func() {
				defer close(written)
				for w.state().Workload.Status != session.WorkloadClaimed {
					runtime.Gosched()
				}
			}()
			if gone {
				w.driver.fail("Bind", 1, driver.ErrNotRunning)
				w.driver.fail("Bind", 1, driver.ErrNotRunning)
			}
			w.settle()
			w.want(session.PhaseReady, 1)
			calls := slices.DeleteFunc(slices.Clone(w.driver.calls), func(c string) bool { return c != "Claim" && c != "Bind" })
			want := []string{"Claim", "Bind"}
			if gone { // the second time it is claimed at once
				want = []string{"Claim", "Bind", "Bind", "Claim", "Bind"}
			}
			if !slices.Equal(calls, want) {
				t.Errorf("%v", calls)
			}
			if layers := w.state().Workload.LayersMs; !gone && !maps.Equal(layers, map[string]int64{"bind": 0, "entrypoint": 0}) {
				t.Errorf("layers %v", layers)
			}
		})
	}
}

// Before a claim is written down nobody is granted anything for it, and is told to ask again.
func TestPodPresentsTooEarly(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.reviewer = reviewed{"of-pod-1": "pod-1"}
	w.restart()
	w.append(session.ClaimRequested{Generation: 1, Deadline: w.now.Add(time.Minute)})
	signed := w.sign(nil)
	if grant, err := w.present("of-pod-1", signed, false); problem.From(err).Code != api.CodeNotReady || grant.Token != "" {
		t.Errorf("granted %+v, %v", grant, err)
	}
	w.append(session.Terminated{})
	if _, err := w.present("of-pod-1", signed, false); problem.From(err).Code != api.CodeBindRefused {
		t.Errorf("of a session that ends: %v", err)
	}
}

package doctor

import (
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-io/holdfast/services/internal/clusterfile"
	"github.com/holdfast-io/holdfast/services/internal/sandboxprobe"
)

// closed is what a sandbox sees that is as it should be.
func closed() sandboxprobe.Report {
	shut := func(name string) sandboxprobe.Attempt {
		return sandboxprobe.Attempt{Target: sandboxprobe.Target{Name: name}, Tried: true, Detail: "i/o timeout"}
	}
	return sandboxprobe.Report{
		Attempts: []sandboxprobe.Attempt{
			{Target: sandboxprobe.Target{Name: targetAgents, Open: true}, Tried: true, Reached: true, Detail: "10.96.3.4:7071"},
			shut(targetGateway), shut(targetAPI), shut(targetDNS), shut(targetMetadata),
		},
		UID: probeUID, Capabilities: "0000000000000000", NoNewPrivileges: true, Seccomp: 2, Kernel: "Linux version 6.18.0",
	}
}

func TestWhatAProbeProves(t *testing.T) {
	t.Parallel()
	const node = "Linux version 6.18.0"
	for _, c := range []struct {
		name                string
		isolation, ordinary string
		seen                func(*sandboxprobe.Report)
		network, held       Grade
		says                string
	}{
		{"as it should be", "", "", func(*sandboxprobe.Report) {}, Fine, Fine, "only the gateway's agents port"},
		{"no policy is enforced", "", "", func(r *sandboxprobe.Report) {
			for i := range r.Attempts {
				r.Attempts[i].Reached = true
			}
		}, Broken, Fine, "NetworkPolicy"},
		{"DNS alone is open", "", "", func(r *sandboxprobe.Report) { r.Attempts[3].Reached = true }, Broken, Fine, targetDNS},
		{"no network at all", "", "", func(r *sandboxprobe.Report) { r.Attempts[0].Reached = false }, Broken, Fine, "no sandbox could be bound"},
		{"something wasn't tried", "", "", func(r *sandboxprobe.Report) { r.Attempts[2].Tried = false }, Warning, Fine, "isn't proven"},
		{"nothing was tried", "", "", func(r *sandboxprobe.Report) { r.Attempts = nil }, Broken, Fine, "tried nothing"},
		{"root", "", "", func(r *sandboxprobe.Report) { r.UID = 0 }, Fine, Broken, "root"},
		{"a capability", "", "", func(r *sandboxprobe.Report) { r.Capabilities = "00000000a80425fb" }, Fine, Broken, "a80425fb"},
		{"capabilities unknown", "", "", func(r *sandboxprobe.Report) { r.Capabilities = "" }, Fine, Broken, "capabilities"},
		{"privileges", "", "", func(r *sandboxprobe.Report) { r.NoNewPrivileges = false }, Fine, Broken, "gain"},
		{"no filter", "", "", func(r *sandboxprobe.Report) { r.Seccomp = 0 }, Fine, Broken, "seccomp"},
		{"a token", "", "", func(r *sandboxprobe.Report) { r.KubernetesToken = true }, Fine, Broken, "token"},
		{"gVisor", "gvisor", node, func(r *sandboxprobe.Report) { r.Kernel, r.Seccomp = "Linux version 4.4.0", 0 }, Fine, Fine, "4.4.0"},
		{"gVisor in name only", "gvisor", node, func(*sandboxprobe.Report) {}, Fine, Broken, "same kernel"},
		{"nothing to compare with", "gvisor", "", func(*sandboxprobe.Report) {}, Fine, Warning, "compare"},
	} {
		r := closed()
		c.seen(&r)
		found := judge("", c.isolation, c.ordinary, r)
		words := map[bool]string{true: c.says}
		want(t, found, "kube.network.default", c.network, words[c.network != Fine || c.held == Fine && c.isolation == ""])
		want(t, found, "kube.isolation.default", c.held, words[c.held != Fine || c.isolation != ""])
	}
}

// What is proven is compared with what sessions show, and nothing is called verified that
// nobody has tried.
func TestProven(t *testing.T) {
	t.Parallel()
	k := &kube{file: clusterfile.File{Namespace: "hf-system", Instance: "hf", RuntimeClasses: map[string]string{"gvisor": "gvisor"}}}
	want(t, []Finding{k.unproven()}, "kube.verified", Warning, "default, gvisor", "--probe")
	want(t, []Finding{k.proven([]string{"default"})}, "kube.verified", Warning, "with: nothing",
		"helm upgrade hf deploy/chart -n hf-system --reset-then-reuse-values --set 'sandboxes.verified={default}'")
	want(t, []Finding{k.proven(nil)}, "kube.verified", Warning, "nothing is proven")
	k.file.Verified = []string{"gvisor", "default"}
	want(t, []Finding{k.unproven()}, "kube.verified", Fine)
	want(t, []Finding{k.proven([]string{"gvisor", "default"})}, "kube.verified", Fine, "default, gvisor")
	want(t, []Finding{k.proven([]string{"default"})}, "kube.verified", Warning, "proven: default;")
	if !slices.Equal(k.file.Verified, []string{"gvisor", "default"}) {
		t.Error("the installation's own list was reordered")
	}
}

// A sandbox that started shows what whoever asks may not look at; one that didn't shows
// nothing.
func TestBySandboxes(t *testing.T) {
	t.Parallel()
	k := &kube{file: clusterfile.File{RuntimeClasses: map[string]string{"gvisor": "gvisor", "kata": "vm"}}}
	unseen, unknown := warning("kube.runtimeclasses", "not looked at", "ask"), warning("kube.controller", "no pools", "ask")
	for _, c := range []struct {
		started             []string
		classes, controller Grade
	}{
		{nil, Warning, Warning},
		{[]string{""}, Warning, Fine},
		{[]string{"", "gvisor"}, Warning, Fine},
		{[]string{"", "gvisor", "kata"}, Fine, Fine},
	} {
		classes, controller := k.bySandboxes(c.started, unseen, unknown)
		want(t, []Finding{classes, controller}, "kube.runtimeclasses", c.classes)
		want(t, []Finding{classes, controller}, "kube.controller", c.controller)
	}
	missing, dead := broken("kube.runtimeclasses", "gvisor isn't there", "install it"), broken("kube.controller", "none is available", "look")
	classes, controller := k.bySandboxes([]string{"", "gvisor", "kata"}, missing, dead)
	want(t, []Finding{classes, controller}, "kube.runtimeclasses", Broken)
	want(t, []Finding{classes, controller}, "kube.controller", Broken)
}

// What holds of one tenant's namespace needn't of another's: a class is proven by all, and
// what isn't well is said of whom it is.
func TestPlaces(t *testing.T) {
	t.Parallel()
	k := &kube{file: clusterfile.File{
		Tenants:        map[string]string{"a": "ns-1", "b": "ns-2", "c": "ns-2"},
		RuntimeClasses: map[string]string{"gvisor": "gvisor"},
	}}
	places := k.places()
	if want := []place{{"ns-1", "a"}, {"ns-2", "b, c"}}; !slices.Equal(places, want) {
		t.Fatalf("places: %+v, want %+v", places, want)
	}
	inGvisor := closed()
	inGvisor.Kernel = "Linux version 4.4.0"
	well := func() map[string]tried {
		return map[string]tried{"": {report: closed()}, "gvisor": {report: inGvisor}}
	}
	ill, never := well(), well()
	open := closed()
	open.Attempts[2].Reached = true
	ill[""] = tried{report: open}
	never["gvisor"] = tried{err: errors.New("no such handler")}
	for name, c := range map[string]struct {
		second  map[string]tried
		started []string
		finding string
		grade   Grade
		words   []string
	}{
		"all well":          {well(), []string{"", "gvisor"}, "kube.verified", Warning, []string{"{default,gvisor}"}},
		"as said":           {well(), []string{"", "gvisor"}, "kube.network.default", Fine, []string{"so in 2 namespaces"}},
		"one is open":       {ill, []string{"", "gvisor"}, "kube.network.default", Broken, []string{"b, c: ", targetAPI, "NetworkPolicy"}},
		"so nothing proven": {ill, []string{"", "gvisor"}, "kube.verified", Warning, []string{"{gvisor}"}},
		"one never starts":  {never, []string{""}, "kube.probe.gvisor", Broken, []string{"b, c: no such handler"}},
	} {
		found, started := k.verdicts(places, []map[string]tried{well(), c.second})
		if !slices.Equal(started, c.started) {
			t.Errorf("%s: started: %q", name, started)
		}
		want(t, found, c.finding, c.grade, c.words...)
	}
	k.tenants = []string{"a"}
	found, _ := k.verdicts(k.places(), []map[string]tried{well()})
	want(t, found, "kube.verified", Warning, "proven for a alone: default, gvisor", "without --tenant")
}

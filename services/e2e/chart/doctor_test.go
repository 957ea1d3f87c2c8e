package chart_test

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/internal/kubetest"
	"github.com/holdfast-io/holdfast/services/internal/sandboxprobe"
)

// finding is what `holdfast doctor -o json` says of one thing.
type finding struct{ Name, Grade, Detail, WayOut string }

// holdfast is the program, compiled once.
var holdfast = sync.OnceValues(func() (string, error) {
	return harness.Build("github.com/holdfast-io/holdfast/services/holdfast", "")
})

// patient is an installation that the doctor looks at, as the workload service.
type patient struct {
	*cluster
	program, own, tenant, file, access string
}

// install applies the chart, with more values, and gives what the doctor needs.
func install(t *testing.T, change func(cluster string) string, set string) *patient {
	t.Helper()
	c := apiServer(t)
	program, err := holdfast()
	if err != nil {
		t.Fatal(err)
	}
	p := &patient{cluster: c, program: program, own: c.Namespace(t), tenant: c.Namespace(t)}
	for _, o := range renderIn(t, p.own, "--set", "fullnameOverride="+p.own+",tenants[0].name=ill,tenants[0].namespace="+p.tenant+set) {
		c.apply(t, o)
		if cm, ok := o.(*corev1.ConfigMap); ok && cm.Data["cluster.yaml"] != "" {
			p.file = filepath.Join(t.TempDir(), "cluster.yaml")
			if err := os.WriteFile(p.file, []byte(change(cm.Data["cluster.yaml"])), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.access = kubeconfig(t, c.ServiceAccount(t, p.own, p.own+"-workload"))
	return p
}

func asItIs(cluster string) string { return cluster }

// examine runs the doctor and says whether it found all well enough.
func (p *patient) examine(t *testing.T, access string, args ...string) (found []finding, well bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), p.program, append([]string{"doctor", "-o", "json", "--kube", "--cluster-file", p.file}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+access)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if uerr := json.Unmarshal(out, &found); uerr != nil {
		t.Fatalf("%v: %s: %s", uerr, out, said.String())
	}
	return found, err == nil
}

// wants looks at a finding's grade and words.
func wants(t *testing.T, found []finding, name, grade string, words ...string) {
	t.Helper()
	i := slices.IndexFunc(found, func(f finding) bool { return f.Name == name })
	if i < 0 {
		t.Errorf("%s wasn't looked at: %+v", name, found)
		return
	}
	if found[i].Grade != grade {
		t.Errorf("%s is %s, not %s: %s", name, found[i].Grade, grade, found[i].Detail)
	}
	for _, w := range words {
		if !strings.Contains(found[i].Detail+" → "+found[i].WayOut, w) {
			t.Errorf("%s doesn't say %q: %s → %s", name, w, found[i].Detail, found[i].WayOut)
		}
	}
}

// The doctor as the workload service: all is well, or what isn't is named.
func TestDoctor(t *testing.T) {
	p := install(t, asItIs, ",sandboxes.runtimeClasses.gvisor=gvisor,tenants[0].quota.pods=1")
	found, well := p.examine(t, p.access)
	if !well {
		t.Errorf("it finds something broken: %+v", found)
	}
	wants(t, found, "kube.api", "ok", "v1.36", p.own+"-workload")
	wants(t, found, "kube.agent-sandbox", "ok", "v1beta1")
	wants(t, found, "kube.rights", "ok")
	wants(t, found, "kube.excess", "ok", "no Secret")
	wants(t, found, "kube.runtimeclasses", "warning", "administrator")
	wants(t, found, "kube.controller", "warning", "no pools")
	wants(t, found, "kube.tenant.ill", "ok", p.tenant)
	wants(t, found, "kube.verified", "warning", "default, gvisor", "--probe")

	// An administrator sees more, and is told that it isn't whom to ask about.
	admin := kubeconfig(t, p.Config())
	found, well = p.examine(t, admin)
	if well {
		t.Error("a runtime class is missing, and all is well")
	}
	wants(t, found, "kube.runtimeclasses", "broken", "gvisor isn't there")
	wants(t, found, "kube.excess", "warning", "get secrets", "--as")
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc"}
	p.ensure(t, class)
	t.Cleanup(func() { _ = p.Delete(t.Context(), class) })
	found, _ = p.examine(t, admin, "--as", "system:serviceaccount:"+p.own+":"+p.own+"-workload")
	wants(t, found, "kube.rights", "ok")
	wants(t, found, "kube.excess", "ok")
	found, _ = p.examine(t, admin)
	wants(t, found, "kube.runtimeclasses", "ok", "gvisor")
	found, _ = p.examine(t, kubeconfig(t, p.ServiceAccount(t, p.own, p.own+"-session")))
	wants(t, found, "kube.rights", "broken", "may not", "helm upgrade")

	// A pool that is looked after shows that a controller is there.
	pool := &extensionsv1beta1.SandboxWarmPool{ObjectMeta: metav1.ObjectMeta{Name: "empty", Namespace: p.tenant}}
	none := int32(0)
	pool.Spec.Replicas, pool.Spec.TemplateRef.Name = &none, "none"
	p.ensure(t, pool)
	found, _ = p.examine(t, p.access)
	wants(t, found, "kube.controller", "ok", "1 pools")

	// Without its Role in the tenant's namespace nothing works; with more it is too much.
	role := &rbacv1.Role{}
	if err := p.Get(t.Context(), client.ObjectKey{Namespace: p.tenant, Name: p.own + "-workload"}, role); err != nil {
		t.Fatal(err)
	}
	role.Rules = append(role.Rules[1:], rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"list"}})
	if err := p.Update(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	p.Eventually(t, "the doctor sees the other Role", func(context.Context) (bool, error) {
		found, well = p.examine(t, p.access)
		return !well, nil
	})
	wants(t, found, "kube.rights", "broken", "create sandboxclaims.extensions.agents.x-k8s.io in "+p.tenant)
	wants(t, found, "kube.excess", "warning", "list secrets in "+p.tenant)
}

// The doctor tries a sandbox, which runs here as a process of this machine: nothing
// closes its network or holds it, and that is what the doctor has to find.
func TestDoctorProbes(t *testing.T) {
	c := apiServer(t)
	sandboxd := harness.Sandboxd(t)
	agents, gateway := c.listener(t), c.listener(t)
	image := kubetest.Image{Argv: func(run kubetest.Container) ([]string, error) { return onlyHere(sandboxd, run) }}
	const name = "holdfast-probed:test"
	c.Image(name, image)
	p := install(t, func(file string) string {
		lines := strings.Split(file, "\n")
		for i, line := range lines {
			switch key, _, _ := strings.Cut(line, ":"); key {
			case "agentsURL":
				lines[i] = "agentsURL: http://" + agents
			case "apiURL":
				lines[i] = "apiURL: http://" + gateway
			case "image":
				lines[i] = "image: " + name
			}
		}
		return strings.Join(lines, "\n")
	}, "")
	found, well := p.examine(t, p.access, "--probe")
	if well {
		t.Error("a sandbox that is a process of this machine counts as isolated")
	}
	wants(t, found, "kube.network.default", "broken", "the gateway's API", gateway, "NetworkPolicy")
	wants(t, found, "kube.verified", "warning", "nothing is proven")
	if os.Getuid() == 0 {
		wants(t, found, "kube.isolation.default", "broken", "runs as root")
	}
	p.Eventually(t, "nothing is left of the probe", func(context.Context) (bool, error) {
		return !slices.ContainsFunc(p.Objects(t, p.tenant), func(o string) bool { return strings.Contains(o, "holdfast-probe-") }), nil
	})
}

// listener accepts connections where Pods reach it.
func (c *cluster) listener(t *testing.T) (address string) {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", net.JoinHostPort(c.HostIP(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// onlyHere has the probe try what is of this machine alone: a test calls nobody else.
func onlyHere(sandboxd string, run kubetest.Container) ([]string, error) {
	env := []string{"env"}
	for _, pair := range run.Env {
		list, ours := strings.CutPrefix(pair, sandboxprobe.EnvTargets+"=")
		if !ours {
			continue
		}
		var targets []sandboxprobe.Target
		if err := json.Unmarshal([]byte(list), &targets); err != nil {
			return nil, err
		}
		here, err := json.Marshal(slices.DeleteFunc(targets, func(target sandboxprobe.Target) bool { return !strings.HasPrefix(target.Address, "127.") }))
		if err != nil {
			return nil, err
		}
		env = append(env, sandboxprobe.EnvTargets+"="+string(here))
	}
	return append(env, sandboxd, "probe"), nil
}

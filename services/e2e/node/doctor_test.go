//go:build node

package node_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/api"
)

// finding is what `holdfast doctor -o json` says of one thing.
type finding struct{ Name, Grade, Detail, WayOut string }

func (f finding) String() string { return fmt.Sprintf("%-8s %-24s %s", f.Grade, f.Name, f.Detail) }

// TestDoctor has the doctor try sandboxes in the workload service's Pod, as the
// documentation says. It finds nothing to mend, and what it has proven is told to the
// installation, as it says: then all is well, and sessions show it.
func TestDoctor(t *testing.T) {
	if os.Getenv(envPolicy) == "" {
		t.Skip("network policies aren't enforced here, so that no sandbox is closed: run make test-node-policy")
	}
	w := newWorld(t)
	var way string
	for _, f := range examined(t) {
		switch {
		case f.Name == "kube.verified":
			way = f.WayOut
		case f.Grade != "ok":
			t.Errorf("%v → %s", f, f.WayOut)
		}
	}
	_, set, told := strings.Cut(way, "--set ")
	if !told {
		t.Fatalf("the doctor doesn't say what to tell the installation: %q", way)
	}
	if err := holdfast.upgrade(bounded(t), strings.Trim(set, "'")); err != nil {
		t.Fatal(err)
	}
	for _, f := range examined(t) {
		fmt.Fprintln(os.Stdout, f)
		if f.Grade != "ok" {
			t.Errorf("%v → %s", f, f.WayOut)
		}
	}
	isolations := map[string]func(*api.RuntimeSpec){"container": nil}
	if os.Getenv(envGVisor) != "" {
		isolations["gvisor"] = inGVisor
	}
	for isolation, change := range isolations {
		w.runtime("proven-"+isolation, 0, change)
		s := w.create("proven-"+isolation, "")
		if s.Isolation != isolation {
			t.Errorf("the isolation of a session in %s is shown as %s", isolation, s.Isolation)
		}
		w.end(s.ID)
		nothingLeft(t, s.ID)
	}
	nothingLeft(t, "holdfast-probe-")
}

// examined is what the doctor says in the workload service's Pod.
func examined(t *testing.T) (found []finding) {
	t.Helper()
	ctx := bounded(t)
	var pods corev1.PodList
	if err := cluster.Client.List(ctx, &pods, client.InNamespace(ownSpace), client.MatchingLabels{"app.kubernetes.io/component": "workload"}); err != nil {
		t.Fatal(err)
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(pods.Items) != 1 {
		t.Fatalf("the workload service has %d Pods", len(pods.Items))
	}
	p := &pods.Items[0]
	said, err := cluster.Exec(ctx, p, p.Spec.Containers[0].Name, "holdfast", "doctor", "--kube", "--probe", "-o", "json")
	if uerr := json.Unmarshal([]byte(said), &found); uerr != nil {
		t.Fatalf("%v: the doctor says %q: %v", err, said, uerr)
	}
	return found
}

//go:build node

package node_test

import (
	"os"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/node/onenode"
)

// TestGVisor has sandboxes in gVisor, by their runtime's class: warm and cold, put away
// and back with their volume, and running the code that a client sends.
func TestGVisor(t *testing.T) {
	if os.Getenv(envGVisor) == "" {
		t.Skip("this node has no gVisor: run make test-node-gvisor")
	}
	t.Run("warm", func(t *testing.T) { startsAndAnswers(t, "gvisor-warm", 2, inGVisor) })
	t.Run("cold", func(t *testing.T) { startsAndAnswers(t, "gvisor-cold", 0, inGVisor) })
	t.Run("suspend-and-resume", func(t *testing.T) {
		suspendsAndResumes(t, "gvisor-keeper", func(r *api.RuntimeSpec) { inGVisor(r); keeping(r) })
	})
	t.Run("code", runsCodeInGVisor)
}

func inGVisor(r *api.RuntimeSpec) { r.Sandbox.RuntimeClassName = onenode.GVisor }

// runsCodeInGVisor asks the kernel itself, by code that a client sends: what is shown of
// the session has to be what it says.
func runsCodeInGVisor(t *testing.T) {
	w := newWorld(t)
	w.runtime("interpreter", 1, func(r *api.RuntimeSpec) {
		agent(r)
		inGVisor(r)
		r.Kind = api.RuntimeKindCodeInterpreter
	})
	w.warm("interpreter", 1)
	s := w.create("interpreter", "")
	if strings.TrimPrefix(s.Isolation, "unverified:") != "gvisor" { // TestDoctor has it without
		t.Errorf("the session's isolation is shown as %q", s.Isolation)
	}
	if class := w.pods(s.ID)[0].Spec.RuntimeClassName; class == nil || *class != onenode.GVisor {
		t.Errorf("its Pod has the class %v", class)
	}
	said, err := w.invoke(s.ID, "POST", "/run", "cat /proc/version\ndmesg\necho $((6 * 7)) > /tmp/answer\ncat /tmp/answer")
	if err != nil {
		t.Fatal(err)
	}
	t.Log(said)
	if !strings.Contains(said, "Starting gVisor") || !strings.HasSuffix(said, "\n42\n") {
		t.Errorf("in the sandbox is said %q", said)
	}
	w.end(s.ID)
	nothingLeft(t, s.ID)
}

package agentsandbox

import (
	"context"
	"errors"
	"testing"

	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// A warm Pod is asked for its process before a session gets it; what turns out to be wrong
// is asked for again.
func TestWarmPodsAreKnown(t *testing.T) {
	t.Parallel()
	b := set(t)
	must(t, b.EnsurePool(b.within(), b.runtime(), 1))
	b.cluster.Eventually(t, "the warm Pod was asked", func(context.Context) (bool, error) { return b.processes.Len() == 1, nil })
	c := b.claim("s-1")
	box, err := b.Claim(b.within(), c)
	must(t, err)
	if box.Path != driver.PathWarm {
		t.Fatalf("it came %s", box.Path)
	}
	known, ok := b.processes.Peek(box.PodUID)
	asked, err := driver.Process(b.within(), addressOf(b.pod(c.Ref)))
	must(t, err)
	if !ok || known != asked || asked == "" {
		t.Errorf("known as %q, is %q", known, asked)
	}

	by := func(process string) error {
		signed, err := bind.Sign(b.signer, bind.Bind{
			Tenant: c.Tenant, Session: c.Session, Generation: c.Generation, PodUID: box.PodUID, Agents: b.agents, Process: process,
		}, b.until)
		must(t, err)
		_, err = b.Driver.Bind(b.within(), c.Ref, signed)
		return err
	}
	stale := bind.ProcessOf("of the process before")
	b.processes.Add(box.PodUID, stale)
	if process, err := b.Process(b.within(), c.Ref); err != nil || process != stale {
		t.Fatalf("%q, %v: what is known isn't asked for", process, err)
	}
	if err := by(stale); !errors.Is(err, driver.ErrBindRefused) {
		t.Errorf("bound as another process: %v", err)
	}
	process, err := b.Process(b.within(), c.Ref)
	must(t, err)
	if process != asked {
		t.Errorf("asked again it is %q, want %q", process, asked)
	}
	must(t, by(process))
}

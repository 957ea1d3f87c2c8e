package agentsandbox

import (
	"testing"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

// Of two replicas one leads; when it ends, the other begins to.
func TestOneReplicaLeads(t *testing.T) {
	t.Parallel()
	b := set(t)
	if !b.Leads() {
		t.Error("one alone doesn't lead")
	}
	first := b.replica("first")
	drivertest.Eventually(t, "the first leads", first.Leads)
	if e := <-first.Events(); e != (driver.Event{Began: true}) {
		t.Errorf("told %+v", e)
	}
	second := b.replica("second")
	if second.Leads() {
		t.Error("both lead")
	}
	must(t, first.Close())
	drivertest.Eventually(t, "the second leads", second.Leads)
	if first.Leads() {
		t.Error("one that was closed leads")
	}
}

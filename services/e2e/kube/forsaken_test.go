package kube_test

import (
	"testing"

	"github.com/holdfast-io/holdfast/api"
)

// TestRuntimeIsRemovedUnderSessions: who removes a runtime that sessions have takes it from
// nobody: they work on until they end, and with the last of them all of it is gone.
func TestRuntimeIsRemovedUnderSessions(t *testing.T) {
	t.Parallel()
	in := start(t)
	in.shell("forsaken", 2, allowing)
	first, last := in.CreateOf("alice", api.CreateSession{Runtime: "forsaken"}), in.CreateOf("alice", api.CreateSession{Runtime: "forsaken"})
	in.remove("forsaken")
	in.tell(first.ID, "echo kept > note")
	in.end(first.ID)
	in.tell(last.ID, "echo kept > note")
	in.suspend(last.ID)
	in.tell(last.ID, "cat note")
	in.end(last.ID)
	in.nothingLeft()
}

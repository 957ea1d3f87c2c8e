package agentsandbox

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Remind takes the log's word for what was handed out of a claim where that isn't written
// on it: nothing is, or what a resume has replaced.
func (d *Driver) Remind(ref driver.Ref, sandboxUID, podUID string) {
	key, err := d.keyFor(ref)
	if err != nil {
		return
	}
	s := d.sight(key)
	if s.claim == nil {
		return
	}
	_, was := d.memos.of(s.claim)
	replaced := s.sandbox != nil && s.sandbox.Annotations[annVoid] == was.incarnation
	if was.incarnation == podUID || was != (record{}) && !replaced {
		return
	}
	written := recordOf(s.claim)
	d.memos.change(s.claim.UID, func(m *memo) {
		m.handed, m.over = record{types.UID(sandboxUID), podUID, was.volume}, []record{written}
		m.handedBy = intentOf(s.claim)
	})
	d.writes.Add(key)
}

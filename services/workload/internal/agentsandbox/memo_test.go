package agentsandbox

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

// What was handed out here stands against everything older that the claim may still show,
// or show only now, and against nothing newer.
func TestWhatIsHandedOutIsNewerThanWhatStood(t *testing.T) {
	t.Parallel()
	older, ours, newer := record{"box", "pod-1", ""}, record{"box", "pod-2", ""}, record{"box", "pod-3", ""}
	for name, c := range map[string]struct {
		handed record
		over   []record
		shown  record
		want   record
	}{
		"nothing was handed out here":       {shown: older, want: older},
		"the claim says nothing yet":        {handed: ours, over: []record{{}, {}}, want: ours},
		"the informer lags behind the API":  {handed: ours, over: []record{older, {}}, shown: older, want: ours},
		"it is shown as it was":             {handed: ours, over: []record{older, older}, shown: older, want: ours},
		"it is written down":                {handed: ours, over: []record{older, older, ours}, shown: ours, want: ours},
		"another process handed out a next": {handed: ours, over: []record{older, older, ours}, shown: newer, want: newer},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim := &extensionsv1beta1.SandboxClaim{ObjectMeta: metav1.ObjectMeta{UID: "claim"}}
			if c.shown != (record{}) {
				claim.Annotations = c.shown.annotations("claim")
			}
			var ms memos
			ms.change("claim", func(m *memo) { m.handed, m.over = c.handed, c.over })
			if _, got := ms.of(claim); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// A record that comes late is of an incarnation which another replica has replaced: it
// isn't written over that one's.
func TestLateRecordIsNotWritten(t *testing.T) {
	t.Parallel()
	b := set(t)
	other := &bench{Driver: b.another(), t: t, cluster: b.cluster, ns: b.ns, agents: b.agents, signer: b.signer, until: b.until}
	c := b.claim("s-1")
	drivertest.Start(t, b, c)
	must(t, other.Suspend(b.within(), c.Ref, 6))
	c.Intent = 7
	box := drivertest.Restart(t, other, c)
	for _, d := range []*Driver{b.Driver, other.Driver} {
		b.cluster.Eventually(t, "each replica knows the newest", func(ctx context.Context) (bool, error) {
			at, err := d.Locate(ctx, c.Ref)
			return err == nil && at.PodUID == box.PodUID, nil
		})
	}
	if got := recordOf(b.sight(mustKey(t, b, c.Ref)).claim); got.incarnation != box.PodUID {
		t.Errorf("written down as %+v, want %s", got, box.PodUID)
	}
}

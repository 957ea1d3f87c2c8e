package agentsandbox

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Uphold makes the template of c's claim again where somebody removed it. agent-sandbox
// removes its network policy along: without one a Sandbox that runs is open, or where
// everything else is denied by default, reached by nobody.
func (d *Driver) Uphold(ctx context.Context, c driver.Claim) error {
	key, err := d.keyFor(c.Ref)
	if err != nil {
		return err
	}
	return d.uphold(ctx, c, d.sight(key))
}

func (d *Driver) uphold(ctx context.Context, c driver.Claim, s sight) error {
	if s.claim == nil || s.claim.DeletionTimestamp != nil {
		return nil
	}
	if owner, ours := d.ours(s.claim); !ours || owner != c.Ref {
		return nil
	}
	key := types.NamespacedName{Namespace: s.claim.Namespace, Name: s.claim.Spec.WarmPoolRef.Name}
	if t := found[extensionsv1beta1.SandboxTemplate](d.scopeOf(key.Namespace).templates, key); t != nil && t.DeletionTimestamp == nil {
		return nil
	}
	if err := d.mend(ctx, c, s); err != nil {
		return fmt.Errorf("template of claim %s: %w", s.claim.Name, err)
	}
	return nil
}

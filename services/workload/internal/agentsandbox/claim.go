package agentsandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// The layers of a start, in their order. The session's bind and its entrypoint's answer
// follow, which are the caller's to time.
const (
	layerClaimed = "claimed" // the claim has a Sandbox
	layerAddress = "address" // its Pod has an address
	layerSandbox = "sandbox" // the Sandbox is ready, or all of it but the agent
)

// Claim makes the sandbox of c.Ref or finds it again.
func (d *Driver) Claim(ctx context.Context, c driver.Claim) (driver.Sandbox, error) {
	return d.ensure(ctx, c, true)
}

// Resume starts a suspended sandbox again.
func (d *Driver) Resume(ctx context.Context, c driver.Claim) (driver.Sandbox, error) {
	return d.ensure(ctx, c, false)
}

// ensure makes c's sandbox run: found, made, or started again.
func (d *Driver) ensure(ctx context.Context, c driver.Claim, create bool) (driver.Sandbox, error) {
	if err := c.Validate(); err != nil {
		return driver.Sandbox{}, err
	}
	key, err := d.keyFor(c.Ref)
	if err != nil {
		return driver.Sandbox{}, err
	}
	unlock, err := d.locks.Lock(ctx, c.Key())
	if err != nil {
		return driver.Sandbox{}, err
	}
	defer unlock()
	claim, err := d.admit(ctx, key, c.Ref, c.Intent, !create)
	if err != nil {
		return driver.Sandbox{}, err
	}
	if claim == nil && !create {
		return driver.Sandbox{}, notFound(c.Ref)
	}
	if err := d.supersede(ctx, c); err != nil {
		return driver.Sandbox{}, err
	}
	if claim == nil {
		return d.create(ctx, c, c.Generation > 1)
	}
	if claim, err = d.want(ctx, c.Ref, claim, c.Intent, c.Until); err != nil {
		return driver.Sandbox{}, err
	}
	return d.again(ctx, c, claim)
}

// again makes the sandbox of a claim run that exists.
func (d *Driver) again(ctx context.Context, c driver.Claim, claim *extensionsv1beta1.SandboxClaim) (driver.Sandbox, error) {
	s, v, err := d.settled(ctx, claim)
	if err != nil {
		return driver.Sandbox{}, err
	}
	was := v.record
	switch {
	case v.state == driver.StateSuspended:
		return d.restart(ctx, c, claim, s, was)
	case was == record{}:
		return d.await(ctx, c, claim, was)
	case v.state == driver.StateRunning:
		return d.handed(c.Ref, s, was, nil), nil
	}
	switch v.cause {
	case driver.CauseClaimDeleted, driver.CauseSandboxDeleted, driver.CauseManyPods:
		// Nothing of it can be taken on but the volume.
		if err := d.remove(ctx, c.Ref, s, c.Intent, true); err != nil {
			return driver.Sandbox{}, err
		}
		return d.create(ctx, c, true)
	}
	if pod := s.pod(); pod != nil && podOf(was.incarnation) == pod.UID {
		if end, _ := agentEnd(pod); end != nil {
			return driver.Sandbox{}, agentError(end)
		}
		// sandboxd was started again, and knows nobody; the agent may know too much.
		if err := d.sleep(ctx, c.Ref, s, c.Intent); err != nil {
			return driver.Sandbox{}, err
		}
		return d.restart(ctx, c, claim, d.sight(keyOf(claim)), was)
	}
	return d.await(ctx, c, claim, was) // agent-sandbox makes another Pod
}

// admit checks an intent against the newest that is known of the session, and gives
// ref's claim, nil for none. It is ErrForeign where the name is somebody else's. ask has the
// API server asked for a claim that the informer doesn't show; who is about to make it needs
// no answer beforehand.
func (d *Driver) admit(ctx context.Context, key types.NamespacedName, ref driver.Ref, intent uint64, ask bool) (*extensionsv1beta1.SandboxClaim, error) {
	newest, _ := d.released.Get(ref.Key())
	for _, claim := range d.claimsOf(key.Namespace, ref.Key()) {
		m, _ := d.memos.of(claim)
		newest = max(newest, m.intent)
	}
	claim := d.sight(key).claim
	if claim == nil && ask {
		var err error
		claim, err = d.ext.ExtensionsV1beta1().SandboxClaims(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			claim = nil
		case err != nil:
			return nil, fmt.Errorf("claim %s: %w", key, refusedCall(err))
		}
	}
	if claim != nil {
		if err := d.known(ref, claim); err != nil {
			return nil, err
		}
		newest = max(newest, intentOf(claim))
	}
	if intent < newest {
		return nil, &driver.OlderIntentError{Ref: ref, Intent: intent, Recorded: newest}
	}
	return claim, nil
}

// known is ErrForeign for a claim that isn't ref's: another's, or put anew in the place of
// ours.
func (d *Driver) known(ref driver.Ref, claim *extensionsv1beta1.SandboxClaim) error {
	owner, ours := d.ours(claim)
	written := claim.Annotations[annClaim]
	if !ours || owner != ref || written != "" && written != string(claim.UID) {
		return fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, driver.ErrForeign)
	}
	return nil
}

// claimsOf are a session's, of every generation.
func (d *Driver) claimsOf(namespace string, key driver.SessionKey) []*extensionsv1beta1.SandboxClaim {
	return indexed[extensionsv1beta1.SandboxClaim](d.scopeOf(namespace).claims, bySession, sessionEntry(namespace, key))
}

// supersede removes what is left of other generations; their volume goes on.
func (d *Driver) supersede(ctx context.Context, c driver.Claim) error {
	var old []driver.Ref
	var sights []sight
	for _, claim := range d.claimsOf(d.cfg.Namespace(c.Tenant), c.Key()) {
		ref, _ := refOf(claim)
		if ref == c.Ref {
			continue
		}
		if d.busy(claim) {
			return fmt.Errorf("%w: generation %d", driver.ErrBusy, ref.Generation)
		}
		old, sights = append(old, ref), append(sights, d.sightOf(d.scopeOf(claim.Namespace), claim))
	}
	for i, ref := range old {
		if err := d.remove(ctx, ref, sights[i], c.Intent, true); err != nil {
			return fmt.Errorf("session %s: remove an earlier generation: %w", c.Session, err)
		}
	}
	return nil
}

// want puts an intent on a claim, under the resource version that it was compared with,
// and moves its end later.
func (d *Driver) want(
	ctx context.Context, ref driver.Ref, claim *extensionsv1beta1.SandboxClaim, intent uint64, until time.Time,
) (*extensionsv1beta1.SandboxClaim, error) {
	claims := d.ext.ExtensionsV1beta1().SandboxClaims(claim.Namespace)
	for {
		recorded := intentOf(claim)
		if recorded > intent {
			return nil, &driver.OlderIntentError{Ref: ref, Intent: intent, Recorded: recorded}
		}
		later := until.After(endsAt(claim))
		if recorded == intent && !later {
			return claim, nil
		}
		patch := map[string]any{"metadata": map[string]any{
			"uid": claim.UID, "resourceVersion": claim.ResourceVersion,
			"annotations": map[string]string{annIntent: strconv.FormatUint(intent, 10)},
		}}
		if later {
			patch["spec"] = map[string]any{"lifecycle": lifecycle(until)}
		}
		raw, err := json.Marshal(patch)
		if err != nil {
			return nil, err
		}
		written, err := claims.Patch(ctx, claim.Name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: FieldManager})
		switch {
		case err == nil:
			d.memos.change(written.UID, func(m *memo) { m.intent = max(m.intent, intent) })
			return written, nil
		case apierrors.IsConflict(err):
			if claim, err = claims.Get(ctx, claim.Name, metav1.GetOptions{}); err != nil {
				return nil, fmt.Errorf("claim %s: %w", claimName(ref), err)
			}
			if err := d.known(ref, claim); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("claim %s: %w", claim.Name, refusedCall(err))
		}
	}
}

// endsAt is when a claim ends by itself; zero for never.
func endsAt(claim *extensionsv1beta1.SandboxClaim) time.Time {
	if claim.Spec.Lifecycle == nil || claim.Spec.Lifecycle.ShutdownTime == nil {
		return time.Time{}
	}
	return claim.Spec.Lifecycle.ShutdownTime.Time
}

// lifecycle ends a claim at a time, whole: one that were kept would come back empty when
// its time is moved later.
func lifecycle(until time.Time) *extensionsv1beta1.Lifecycle {
	if until.IsZero() {
		return nil
	}
	at := metav1.NewTime(until.Truncate(time.Second))
	return &extensionsv1beta1.Lifecycle{ShutdownTime: &at, ShutdownPolicy: extensionsv1beta1.ShutdownPolicyDeleteForeground}
}

// Extend moves the time later at which a sandbox ends by itself.
func (d *Driver) Extend(ctx context.Context, ref driver.Ref, until time.Time) error {
	key, err := d.keyFor(ref)
	if err != nil {
		return err
	}
	claim := d.sight(key).claim
	if claim == nil || !until.Truncate(time.Second).After(endsAt(claim)) {
		return nil
	}
	m, _ := d.memos.of(claim)
	_, err = d.want(ctx, ref, claim, m.intent, until.Truncate(time.Second))
	if errors.Is(err, driver.ErrOlderIntent) {
		return nil // whoever wants something newer moves it too
	}
	return err
}

// handed describes a sandbox that runs to who asked for it.
func (d *Driver) handed(ref driver.Ref, s sight, was record, watch *stopwatch) driver.Sandbox {
	out := driver.Sandbox{
		Ref: ref, SandboxUID: string(was.sandbox), PodUID: was.incarnation, Path: s.path(), Isolation: d.isolation(s.pods[0]),
	}
	if watch != nil {
		out.Layers = watch.layers
	}
	return out
}

// isolation is what the Pod's runtime class gives, as the Pod has it, whatever its
// template said.
func (d *Driver) isolation(pod *corev1.Pod) string {
	class := ""
	if pod.Spec.RuntimeClassName != nil {
		class = *pod.Spec.RuntimeClassName
	}
	if grade, ok := d.cfg.Template.Isolation(class); ok {
		return grade
	}
	return isolationUnknown
}

// isolationUnknown is shown of a Pod that was given a runtime class that nobody said
// anything of.
const isolationUnknown = "unknown"

package agentsandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Suspend ends the Pod and keeps Sandbox and volume.
func (d *Driver) Suspend(ctx context.Context, ref driver.Ref, intent uint64) error {
	key, err := d.keyFor(ref)
	if err != nil {
		return err
	}
	unlock, err := d.locks.Lock(ctx, ref.Key())
	if err != nil {
		return err
	}
	defer unlock()
	claim, err := d.admit(ctx, key, ref, intent, true)
	if err != nil {
		return err
	}
	if claim == nil {
		return notFound(ref)
	}
	if claim, err = d.want(ctx, ref, claim, intent, endsAt(claim)); err != nil {
		return fmt.Errorf("suspend session %s: %w", ref.Session, err)
	}
	s, v, err := d.settled(ctx, claim)
	if err != nil {
		return fmt.Errorf("suspend session %s: %w", ref.Session, err)
	}
	if s.sandbox == nil || v.record != (record{}) && s.sandbox.UID != v.sandbox {
		return notFound(ref) // with its Sandbox its files are gone: there is nothing to keep
	}
	if err := d.sleep(ctx, ref, s, intent); err != nil {
		return fmt.Errorf("suspend session %s: %w", ref.Session, err)
	}
	return nil
}

// sleep puts a Sandbox to rest and waits until it has no Pod.
func (d *Driver) sleep(ctx context.Context, ref driver.Ref, s sight, intent uint64) error {
	if err := d.mode(ctx, ref, s.sandbox, agentsv1beta1.SandboxOperatingModeSuspended, intent, ""); err != nil {
		return err
	}
	_, err := d.wait(ctx, keyOf(s.claim), func(now sight) (bool, error) {
		if now.claim == nil || now.sandbox == nil || now.sandbox.UID != s.sandbox.UID {
			return false, notFound(ref)
		}
		return now.asleep(), nil
	})
	return err
}

// mode sets a Sandbox's operating mode with the intent that wants it, in one write under
// the resource version that was compared. void is the incarnation that a start replaces,
// so that nobody takes its end for a loss.
func (d *Driver) mode(
	ctx context.Context, ref driver.Ref, sandbox *agentsv1beta1.Sandbox, mode agentsv1beta1.SandboxOperatingMode, intent uint64, void string,
) error {
	sandboxes := d.sandboxes.AgentsV1beta1().Sandboxes(sandbox.Namespace)
	for {
		recorded := intentOf(sandbox)
		if recorded > intent {
			return &driver.OlderIntentError{Ref: ref, Intent: intent, Recorded: recorded}
		}
		if recorded == intent && sandbox.Spec.OperatingMode == mode && sandbox.Annotations[annVoid] == void {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{
				"uid": sandbox.UID, "resourceVersion": sandbox.ResourceVersion,
				"annotations": map[string]string{annIntent: strconv.FormatUint(intent, 10), annVoid: void},
			},
			"spec": map[string]any{"operatingMode": mode},
		})
		if err != nil {
			return err
		}
		written, err := sandboxes.Patch(ctx, sandbox.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		switch {
		case err == nil:
			return d.shown(ctx, written)
		case apierrors.IsConflict(err):
			uid := sandbox.UID
			if sandbox, err = sandboxes.Get(ctx, sandbox.Name, metav1.GetOptions{}); err != nil {
				return fmt.Errorf("sandbox of session %s: %w", ref.Session, err)
			}
			if sandbox.UID != uid {
				return notFound(ref)
			}
		case apierrors.IsNotFound(err):
			return notFound(ref)
		default:
			return fmt.Errorf("sandbox of session %s: %w", ref.Session, refusedCall(err))
		}
	}
}

// shown waits until the informer shows what was written on a Sandbox, so that nothing is
// decided on how it was before.
func (d *Driver) shown(ctx context.Context, written *agentsv1beta1.Sandbox) error {
	owner := metav1.GetControllerOf(written)
	if owner == nil {
		return nil
	}
	_, err := d.wait(ctx, types.NamespacedName{Namespace: written.Namespace, Name: owner.Name}, func(s sight) (bool, error) {
		return s.sandbox == nil || s.sandbox.UID != written.UID || s.sandbox.Generation >= written.Generation, nil
	})
	return err
}

// Release removes the claim with all that it owns, and the session's volume unless it is
// to be kept.
func (d *Driver) Release(ctx context.Context, ref driver.Ref, intent uint64, keepWorkspace bool) error {
	key, err := d.keyFor(ref)
	if err != nil {
		return err
	}
	unlock, err := d.locks.Lock(ctx, ref.Key())
	if err != nil {
		return err
	}
	defer unlock()
	claim, err := d.admit(ctx, key, ref, intent, true)
	foreign := errors.Is(err, driver.ErrForeign)
	if err != nil && !foreign {
		return err
	}
	stays := err // somebody else's; ours is gone, but for what is beside it
	others := false
	for _, other := range d.claimsOf(key.Namespace, ref.Key()) {
		// One that is on its way out needs its volume no more.
		others = others || other.Name != key.Name && other.DeletionTimestamp == nil
	}
	if claim != nil && !foreign {
		s := d.sight(key)
		s.claim = claim
		if err := d.remove(ctx, ref, s, intent, keepWorkspace || others); err != nil {
			return fmt.Errorf("release session %s: %w", ref.Session, err)
		}
	}
	if claim == nil { // of an attempt that ended on its way
		if err := d.removeOwnPool(ctx, key); err != nil {
			return fmt.Errorf("release session %s: %w", ref.Session, err)
		}
	}
	d.released.Add(ref.Key(), intent)
	// A session is of one revision of its runtime: all of its generations have volumes, or none.
	without := claim != nil && !foreign && claim.Annotations[annVolume] == "false"
	if keepWorkspace || others || without {
		return stays
	}
	if err := d.removeVolumes(ctx, key.Namespace, ref.Key()); err != nil {
		return fmt.Errorf("release session %s: %w", ref.Session, err)
	}
	return stays
}

// remove deletes a claim and waits until it and all that it owns is gone: the Pod too, by
// foreground deletion, but for one whose node is silent. That goes once the node is back or
// is given up; its incarnation is nobody's until then.
func (d *Driver) remove(ctx context.Context, ref driver.Ref, s sight, intent uint64, keep bool) error {
	claim := s.claim
	if keep && claim.Annotations[annVolume] == "true" && s.sandbox != nil {
		if err := d.leaveVolume(ctx, ref, s); err != nil {
			return err
		}
	}
	uid := claim.UID
	d.memos.change(uid, func(m *memo) { m.releasing = true })
	if err := d.delete(ctx, ref, claim, intent); err != nil {
		d.memos.change(uid, func(m *memo) { m.releasing = false })
		return err
	}
	if !keep && claim.Annotations[annVolume] != "false" {
		// They go when the Pod has. Whoever waits for that may give up before, and then
		// nobody would come back for them.
		if err := d.removeVolumes(ctx, claim.Namespace, ref.Key()); err != nil {
			return err
		}
	}
	s, err := d.wait(ctx, keyOf(claim), func(now sight) (bool, error) {
		return now.claim == nil || now.claim.UID != uid || now.silent(), nil
	})
	if err != nil {
		return err
	}
	if s.claim == nil || s.claim.UID != uid {
		d.memos.forget(uid)
	}
	return d.removeOwnPool(ctx, keyOf(claim))
}

// delete deletes a claim that nothing newer wants.
func (d *Driver) delete(ctx context.Context, ref driver.Ref, claim *extensionsv1beta1.SandboxClaim, intent uint64) error {
	claims := d.ext.ExtensionsV1beta1().SandboxClaims(claim.Namespace)
	foreground := metav1.DeletePropagationForeground
	uid := claim.UID
	for {
		if recorded := intentOf(claim); recorded > intent {
			return &driver.OlderIntentError{Ref: ref, Intent: intent, Recorded: recorded}
		}
		if claim.DeletionTimestamp != nil {
			return nil
		}
		version := claim.ResourceVersion
		err := claims.Delete(ctx, claim.Name, metav1.DeleteOptions{
			PropagationPolicy: &foreground, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return err
		}
		name := claim.Name
		claim, err = claims.Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case claim.UID != uid:
			return fmt.Errorf("claim %s: %w", name, driver.ErrForeign)
		}
	}
}

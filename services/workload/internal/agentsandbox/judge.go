package agentsandbox

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// doubtAfter is how long an informer may lag behind another before the API server is
// asked: what was handed out stands on a claim, whose Pod may not be shown yet.
const doubtAfter = 500 * time.Millisecond

// verdict is what is known of a claim: what was handed out of it, and how that is.
type verdict struct {
	record
	state driver.State
	cause string
	// sure is false where something isn't shown that was never seen here: it may be gone,
	// or not be shown yet.
	sure bool
}

// verdict judges what is seen of a claim.
func (d *Driver) verdict(s sight) verdict {
	m, was := d.memos.of(s.claim)
	state, cause := s.state(was)
	missing := cause == driver.CauseSandboxDeleted || cause == driver.CausePodDeleted
	if cause == driver.CausePodDeleted && m.warned == was.incarnation && m.why == driver.CauseEvicted {
		cause = m.why
	}
	return verdict{was, state, cause, !missing || m.seen == was.incarnation}
}

// judge tells of a claim whose incarnation is lost, once.
func (d *Driver) judge(s sight) {
	if s.claim == nil {
		return
	}
	ref, ours := d.ours(s.claim)
	m, _ := d.memos.of(s.claim)
	v := d.verdict(s)
	switch {
	case !ours || m.releasing || v.record == record{}:
		return
	case !v.sure:
		d.writes.AddAfter(keyOf(s.claim), doubtAfter)
		return
	case v.state != driver.StateLost:
		if m.seen != v.incarnation {
			d.memos.change(s.claim.UID, func(m *memo) { m.seen = v.incarnation })
		}
		d.warn(ref, s, v)
		return
	case m.told == v.incarnation:
		return
	}
	d.memos.change(s.claim.UID, func(m *memo) { m.told = v.incarnation })
	d.events.Put(driver.Event{Ref: ref, SandboxUID: string(v.sandbox), PodUID: v.incarnation, Cause: v.cause})
}

// warn tells of an incarnation that has to leave its place, once for each reason, and when
// it hasn't any more.
func (d *Driver) warn(ref driver.Ref, s sight, v verdict) {
	why := d.leaves(s, v)
	if v.state == driver.StateRunning && len(s.pods) == 1 && s.pods[0].DeletionTimestamp != nil {
		d.writes.AddAfter(keyOf(s.claim), time.Until(goneAt(s.pods[0]))+time.Millisecond) // judged again then
	}
	m, _ := d.memos.of(s.claim)
	said := ""
	if m.warned == v.incarnation {
		said = m.why
	}
	// A Pod that was asked to go goes; only a node takes back what it said.
	stays := why == "" && said == driver.CauseCordoned && v.state == driver.StateRunning
	if why == said || why == "" && !stays {
		return
	}
	d.memos.change(s.claim.UID, func(m *memo) { m.warned, m.why = v.incarnation, why })
	d.events.Put(driver.Event{
		Ref: ref, SandboxUID: string(v.sandbox), PodUID: v.incarnation, Cause: why, Draining: !stays, Stays: stays,
	})
}

// leaves is why a claim's incarnation has to leave its place; "" where it hasn't.
func (d *Driver) leaves(s sight, v verdict) string {
	if v.state != driver.StateRunning || len(s.pods) != 1 {
		return ""
	}
	if why := leaving(s.pods[0]); why != "" {
		return why
	}
	if d.cordoned(s.pods[0].Spec.NodeName) {
		return driver.CauseCordoned
	}
	return ""
}

// Leaving implements driver.Leaver.
func (d *Driver) Leaving(ref driver.Ref) string {
	s, _, err := d.running(ref)
	if err != nil {
		return ""
	}
	return d.leaves(s, d.verdict(s))
}

// doubt asks the API server of what isn't shown, and judges again.
func (d *Driver) doubt(ctx context.Context, s sight) error {
	v := d.verdict(s)
	if v.sure {
		return nil
	}
	gone, err := d.gone(ctx, s.claim, v.record)
	if err != nil {
		return err
	}
	if !gone { // the informers catch up
		d.writes.AddAfter(keyOf(s.claim), doubtAfter)
		return nil
	}
	d.memos.change(s.claim.UID, func(m *memo) { m.seen = v.incarnation })
	d.judge(d.sight(keyOf(s.claim)))
	return nil
}

// settled is a claim whose state is sure, once the informers show it.
func (d *Driver) settled(ctx context.Context, claim *extensionsv1beta1.SandboxClaim) (sight, verdict, error) {
	key := keyOf(claim)
	shown := func(s sight) bool { return s.claim != nil && s.claim.UID == claim.UID }
	s, err := d.wait(ctx, key, func(s sight) (bool, error) { return shown(s), nil })
	if err != nil {
		return s, verdict{}, err
	}
	v := d.verdict(s)
	if v.sure {
		return s, v, nil
	}
	gone, err := d.gone(ctx, s.claim, v.record)
	if err != nil {
		return s, v, err
	}
	if gone {
		d.memos.change(claim.UID, func(m *memo) { m.seen = v.incarnation })
	}
	s, err = d.wait(ctx, key, func(s sight) (bool, error) {
		if !shown(s) {
			return false, fmt.Errorf("claim %s: %w", key, driver.ErrNotRunning)
		}
		v = d.verdict(s)
		return v.sure, nil
	})
	return s, v, err
}

// gone asks the API server whether the Sandbox or the Pod of a record is gone.
func (d *Driver) gone(ctx context.Context, claim *extensionsv1beta1.SandboxClaim, was record) (bool, error) {
	claim, err := d.ext.ExtensionsV1beta1().SandboxClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
	if err != nil {
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	}
	sandbox, err := d.sandboxOf(ctx, claim, was.sandbox)
	if sandbox == nil || err != nil {
		return err == nil, err
	}
	// A Sandbox's Pod has its name.
	pod, err := d.kube.CoreV1().Pods(claim.Namespace).Get(ctx, sandbox.Name, metav1.GetOptions{})
	if err != nil {
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	}
	return pod.UID != podOf(was.incarnation), nil
}

// sandboxOf asks the API server for a claim's Sandbox by its UID; nil where there is none
// any more. A claim whose Sandbox was taken from it may name none.
func (d *Driver) sandboxOf(ctx context.Context, claim *extensionsv1beta1.SandboxClaim, uid types.UID) (*agentsv1beta1.Sandbox, error) {
	sandboxes := d.sandboxes.AgentsV1beta1().Sandboxes(claim.Namespace)
	if name := claim.Status.SandboxStatus.Name; name != "" {
		sandbox, err := sandboxes.Get(ctx, name, metav1.GetOptions{})
		if err != nil || sandbox.UID != uid {
			return nil, ignoreNotFound(err)
		}
		return sandbox, nil
	}
	list, err := sandboxes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range list.Items {
		if list.Items[i].UID == uid {
			return &list.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // that there is none is an answer
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// deleted hears of a claim that doesn't exist any more.
func (d *Driver) deleted(claim *extensionsv1beta1.SandboxClaim) {
	last := claim.DeepCopy()
	now := metav1.Now()
	last.DeletionTimestamp = &now
	d.judge(sight{claim: last})
	d.memos.forget(claim.UID)
}

// busy is a session whose claim of another generation may still run.
func (d *Driver) busy(claim *extensionsv1beta1.SandboxClaim) bool {
	v := d.verdict(d.sightOf(d.scopeOf(claim.Namespace), claim))
	return claim.DeletionTimestamp == nil && (v.state == driver.StateRunning || !v.sure)
}

package agentsandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// create makes c's claim and waits for its Sandbox. hadVolume says that an earlier one of
// the session may have left its volume.
func (d *Driver) create(ctx context.Context, c driver.Claim, hadVolume bool) (driver.Sandbox, error) {
	key, err := d.keyFor(c.Ref)
	if err != nil {
		return driver.Sandbox{}, err
	}
	begun := time.Now()
	pool, err := d.poolFor(ctx, c, key, hadVolume && c.Runtime.HasVolume)
	if err != nil {
		return driver.Sandbox{}, err
	}
	claims := d.ext.ExtensionsV1beta1().SandboxClaims(key.Namespace)
	claim, err := claims.Create(ctx, newClaim(c, key, pool), metav1.CreateOptions{FieldManager: FieldManager})
	switch {
	case apierrors.IsAlreadyExists(err):
		return d.madeBefore(ctx, c, key)
	case apierrors.IsForbidden(err):
		// A quota is looked at before the name: the place that is missing may be our own claim's.
		if box, gotErr := d.madeBefore(ctx, c, key); !apierrors.IsNotFound(gotErr) {
			return box, gotErr
		}
	}
	if err != nil {
		return driver.Sandbox{}, fmt.Errorf("claim %s: %w", key, refusedCall(err))
	}
	d.memos.change(claim.UID, func(m *memo) {
		m.intent = max(m.intent, c.Intent)
		if m.start == nil {
			m.start = &stopwatch{last: begun}
		}
	})
	return d.await(ctx, c, claim, record{})
}

// madeBefore goes on with a claim that another attempt has made, of another process or of
// one that died, and that the informer may not show yet.
func (d *Driver) madeBefore(ctx context.Context, c driver.Claim, key types.NamespacedName) (driver.Sandbox, error) {
	claim, err := d.ext.ExtensionsV1beta1().SandboxClaims(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
	if err == nil {
		err = d.known(c.Ref, claim)
	}
	if err == nil && claim.DeletionTimestamp != nil {
		err = notRunning(c.Ref, driver.CauseClaimDeleted) // its name is free once it is gone
	}
	if err == nil && claim.Annotations[annEpoch] != c.Epoch {
		err = fmt.Errorf("%w: it is of another epoch of the log", driver.ErrForeign)
	}
	if err == nil {
		claim, err = d.want(ctx, c.Ref, claim, c.Intent, c.Until)
	}
	if err != nil {
		return driver.Sandbox{}, fmt.Errorf("claim %s: %w", key, refusedCall(err))
	}
	return d.again(ctx, c, claim)
}

// newClaim is a claim as it is made. It adds nothing to the Pod: that would make its
// start a cold one.
func newClaim(c driver.Claim, key types.NamespacedName, pool string) *extensionsv1beta1.SandboxClaim {
	return &extensionsv1beta1.SandboxClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: key.Name, Namespace: key.Namespace, Labels: sessionLabels(c.Key()),
			Annotations: map[string]string{
				annTenant: c.Tenant, annSession: c.Session, annGeneration: strconv.FormatUint(c.Generation, 10),
				annIntent: strconv.FormatUint(c.Intent, 10), annEpoch: c.Epoch,
				annRuntime: c.Runtime.Name, annRevision: strconv.FormatUint(c.Runtime.Revision, 10),
				annVolume: strconv.FormatBool(c.Runtime.HasVolume),
			},
		},
		Spec: extensionsv1beta1.SandboxClaimSpec{
			WarmPoolRef: extensionsv1beta1.SandboxWarmPoolRef{Name: pool}, Lifecycle: lifecycle(c.Until),
		},
	}
}

// wait looks at a claim whenever something of it changed, until done says so.
func (d *Driver) wait(ctx context.Context, key types.NamespacedName, done func(sight) (bool, error)) (sight, error) {
	changed, stop := d.notices.watch(key)
	defer stop()
	for {
		s := d.sight(key)
		if ok, err := done(s); ok || err != nil {
			return s, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s, ctx.Err()
		case <-d.ctx.Done():
			return s, driver.ErrClosed
		}
	}
}

// await waits until a claim's Sandbox can be bound, as another incarnation than was, and
// hands that out. It fails as soon as the cluster knows a cause that waiting won't mend;
// others are told when ctx ends.
func (d *Driver) await(ctx context.Context, c driver.Claim, claim *extensionsv1beta1.SandboxClaim, was record) (driver.Sandbox, error) {
	key, err := d.keyFor(c.Ref)
	if err != nil {
		return driver.Sandbox{}, err
	}
	uid := claim.UID
	watch := d.stopwatch(uid)
	var there, mended bool
	s, err := d.wait(ctx, key, func(s sight) (bool, error) {
		switch {
		case s.claim == nil && !there:
			return false, nil // the informer hasn't heard of it
		case s.claim == nil || s.claim.UID != uid || s.claim.DeletionTimestamp != nil:
			return false, notRunning(c.Ref, driver.CauseClaimDeleted)
		}
		there = true
		if s.sandbox != nil {
			watch.lap(layerClaimed, time.Now())
		}
		if pod := s.pod(); pod != nil && pod.Status.PodIP != "" && incarnationOf(pod) != was.incarnation {
			watch.lap(layerAddress, time.Now())
		}
		if s.bindable(was == record{}) && incarnationOf(s.pod()) != was.incarnation {
			return true, nil
		}
		trouble := s.trouble()
		if trouble == nil {
			return false, nil
		}
		if trouble.Cause == driver.CauseTemplate || trouble.Cause == driver.CausePool {
			if mended {
				return false, nil
			}
			mended = true
			return false, d.mend(ctx, c, s)
		}
		if trouble.Final {
			return false, trouble
		}
		return false, nil
	})
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(started(s), err)
		}
		return driver.Sandbox{}, err
	}
	watch.lap(layerSandbox, time.Now())
	now := record{s.sandbox.UID, incarnationOf(s.pod()), was.volume}
	d.memos.change(uid, func(m *memo) {
		m.handed, m.over, m.handedBy = now, []record{recordOf(claim), recordOf(s.claim)}, c.Intent
		m.start, m.seen = nil, now.incarnation
	})
	if c.Runtime.HasVolume {
		d.writes.Add(key) // the session isn't ready before its volume is its own
	} else {
		d.writes.AddAfter(key, writtenDown)
	}
	return d.handed(c.Ref, s, now, watch), nil
}

// started is how far a start is that wasn't waited for to its end.
func started(s sight) *driver.StartError {
	if t := s.trouble(); t != nil {
		return t
	}
	t := &driver.StartError{Cause: driver.CauseSlow, Detail: "its claim has no Sandbox yet"}
	switch {
	case s.sandbox != nil && s.pod() == nil:
		t.Detail = "its Sandbox has no Pod yet"
	case s.pod() != nil:
		t.Detail = "its Pod is " + string(cmp.Or(s.pod().Status.Phase, corev1.PodPending)) + " and not ready"
	}
	return t
}

// stopwatch times the layers of a start, which may take several calls of Claim.
type stopwatch struct {
	last   time.Time
	layers []driver.Layer
}

// lap ends a layer, unless it has ended before.
func (w *stopwatch) lap(name string, now time.Time) {
	for _, l := range w.layers {
		if l.Name == name {
			return
		}
	}
	w.layers = append(w.layers, driver.Layer{Name: name, Took: now.Sub(w.last)})
	w.last = now
}

// stopwatch is the one of a start that is under way, or a new one.
func (d *Driver) stopwatch(claim types.UID) *stopwatch {
	var watch *stopwatch
	d.memos.change(claim, func(m *memo) {
		if m.start == nil {
			m.start = &stopwatch{last: time.Now()}
		}
		watch = m.start
	})
	return watch
}

// restart starts a new incarnation of a Sandbox that was suspended.
func (d *Driver) restart(
	ctx context.Context, c driver.Claim, claim *extensionsv1beta1.SandboxClaim, s sight, was record,
) (driver.Sandbox, error) {
	if err := d.volumeThere(ctx, s, was); err != nil {
		return driver.Sandbox{}, err
	}
	if err := d.uphold(ctx, c, s); err != nil {
		return driver.Sandbox{}, err
	}
	d.stopwatch(s.claim.UID)
	if err := d.mode(ctx, c.Ref, s.sandbox, agentsv1beta1.SandboxOperatingModeRunning, c.Intent, was.incarnation); err != nil {
		return driver.Sandbox{}, err
	}
	return d.await(ctx, c, claim, was)
}

// Explain says what a start waits for, with what the cluster last warned of.
func (d *Driver) Explain(ctx context.Context, ref driver.Ref) *driver.StartError {
	key, err := d.keyFor(ref)
	if err != nil {
		return nil //nolint:nilerr // nothing is known of what can't be
	}
	s := d.sight(key)
	if s.claim == nil {
		return nil
	}
	t := started(s)
	if t.Cause == driver.CauseSlow && s.pod() != nil {
		if warning := d.warning(ctx, s.pod()); warning != "" {
			t.Detail += ": " + warning
		}
	}
	return t
}

// warning is the last that was said of a Pod: what keeps a volume from being mounted or a
// container from being made stands nowhere else.
func (d *Driver) warning(ctx context.Context, pod *corev1.Pod) string {
	list, err := d.kube.CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning}.String(),
	})
	if err != nil {
		d.cfg.Log.Warn("events of a Pod not read", "pod", pod.Name, "err", err)
		return ""
	}
	var last corev1.Event
	for _, e := range list.Items {
		if at := cmp.Or(e.LastTimestamp.Time, e.EventTime.Time); !at.Before(cmp.Or(last.LastTimestamp.Time, last.EventTime.Time)) {
			last = e
		}
	}
	if last.Reason == "" {
		return ""
	}
	return last.Reason + ": " + last.Message
}

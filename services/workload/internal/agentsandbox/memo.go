package agentsandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// memo is what this process knows of a claim before its informers do.
type memo struct {
	// intent is the newest that was written here.
	intent uint64
	// handed is what was handed out here, and over is what is older: what stood on the claim
	// then, as the API server had it and as the informer showed it, and what was written
	// here since. Anything else that stands there is newer, and of another process.
	handed record
	over   []record
	// handedBy is the intent that it was handed out for.
	handedBy uint64
	// start is how far a start is; nil for none.
	start *stopwatch
	// seen is the incarnation that was seen here, or whose loss the API server confirmed:
	// only then what the informers don't show isn't there. told is the one whose loss was told.
	seen, told string
	// warned is the incarnation of which was told that it has to leave, and why.
	warned, why string
	// releasing says that it is deleted by us.
	releasing bool
}

// memos are by the UID of claims.
type memos struct {
	mu sync.Mutex
	by map[types.UID]memo
}

// of is what is known of a claim: by this process where it wrote last, else by what
// stands on it. The record is zero where nothing was handed out.
func (ms *memos) of(claim *extensionsv1beta1.SandboxClaim) (memo, record) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.by[claim.UID]
	m.intent = max(m.intent, intentOf(claim))
	written := recordOf(claim)
	if m.handed == (record{}) || written != (record{}) && !slices.Contains(m.over, written) {
		return m, written
	}
	return m, m.handed
}

// change changes what is known of a claim.
func (ms *memos) change(claim types.UID, change func(*memo)) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if ms.by == nil {
		ms.by = map[types.UID]memo{}
	}
	m := ms.by[claim]
	change(&m)
	ms.by[claim] = m
}

// forget drops a claim that is gone.
func (ms *memos) forget(claim types.UID) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	delete(ms.by, claim)
}

// writtenDown is when what was handed out is put on its claim: after the start, whose calls
// it would only slow down. The log has it first.
const writtenDown = 250 * time.Millisecond

// conflictAgain is how soon a record is compared again with what stands on its claim, on
// which agent-sandbox writes more than once at a start.
const conflictAgain = 250 * time.Millisecond

// write writes down what was handed out, until Close.
func (d *Driver) write() {
	for {
		key, shutdown := d.writes.Get()
		if shutdown {
			return
		}
		if err := d.writeDown(d.ctx, key); err != nil && d.ctx.Err() == nil {
			d.cfg.Log.Warn("what was handed out is not written down, trying again", "claim", key.String(), "err", err)
			d.writes.AddRateLimited(key)
		} else {
			d.writes.Forget(key)
		}
		d.writes.Done(key)
	}
}

// writeDown judges a claim again, puts its record on it, and makes its volume outlive its
// Sandbox.
func (d *Driver) writeDown(ctx context.Context, key types.NamespacedName) error {
	s := d.sight(key)
	if s.claim == nil || s.claim.DeletionTimestamp != nil {
		return nil
	}
	if err := d.doubt(ctx, s); err != nil {
		return err
	}
	d.judge(s)
	ref, ours := d.ours(s.claim)
	m, was := d.memos.of(s.claim)
	if !ours || m.releasing || m.handed == (record{}) || was != m.handed {
		return nil // nothing was handed out here, or something newer elsewhere, or it is to go
	}
	if intentOf(s.claim) > m.handedBy {
		return nil // whoever carries out what is wanted by now says what came of it
	}
	if s.claim.Annotations[annVolume] == "true" && was.volume == "" && s.sandbox != nil && s.sandbox.UID == was.sandbox {
		volume, err := d.keepVolume(ctx, ref, s)
		if err != nil {
			return err
		}
		was.volume = volume
		d.memos.change(s.claim.UID, func(m *memo) {
			if m.handed == (record{was.sandbox, was.incarnation, ""}) {
				m.handed.volume = volume
			}
		})
		d.notices.tell(key)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.claim.UID, "resourceVersion": s.claim.ResourceVersion, "annotations": was.annotations(s.claim.UID),
	}})
	if err != nil {
		return err
	}
	d.memos.change(s.claim.UID, func(m *memo) {
		if !slices.Contains(m.over, was) {
			m.over = append(slices.Clip(m.over), was)
		}
	})
	claims := d.ext.ExtensionsV1beta1().SandboxClaims(key.Namespace)
	_, err = claims.Patch(ctx, key.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	first := was.volume != "" && recordOf(s.claim).volume == ""
	gone := apierrors.IsNotFound(err)
	if first && apierrors.IsConflict(err) { // it may be on its way out since
		now, getErr := claims.Get(ctx, key.Name, metav1.GetOptions{})
		gone = apierrors.IsNotFound(getErr) || getErr == nil && (now.UID != s.claim.UID || now.DeletionTimestamp != nil)
	}
	switch {
	case gone && first:
		return d.takeBack(ctx, key.Namespace, ref.Key(), was.volume) // its Sandbox may be gone as well
	case gone:
		return nil
	case apierrors.IsConflict(err):
		d.writes.AddAfter(key, conflictAgain) // the informer shows the newer one by then
		return nil
	}
	return err
}

// agentError words the end of an agent's container; end is nil where it isn't known.
func agentError(end *corev1.ContainerStateTerminated) error {
	if end == nil {
		return fmt.Errorf("%w: it crashes again and again", driver.ErrEntrypoint)
	}
	return &driver.EntrypointError{Reason: fmt.Sprintf("exit code %d (%s)", end.ExitCode, end.Reason), Words: end.Message}
}

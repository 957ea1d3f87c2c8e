package agentsandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
)

// volumeOf is the name of a Sandbox's workspace: of its own, or of the session's, which
// its template names.
func volumeOf(sandbox *agentsv1beta1.Sandbox) string {
	for _, v := range sandbox.Spec.PodTemplate.Spec.Volumes {
		if v.Name == podtemplate.WorkspaceVolume && v.PersistentVolumeClaim != nil {
			return v.PersistentVolumeClaim.ClaimName
		}
	}
	return podtemplate.WorkspaceVolume + "-" + sandbox.Name
}

// keepVolume makes a Sandbox's workspace the session's, which outlives that Sandbox, and
// gives its UID.
func (d *Driver) keepVolume(ctx context.Context, ref driver.Ref, s sight) (types.UID, error) {
	return d.mark(ctx, ref, s, nil)
}

// lasting waits until a session's volume is the session's: a Sandbox that goes before
// takes it along, and so the session isn't ready before.
func (d *Driver) lasting(ctx context.Context, ref driver.Ref, key types.NamespacedName) error {
	_, err := d.wait(ctx, key, func(s sight) (bool, error) {
		if s.claim == nil {
			return false, notFound(ref)
		}
		_, was := d.memos.of(s.claim)
		return s.claim.Annotations[annVolume] != "true" || was.volume != "", nil
	})
	return err
}

// leaveVolume is keepVolume for one whose claim is about to go.
func (d *Driver) leaveVolume(ctx context.Context, ref driver.Ref, s sight) error {
	_, err := d.mark(ctx, ref, s, map[string]string{annKept: strconv.FormatUint(ref.Generation, 10)})
	if apierrors.IsNotFound(err) {
		return nil // there is none to be left
	}
	return err
}

// mark puts the session's labels, some annotations and a second owner on a workspace.
func (d *Driver) mark(ctx context.Context, ref driver.Ref, s sight, annotations map[string]string) (types.UID, error) {
	volumes := d.kube.CoreV1().PersistentVolumeClaims(s.claim.Namespace)
	name := volumeOf(s.sandbox)
	owner, err := d.lastingOwner(ctx, s.claim.Namespace)
	if err != nil {
		return "", err
	}
	said := map[string]string{annTenant: ref.Tenant, annSession: ref.Session, annEpoch: s.claim.Annotations[annEpoch]}
	maps.Copy(said, annotations)
	// Owners are merged by their UID: the others stay, and nothing needs to be read before.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": sessionLabels(ref.Key()), "annotations": said, "ownerReferences": []metav1.OwnerReference{owner},
	}})
	if err != nil {
		return "", err
	}
	volume, err := volumes.Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil {
		return "", fmt.Errorf("volume of session %s: %w", ref.Session, err)
	}
	return volume.UID, nil
}

// namespaceUIDs are asked for once.
type namespaceUIDs struct {
	mu sync.Mutex
	by map[string]types.UID
}

// lastingOwner is the namespace as an owner: with it the garbage collector leaves alone
// what its other owners leave behind.
func (d *Driver) lastingOwner(ctx context.Context, namespace string) (metav1.OwnerReference, error) {
	d.namespaces.mu.Lock()
	defer d.namespaces.mu.Unlock()
	uid, ok := d.namespaces.by[namespace]
	if !ok {
		ns, err := d.kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return metav1.OwnerReference{}, fmt.Errorf("namespace %s: %w", namespace, err)
		}
		uid = ns.UID
		if d.namespaces.by == nil {
			d.namespaces.by = map[string]types.UID{}
		}
		d.namespaces.by[namespace] = uid
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: uid}, nil
}

// leftVolume is the workspace that an earlier claim of the session left; nil for none.
func (d *Driver) leftVolume(ctx context.Context, namespace string, key driver.SessionKey) (*corev1.PersistentVolumeClaim, error) {
	list, err := d.kube.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector(key)})
	if err != nil {
		return nil, fmt.Errorf("volumes of session %s: %w", key.Session, err)
	}
	var left *corev1.PersistentVolumeClaim
	for i := range list.Items {
		v := &list.Items[i]
		if v.DeletionTimestamp == nil && (left == nil || left.CreationTimestamp.Before(&v.CreationTimestamp)) {
			left = v
		}
	}
	return left, nil
}

// volumeThere is ErrWorkspaceGone where the volume that was handed out isn't there any
// more: agent-sandbox would make an empty one, which would pass for it.
func (d *Driver) volumeThere(ctx context.Context, s sight, was record) error {
	if was.volume == "" {
		return nil
	}
	volume, err := d.kube.CoreV1().PersistentVolumeClaims(s.claim.Namespace).Get(ctx, volumeOf(s.sandbox), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && (volume.UID != was.volume || volume.DeletionTimestamp != nil):
		return fmt.Errorf("claim %s: %w", s.claim.Name, driver.ErrWorkspaceGone)
	case err != nil:
		return fmt.Errorf("volume of claim %s: %w", s.claim.Name, err)
	}
	return nil
}

// removeVolumes deletes what a session has of volumes.
func (d *Driver) removeVolumes(ctx context.Context, namespace string, key driver.SessionKey) error {
	volumes := d.kube.CoreV1().PersistentVolumeClaims(namespace)
	list, err := volumes.List(ctx, metav1.ListOptions{LabelSelector: selector(key)})
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	var errs []error
	for i := range list.Items {
		uid := list.Items[i].UID
		err := volumes.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete volume %s: %w", list.Items[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// takeBack deletes a volume that was kept for a claim that went meanwhile, and that nobody
// left on purpose.
func (d *Driver) takeBack(ctx context.Context, namespace string, key driver.SessionKey, uid types.UID) error {
	volumes := d.kube.CoreV1().PersistentVolumeClaims(namespace)
	list, err := volumes.List(ctx, metav1.ListOptions{LabelSelector: selector(key)})
	if err != nil {
		return fmt.Errorf("volumes of session %s: %w", key.Session, err)
	}
	i := slices.IndexFunc(list.Items, func(v corev1.PersistentVolumeClaim) bool { return v.UID == uid })
	if i < 0 || list.Items[i].Annotations[annKept] != "" {
		return nil
	}
	version := list.Items[i].ResourceVersion
	err = volumes.Delete(ctx, list.Items[i].Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

package onenode

import (
	"context"
	"errors"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// provisioner is the name in the storage class.
const provisioner = "holdfast.dev/node"

// startVolumes makes a PersistentVolume of a folder for every claim of the default
// storage class, and removes both when the claim is gone. A `local` volume, and not a
// hostPath: only of the former are files made a Pod's group's.
func (n *Node) startVolumes(ctx context.Context) error {
	immediate, remove := storagev1.VolumeBindingImmediate, corev1.PersistentVolumeReclaimDelete
	if err := n.Client.Create(ctx, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: StorageClass, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner: provisioner, ReclaimPolicy: &remove, VolumeBindingMode: &immediate,
	}); err != nil {
		return err
	}
	n.loops.run(func(ctx context.Context) {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				// What fails is tried again: the next round sees the same.
				_ = errors.Join(n.provision(ctx), n.reclaim(ctx))
			}
		}
	})
	return nil
}

// provision makes the volumes that claims wait for.
func (n *Node) provision(ctx context.Context) error {
	var claims corev1.PersistentVolumeClaimList
	if err := n.Client.List(ctx, &claims); err != nil {
		return err
	}
	for _, c := range claims.Items {
		if c.Status.Phase != corev1.ClaimPending || c.DeletionTimestamp != nil || c.Spec.StorageClassName == nil || *c.Spec.StorageClassName != StorageClass {
			continue
		}
		name := "pv-" + string(c.UID)
		folder := n.path("volumes", name)
		if err := os.MkdirAll(folder, 0o770); err != nil {
			return err
		}
		err := n.Client.Create(ctx, &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": provisioner}},
			Spec: corev1.PersistentVolumeSpec{
				StorageClassName: StorageClass, AccessModes: c.Spec.AccessModes,
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: c.Spec.Resources.Requests[corev1.ResourceStorage]},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder}},
				NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
					MatchExpressions: []corev1.NodeSelectorRequirement{{
						Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{NodeName},
					}},
				}}}},
				ClaimRef: &corev1.ObjectReference{
					APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
				},
			},
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// reclaim removes the volumes whose claims are gone.
func (n *Node) reclaim(ctx context.Context) error {
	var volumes corev1.PersistentVolumeList
	if err := n.Client.List(ctx, &volumes); err != nil {
		return err
	}
	for _, v := range volumes.Items {
		if v.Status.Phase != corev1.VolumeReleased || v.Spec.Local == nil {
			continue
		}
		if err := n.Client.Delete(ctx, &v); client.IgnoreNotFound(err) != nil {
			return err
		}
		if err := os.RemoveAll(v.Spec.Local.Path); err != nil {
			return err
		}
	}
	return nil
}

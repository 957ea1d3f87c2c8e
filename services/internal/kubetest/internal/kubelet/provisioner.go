package kubelet

import (
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// provisionFailed marks a claim whose storage class doesn't exist, so that the
// scheduler knows that waiting is of no use yet.
const provisionFailed = "kubetest.holdfast.dev/provision-failed"

// provisioner binds each volume claim to a volume of its own, a folder of this machine,
// as soon as the claim exists, and removes both with the claim.
type provisioner struct {
	k     *Kubelet
	queue workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func newProvisioner(k *Kubelet) *provisioner {
	return &provisioner{k: k, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())}
}

func (p *provisioner) handler() cache.ResourceEventHandler {
	add := func(obj any) {
		if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok && claim.Status.Phase != corev1.ClaimBound {
			p.queue.Add(cache.MetaObjectToName(claim))
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, obj any) { add(obj) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if claim, ok := obj.(*corev1.PersistentVolumeClaim); ok {
				p.k.running.Go(func() { p.remove(claim) })
			}
		},
	}
}

func (p *provisioner) run() {
	stopped := make(chan struct{})
	p.k.running.Go(func() {
		<-p.k.ctx.Done()
		p.queue.ShutDown()
		close(stopped)
	})
	for {
		name, shutdown := p.queue.Get()
		if shutdown {
			<-stopped
			return
		}
		if err := p.provision(name); err != nil && !apierrors.IsNotFound(err) {
			p.queue.AddRateLimited(name)
		} else {
			p.queue.Forget(name)
		}
		p.queue.Done(name)
	}
}

// provision makes a folder, a volume of it, and binds the claim to that.
func (p *provisioner) provision(name cache.ObjectName) error {
	core, ctx := p.k.client.CoreV1(), p.k.ctx
	claim, err := core.PersistentVolumeClaims(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil || claim.Status.Phase == corev1.ClaimBound || claim.DeletionTimestamp != nil {
		return err
	}
	if err := p.classExists(claim); err != nil {
		return err
	}
	dir := p.dir(claim)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	volume, err := core.PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: volumeName(claim)},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
			Capacity:                      claim.Spec.Resources.Requests,
			AccessModes:                   claim.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              class,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		volume, err = core.PersistentVolumes().Get(ctx, volumeName(claim), metav1.GetOptions{})
	}
	if err != nil {
		return err
	}
	return p.bind(claim, volume)
}

func (p *provisioner) bind(claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	core, ctx := p.k.client.CoreV1(), p.k.ctx
	volume.Status.Phase = corev1.VolumeBound
	if _, err := core.PersistentVolumes().UpdateStatus(ctx, volume, metav1.UpdateOptions{}); err != nil {
		return err
	}
	claim.Spec.VolumeName = volume.Name
	delete(claim.Annotations, provisionFailed)
	claim, err := core.PersistentVolumeClaims(claim.Namespace).Update(ctx, claim, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	claim.Status.Phase, claim.Status.AccessModes, claim.Status.Capacity = corev1.ClaimBound, claim.Spec.AccessModes, claim.Spec.Resources.Requests
	_, err = core.PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// classExists refuses a claim whose storage class isn't there, until it is.
func (p *provisioner) classExists(claim *corev1.PersistentVolumeClaim) error {
	if claim.Spec.StorageClassName == nil || *claim.Spec.StorageClassName == "" {
		return nil
	}
	_, err := p.k.client.StorageV1().StorageClasses().Get(p.k.ctx, *claim.Spec.StorageClassName, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	message := fmt.Sprintf("storageclass.storage.k8s.io %q not found", *claim.Spec.StorageClassName)
	if claim.Annotations[provisionFailed] == "" {
		metav1.SetMetaDataAnnotation(&claim.ObjectMeta, provisionFailed, message)
		if _, err := p.k.client.CoreV1().PersistentVolumeClaims(claim.Namespace).Update(p.k.ctx, claim, metav1.UpdateOptions{}); err != nil {
			return err
		}
		p.k.recorder.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", message)
	}
	return fmt.Errorf("claim %s: %s", claim.Name, message)
}

func (p *provisioner) remove(claim *corev1.PersistentVolumeClaim) {
	err := p.k.client.CoreV1().PersistentVolumes().Delete(p.k.ctx, volumeName(claim), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) && p.k.ctx.Err() == nil {
		p.k.recorder.Event(claim, corev1.EventTypeWarning, "VolumeFailedDelete", err.Error())
	}
	_ = os.RemoveAll(p.dir(claim)) // below the kubelet's folder, which goes as a whole
}

func volumeName(claim *corev1.PersistentVolumeClaim) string { return "pvc-" + string(claim.UID) }

func (p *provisioner) dir(claim *corev1.PersistentVolumeClaim) string {
	return filepath.Join(p.k.dir, "claims", string(claim.UID))
}

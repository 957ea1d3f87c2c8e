package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// ErrNotRunning says that a container that was named has no process.
var ErrNotRunning = errors.New("the container isn't running")

// Kubelet runs the Pods of its nodes.
type Kubelet struct {
	client      kubernetes.Interface
	informers   informers.SharedInformerFactory
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
	addresses   *block
	dir         string

	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	images  map[string]Image
	nodes   map[string]*gate // by name: those added and not deleted
	workers map[types.UID]*worker
	cut     map[string]bool // namespaces whose Pods get no grace
}

// New makes a kubelet that keeps its files below dir. It does nothing before Start.
func New(client kubernetes.Interface, dir string) (*Kubelet, error) {
	addresses, err := reserve()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	return &Kubelet{
		client:      client,
		informers:   informers.NewSharedInformerFactory(client, 0),
		broadcaster: broadcaster,
		recorder:    broadcaster.NewRecorder(clientgoscheme.Scheme, corev1.EventSource{Component: "kubelet"}),
		addresses:   addresses,
		dir:         dir,
		ctx:         ctx, cancel: cancel,
		images:  map[string]Image{},
		nodes:   map[string]*gate{},
		workers: map[types.UID]*worker{},
		cut:     map[string]bool{},
	}, nil
}

// Start watches the API server and begins to work.
func (k *Kubelet) Start() error {
	k.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: k.client.CoreV1().Events("")})
	core := k.informers.Core().V1()
	scheduler, provisioner := newScheduler(k), newProvisioner(k)
	watched := []struct {
		informer cache.SharedIndexInformer
		handlers []cache.ResourceEventHandler
	}{
		{core.Pods().Informer(), []cache.ResourceEventHandler{k.podHandler(), scheduler.handler()}},
		{core.Nodes().Informer(), []cache.ResourceEventHandler{k.nodeHandler(), scheduler.handler()}},
		{core.PersistentVolumeClaims().Informer(), []cache.ResourceEventHandler{provisioner.handler(), scheduler.handler()}},
	}
	for _, w := range watched {
		for _, handler := range w.handlers {
			if _, err := w.informer.AddEventHandler(handler); err != nil {
				return err
			}
		}
	}
	k.informers.Start(k.ctx.Done())
	for kind, synced := range k.informers.WaitForCacheSync(k.ctx.Done()) {
		if !synced {
			return fmt.Errorf("kubelet: can't watch %s", kind)
		}
	}
	k.running.Go(scheduler.run)
	k.running.Go(provisioner.run)
	return nil
}

// Stop ends every process and returns when all of it is over. It may be called twice.
func (k *Kubelet) Stop() {
	k.cancel()
	k.running.Wait()
	k.informers.Shutdown()
	k.broadcaster.Shutdown()
	k.addresses.release()
}

// HostIP is the address of every node, for what a test serves to Pods.
func (k *Kubelet) HostIP() string { return k.addresses.host() }

// SetImage says what containers of the image name run from now on. A container that
// waits for an image that was unknown finds it at its next try.
func (k *Kubelet) SetImage(name string, image Image) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.images[name] = image
}

func (k *Kubelet) image(name string) (Image, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	image, ok := k.images[name]
	return image, ok
}

// CutGrace makes the Pods of a namespace end without grace, as those of a test do that
// is over.
func (k *Kubelet) CutGrace(namespace string) {
	k.mu.Lock()
	k.cut[namespace] = true
	workers := k.ofNamespace(namespace)
	k.mu.Unlock()
	for _, w := range workers {
		w.post(func() {}) // looks again
	}
}

// Running counts the Pods of a namespace that still have something here.
func (k *Kubelet) Running(namespace string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.ofNamespace(namespace))
}

// ofNamespace is called with mu held.
func (k *Kubelet) ofNamespace(namespace string) []*worker {
	var found []*worker
	for _, w := range k.workers {
		if w.key.Namespace == namespace {
			found = append(found, w)
		}
	}
	return found
}

// OOM kills a container's processes as the kernel does when its memory limit is
// reached: the container ends with code 137 and reason OOMKilled.
func (k *Kubelet) OOM(namespace, pod, container string) error {
	return k.withProcess(namespace, pod, container, func(w *worker, c *containerRun) {
		c.oom = true
		c.process.kill(syscall.SIGKILL)
		w.nodeEvent("OOMKilling", fmt.Sprintf("Memory cgroup out of memory: Killed process %d (%s)", c.process.cmd.Process.Pid, container))
	})
}

// Kill signals a container's processes, as anything in the container or on its node
// could.
func (k *Kubelet) Kill(namespace, pod, container string, signal syscall.Signal) error {
	return k.withProcess(namespace, pod, container, func(_ *worker, c *containerRun) { c.process.kill(signal) })
}

// withProcess calls do with a running container, in the goroutine that owns it.
func (k *Kubelet) withProcess(namespace, pod, container string, do func(*worker, *containerRun)) error {
	k.mu.Lock()
	var found *worker
	for _, w := range k.ofNamespace(namespace) {
		if w.key.Name == pod {
			found = w
		}
	}
	k.mu.Unlock()
	if found == nil {
		return fmt.Errorf("pod %s/%s: %w", namespace, pod, ErrNotRunning)
	}
	answer := make(chan error, 1)
	found.post(func() {
		c := found.container(container)
		if c == nil || c.process == nil || !c.process.running() {
			answer <- fmt.Errorf("container %s of pod %s/%s: %w", container, namespace, pod, ErrNotRunning)
			return
		}
		do(found, c)
		answer <- nil
	})
	select {
	case err := <-answer:
		return err
	case <-found.done:
		return fmt.Errorf("pod %s/%s: %w", namespace, pod, ErrNotRunning)
	}
}

// Log is what a container has written, all its restarts together.
func (k *Kubelet) Log(uid types.UID, container string) (string, error) {
	text, err := os.ReadFile(logFile(k.podDir(uid), container))
	return string(text), err
}

func (k *Kubelet) podDir(uid types.UID) string { return filepath.Join(k.dir, "pods", string(uid)) }

func logFile(podDir, container string) string {
	return filepath.Join(podDir, "logs", container+".log")
}

// asPod is what an informer of Pods hands over.
func asPod(obj any) *corev1.Pod {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		panic(fmt.Sprintf("an informer of Pods gives a %T", obj))
	}
	return pod
}

// podHandler starts a worker for each Pod that is bound to one of the nodes, and tells
// it what becomes of its Pod.
func (k *Kubelet) podHandler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { k.podSeen(asPod(obj)) },
		UpdateFunc: func(_, obj any) { k.podSeen(asPod(obj)) },
		DeleteFunc: func(obj any) {
			if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = gone.Obj
			}
			if pod, ok := obj.(*corev1.Pod); ok {
				k.podGone(pod.UID)
			}
		},
	}
}

func (k *Kubelet) podSeen(pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.workers[pod.UID]
	if w == nil {
		node := k.nodes[pod.Spec.NodeName]
		over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
		if node == nil || over && pod.DeletionTimestamp == nil || k.ctx.Err() != nil {
			return
		}
		w = newWorker(k, pod, node)
		k.workers[pod.UID] = w
		k.running.Go(func() {
			w.run()
			k.mu.Lock()
			delete(k.workers, pod.UID)
			k.mu.Unlock()
		})
	}
	w.update(pod)
}

func (k *Kubelet) podGone(uid types.UID) {
	k.mu.Lock()
	w := k.workers[uid]
	k.mu.Unlock()
	if w != nil {
		w.cancel()
	}
}

func (k *Kubelet) graceless(namespace string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.cut[namespace]
}

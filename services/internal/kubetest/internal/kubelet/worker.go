package kubelet

import (
	"context"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// again is how soon what failed for want of something is tried again.
const again = 50 * time.Millisecond

// worker is one Pod's life on a node. Everything but its inbox belongs to the goroutine
// of run; what other goroutines learn (an exit, a probe's result) they post to it.
type worker struct {
	k        *Kubelet
	key      types.NamespacedName
	uid      types.UID
	nodeName string
	gate     *gate
	dir      string

	ctx    context.Context
	cancel context.CancelFunc // the Pod is gone, or its node, or the kubelet
	inbox  chan func()
	done   chan struct{} // closed when nothing of the Pod is left here

	latest          atomic.Pointer[corev1.Pod] // as the informer has it
	pod             *corev1.Pod                // as of the last look
	podIP, loopback string
	mounts          map[string]string // real folders by volume's name
	tokens          []token
	init, main      []*containerRun
	initialized     bool
	over            bool // ended by itself; its containers don't start again
	ending          ending
	wake            time.Time // when to look again although nothing happened
	started         time.Time
	reported        string // the status that the API server has
}

func newWorker(k *Kubelet, pod *corev1.Pod, gate *gate) *worker {
	w := &worker{
		k: k, key: types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, uid: pod.UID,
		nodeName: pod.Spec.NodeName, gate: gate, dir: k.podDir(pod.UID),
		inbox: make(chan func(), 64), done: make(chan struct{}),
		pod: pod, started: time.Now(),
	}
	w.latest.Store(pod)
	w.ctx, w.cancel = context.WithCancel(k.ctx)
	for i := range pod.Spec.InitContainers {
		w.init = append(w.init, newContainerRun(&pod.Spec.InitContainers[i], true))
	}
	for i := range pod.Spec.Containers {
		w.main = append(w.main, newContainerRun(&pod.Spec.Containers[i], false))
	}
	return w
}

// post has do called in the worker's goroutine, unless the worker has ended.
func (w *worker) post(do func()) {
	select {
	case w.inbox <- do:
	case <-w.done:
	case <-w.ctx.Done():
	}
}

// update tells the worker what its Pod looks like now. It doesn't block: it is called
// by the informer, for every Pod. With a full inbox the worker is about to look anyway.
func (w *worker) update(pod *corev1.Pod) {
	w.latest.Store(pod)
	select {
	case w.inbox <- func() {}:
	default:
	}
}

// run is the Pod's life: after everything that happens it brings about what should be,
// and reports what is.
func (w *worker) run() {
	defer close(w.done)
	defer w.cleanUp()
	for {
		if !w.hold() {
			return
		}
		w.pod, w.wake = w.latest.Load(), time.Time{}
		gone := w.sync()
		w.report()
		if gone && w.finish() {
			return
		}
		if !w.next() {
			return
		}
	}
}

// hold does nothing while the node is paused but what a test asks for. It returns false
// when there is nothing more to do.
func (w *worker) hold() bool {
	for {
		open := w.gate.opened()
		select {
		case <-open:
			return w.ctx.Err() == nil
		default:
		}
		select {
		case <-open:
		case do := <-w.inbox:
			do()
		case <-w.ctx.Done():
			return false
		}
	}
}

// next waits for something to happen and takes all of it in.
func (w *worker) next() bool {
	var alarm <-chan time.Time
	if !w.wake.IsZero() {
		timer := time.NewTimer(time.Until(w.wake))
		defer timer.Stop()
		alarm = timer.C
	}
	select {
	case do := <-w.inbox:
		do()
	case <-alarm:
	case <-w.ctx.Done():
		return false
	}
	for {
		select {
		case do := <-w.inbox:
			do()
		default:
			return true
		}
	}
}

// wakeAt makes the worker look again at t at the latest.
func (w *worker) wakeAt(t time.Time) {
	if w.wake.IsZero() || t.Before(w.wake) {
		w.wake = t
	}
}

// sync brings about what should be, as far as that goes now. It returns true when the
// Pod is being deleted and nothing of it runs any more.
func (w *worker) sync() bool {
	if w.pod.DeletionTimestamp != nil {
		return w.end()
	}
	if w.over {
		w.end()
		return false
	}
	if !w.prepare() {
		w.wakeAt(time.Now().Add(again))
		return false
	}
	w.renewTokens()
	if !w.initialize() {
		return false
	}
	for _, c := range w.main {
		w.keep(c)
	}
	w.over = w.terminal()
	if w.over {
		w.end()
	}
	return false
}

// prepare gives the Pod its addresses and volumes, once.
func (w *worker) prepare() bool {
	if w.mounts != nil {
		return true
	}
	if w.podIP == "" {
		pod, loopback, err := w.k.addresses.pair()
		if err != nil {
			w.event("FailedCreatePodSandBox", err.Error())
			return false
		}
		w.podIP, w.loopback = pod, loopback
	}
	if err := w.makeVolumes(); err != nil {
		w.event("FailedMount", err.Error())
		return false
	}
	return true
}

// initialize runs the init containers in their order and keeps sidecars running. It
// returns true when the containers may start; once they may, they always may.
func (w *worker) initialize() bool {
	for _, c := range w.init {
		if c.sidecar {
			w.keep(c)
			if !c.started && !w.initialized {
				return false
			}
			continue
		}
		if w.initialized || c.succeeded() {
			continue
		}
		w.keep(c)
		if c.succeeded() {
			continue
		}
		if c.stopped() && !w.restarts(c) {
			w.over = true
			w.end()
		}
		return false
	}
	w.initialized = true
	return true
}

// restarts says whether a container that has stopped is started again.
func (w *worker) restarts(c *containerRun) bool {
	switch {
	case c.sidecar:
		return true
	case w.pod.Spec.RestartPolicy == corev1.RestartPolicyNever:
		return false
	case w.pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure || c.init:
		return !c.succeeded()
	}
	return true
}

// terminal says whether every container has stopped for good.
func (w *worker) terminal() bool {
	for _, c := range w.main {
		if !c.stopped() || w.restarts(c) {
			return false
		}
	}
	return true
}

func (w *worker) container(name string) *containerRun {
	for _, c := range w.all() {
		if c.spec.Name == name {
			return c
		}
	}
	return nil
}

func (w *worker) all() []*containerRun {
	return append(append([]*containerRun(nil), w.init...), w.main...)
}

// finish deletes the Pod, whose processes have ended. It returns false when that has
// to be tried again.
func (w *worker) finish() bool {
	err := w.k.client.CoreV1().Pods(w.key.Namespace).Delete(w.ctx, w.key.Name, deleteNow(w.uid))
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return true
	}
	w.wakeAt(time.Now().Add(again))
	return false
}

// cleanUp leaves nothing of the Pod behind but its volume claims, and its logs.
func (w *worker) cleanUp() {
	w.cancel()
	for _, c := range w.all() {
		c.stopProbes()
		if c.process != nil {
			c.process.kill(syscall.SIGKILL)
			<-c.process.exited
		}
		c.probing.Wait()
	}
	_ = os.RemoveAll(w.volumesDir())
}

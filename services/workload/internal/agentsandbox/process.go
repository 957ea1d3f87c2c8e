package agentsandbox

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
)

const (
	// acquainted is how many incarnations' processes are kept, some 150 bytes each.
	acquainted = 1 << 14
	// askers ask warm Pods which process of sandboxd they have; whoever is asked has askFor to
	// answer. A warm one that doesn't is asked again when it is bound.
	askers = 2
	askFor = 2 * time.Second
)

// processes are those of sandboxd, by the incarnation. Warm Pods are asked as soon as
// they are ready, so that a session that gets one needn't.
type processes = lru.Cache[string, string]

// meet has a warm Pod that is ready asked.
func (d *Driver) meet(o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok || pod.Labels[agentsv1beta1.SandboxWarmPoolLabel] == "" || !podReady(pod) || d.processes.Contains(incarnationOf(pod)) {
		return
	}
	d.newcomers.Add(keyOf(pod))
}

// ask asks warm Pods, until Close.
func (d *Driver) ask() {
	for {
		key, shutdown := d.newcomers.Get()
		if shutdown {
			return
		}
		d.askOne(key)
		d.newcomers.Done(key)
	}
}

func (d *Driver) askOne(key types.NamespacedName) {
	pod := found[corev1.Pod](d.scopeOf(key.Namespace).pods, key)
	if pod == nil || !podReady(pod) {
		return
	}
	ctx, cancel := context.WithTimeout(d.ctx, askFor)
	defer cancel()
	process, err := driver.Process(ctx, addressOf(pod))
	if err != nil {
		d.cfg.Log.Debug("a warm Pod isn't known yet, and asked when it is bound", "pod", key.String(), "err", err)
		return
	}
	d.processes.Add(incarnationOf(pod), process)
}

// addressOf is where sandboxd is in a Pod.
func addressOf(pod *corev1.Pod) string {
	return "http://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(podtemplate.Port))
}

// Process implements driver.Prover.
func (d *Driver) Process(ctx context.Context, ref driver.Ref) (string, error) {
	at, err := d.Locate(ctx, ref)
	if err != nil {
		return "", err
	}
	if process, ok := d.processes.Get(at.PodUID); ok {
		return process, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	process, err := driver.Process(ctx, at.URL)
	if err != nil {
		return "", errors.Join(err, d.hopeless(ref))
	}
	return process, nil
}

// mistaken forgets the process of an incarnation whose bind was refused: sandboxd may have
// been started again, which the kubelet tells a moment later.
func (d *Driver) mistaken(incarnation string, err error) {
	if errors.Is(err, driver.ErrBindRefused) {
		d.processes.Remove(incarnation)
	}
}

// greeting has what changes in a scope's Pods seen by meet.
func (d *Driver) greeting() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{AddFunc: d.meet, UpdateFunc: func(_, o any) { d.meet(o) }}
}

package agentsandbox

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// watchNodes sees nodes cordoned, which is said before a drain, and silent: both stand
// nowhere but on them.
func (d *Driver) watchNodes(ctx context.Context) error {
	if !d.cfg.Nodes {
		return nil
	}
	d.nodeFactory = informers.NewSharedInformerFactoryWithOptions(d.kube, 0, informers.WithTransform(leanNode))
	d.nodes = d.nodeFactory.Core().V1().Nodes().Informer()
	changed := func(was, is any) {
		before, _ := was.(*corev1.Node)
		if node, ok := is.(*corev1.Node); ok && node.Spec.Unschedulable != (before != nil && before.Spec.Unschedulable) {
			d.left(node.Name)
		}
	}
	if _, err := d.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { changed(nil, o) },
		UpdateFunc: func(before, o any) { changed(before, o); d.ailed(before, o) },
		DeleteFunc: func(o any) { d.ailed(o, nil) },
	}); err != nil {
		return fmt.Errorf("watch nodes: %w", err)
	}
	d.nodeFactory.Start(d.ctx.Done())
	return d.synced(ctx, "nodes", d.nodes)
}

// leanNode keeps of a node its name, whether it takes Pods, and whether its kubelet is
// heard of: a node is large, and says something every few seconds.
func leanNode(o any) (any, error) {
	if node, ok := o.(*corev1.Node); ok {
		kept := &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable}}
		if ready := readyOf(node); ready != nil {
			kept.Status.Conditions = []corev1.NodeCondition{{Type: ready.Type, Status: ready.Status, Reason: ready.Reason, Message: ready.Message}}
		}
		kept.Name, kept.UID, kept.ResourceVersion = node.Name, node.UID, node.ResourceVersion
		return kept, nil
	}
	return o, nil
}

// left judges what runs on a node that is to be left, or isn't any more.
func (d *Driver) left(node string) {
	for _, s := range d.scopes {
		for _, pod := range indexed[corev1.Pod](s.pods, byNode, node) {
			if key, ok := claimBehind(s, pod); ok {
				d.judge(d.sight(key))
			}
		}
	}
}

// cordoned says whether a node takes no more Pods.
func (d *Driver) cordoned(node string) bool {
	if d.nodes == nil || node == "" {
		return false
	}
	o, ok, err := d.nodes.GetStore().GetByKey(node)
	n, is := o.(*corev1.Node)
	return err == nil && ok && is && n.Spec.Unschedulable
}

func nodeIndex(o any) ([]string, error) {
	if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
		return []string{pod.Spec.NodeName}, nil
	}
	return nil, nil
}

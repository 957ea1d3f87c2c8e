package onenode

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Options are what a test may want besides.
type Options struct {
	// NetworkPolicies has them enforced.
	NetworkPolicies bool
	// GVisor adds gVisor beside runc, and the RuntimeClass GVisor.
	GVisor bool
}

// Node is a running cluster.
type Node struct {
	layout
	// Config is an administrator's, and Kubeconfig the same as a file.
	Config     *rest.Config
	Kubeconfig string
	// Client reads and writes as that administrator.
	Client client.WithWatch
	// ReadyAfter is what the node took from the first program's start until it was ready.
	ReadyAfter time.Duration

	options Options
	ca      *authority
	running []*process
	loops   *loops
}

// Start starts a cluster and waits until its node is ready. An error leaves nothing
// running.
func Start(ctx context.Context, o Options) (*Node, error) {
	l, err := newLayout()
	if err != nil {
		return nil, err
	}
	n := &Node{layout: l, options: o, loops: newLoops()}
	if err := n.start(ctx); err != nil {
		n.Stop()
		return nil, err
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) (err error) {
	if err := n.connect(ctx); err != nil {
		return err
	}
	if n.ca, err = newAuthority(n.layout); err != nil {
		return err
	}
	if err := n.ca.issueAll(); err != nil {
		return err
	}
	n.Kubeconfig = n.ca.kubeconfigFile("admin")
	if n.Config, err = clientcmd.BuildConfigFromFlags("", n.Kubeconfig); err != nil {
		return err
	}
	n.Config.QPS = -1
	began := time.Now()
	for _, part := range []func(context.Context) error{
		n.startContainerd, n.startEtcd, n.startAPIServer, n.startControllers, n.startScheduler, n.startNames, n.startVolumes,
		n.loadPause, n.startKubelet, n.startProxy, n.ready,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	n.ReadyAfter = time.Since(began)
	if n.options.GVisor {
		if err := n.nameGVisor(ctx); err != nil {
			return err
		}
	}
	if n.options.NetworkPolicies {
		return n.enforce(ctx)
	}
	return nil
}

// connect gives the node its address. There is no other machine: the far end of the
// pair of devices is nobody's, but a node wants a device and a default route.
func (n *Node) connect(ctx context.Context) error {
	for _, args := range [][]string{
		{"link", "set", "lo", "up"},
		{"link", "add", "node0", "type", "veth", "peer", "name", "node1"},
		{"link", "set", "node1", "up"},
		{"addr", "add", NodeIP + "/24", "dev", "node0"},
		{"link", "set", "node0", "up"},
		{"route", "add", "default", "via", "10.245.0.254"},
	} {
		if err := run(ctx, "ip", args...); err != nil {
			return fmt.Errorf("the node's network: %w", err)
		}
	}
	return run(ctx, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
}

// run runs a program of the machine to its end.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}

// launch starts a part, which is stopped with the node.
func (n *Node) launch(name string, args ...string) (*process, error) {
	p, err := n.spawn(name, nil, args...)
	if err == nil {
		n.running = append(n.running, p)
	}
	return p, err
}

// ready waits until the node takes Pods, and Pods a service account.
func (n *Node) ready(ctx context.Context) error {
	kubelet := n.running[slices.IndexFunc(n.running, func(p *process) bool { return p.name == "kubelet" })]
	return kubelet.await(ctx, func(ctx context.Context) error {
		var node corev1.Node
		if err := n.Client.Get(ctx, client.ObjectKey{Name: NodeName}, &node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
				return fmt.Errorf("the node isn't ready: %s", c.Message)
			}
		}
		if len(node.Spec.Taints) > 0 {
			return fmt.Errorf("the node is tainted: %v", node.Spec.Taints)
		}
		return n.Client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "default"}, &corev1.ServiceAccount{})
	})
}

// Stop deletes nothing: it ends the parts, last started first. Pods are processes of
// the namespace, and end with it.
func (n *Node) Stop() {
	n.loops.stop()
	for _, p := range slices.Backward(n.running) {
		p.stop()
	}
	n.running = nil
}

// Failures are the parts that ended though nobody stopped them.
func (n *Node) Failures() error {
	var all []error
	for _, p := range n.running {
		select {
		case <-p.ended:
			all = append(all, p.failure(p.err))
		default:
		}
	}
	return errors.Join(all...)
}

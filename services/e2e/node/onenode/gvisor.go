package onenode

import (
	"context"
	"fmt"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GVisor is the RuntimeClass of gVisor, and the name of its handler.
const GVisor = "gvisor"

// gvisorRuntime is what containerd's configuration says of gVisor: nothing where nobody
// wants it. Its platform is the one that needs neither a virtual machine's help nor
// another right of the kernel.
func (n *Node) gvisorRuntime() (string, error) {
	if !n.options.GVisor {
		return "", nil
	}
	config, err := n.write("runsc.toml", fmt.Sprintf(`binary_name = '%s'
root = '%s'
[runsc_config]
  platform = 'systrap'
`, n.part("runsc"), n.path("runsc")))
	if err != nil {
		return "", err
	}
	return fmt.Sprintf(`[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.%s]
  runtime_type = 'io.containerd.runsc.v1'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.%[1]s.options]
  TypeUrl = 'io.containerd.runsc.v1.options'
  ConfigPath = '%s'
`, GVisor, config), nil
}

// nameGVisor makes the RuntimeClass by which Pods ask for it.
func (n *Node) nameGVisor(ctx context.Context) error {
	return n.Client.Create(ctx, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: GVisor}, Handler: GVisor})
}

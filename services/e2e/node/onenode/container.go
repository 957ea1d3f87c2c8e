package onenode

import (
	"context"
	"fmt"
	"os/exec"
)

func (n *Node) containerdSocket() string { return n.path("containerd", "containerd.sock") }

// startContainerd runs containerd on folders of its own. A root without
// CAP_SYS_RESOURCE can't lower a process's OOM score, hence restrict_oom_score_adj.
func (n *Node) startContainerd(ctx context.Context) error {
	gvisor, err := n.gvisorRuntime()
	if err != nil {
		return err
	}
	config, err := n.write("containerd.toml", fmt.Sprintf(`version = 3
root = '%[1]s/containerd/root'
state = '%[1]s/containerd/state'
disabled_plugins = ['io.containerd.tracing.processor.v1.otlp', 'io.containerd.internal.v1.tracing']
[grpc]
  address = '%[2]s'
[plugins.'io.containerd.nri.v1.nri']
  disable = %[6]t
  plugin_path = '%[1]s/nri'
  plugin_config_path = '%[1]s/nri'
[plugins.'io.containerd.internal.v1.opt']
  path = '%[1]s/containerd/opt'
[plugins.'io.containerd.cri.v1.images']
  snapshotter = 'overlayfs'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '%[3]s'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['%[4]s/cni']
  conf_dir = '%[1]s/cni'
[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = 'runc'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  BinaryName = '%[4]s/runc'
  SystemdCgroup = false
%[5]s`, n.root, n.containerdSocket(), pauseImage, n.parts, gvisor, !n.options.NetworkPolicies))
	if err != nil {
		return err
	}
	if err := n.writeCNI(); err != nil {
		return err
	}
	p, err := n.launch("containerd", "--config", config)
	if err != nil {
		return err
	}
	return p.await(ctx, func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, n.part("ctr"), "--address", n.containerdSocket(), "version").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// writeCNI is the Pods' network: one bridge. Nothing is masqueraded, since nothing is
// beyond the node.
func (n *Node) writeCNI() error {
	return writeFile(n.path("cni", "10-pods.conflist"), fmt.Sprintf(`{
  "cniVersion": "1.0.0", "name": "pods", "plugins": [{
    "type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": false, "hairpinMode": true,
    "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}`, bridge, n.path("cni", "addresses"), PodRange))
}

// loadPause makes the image that every Pod's namespaces are held by.
func (n *Node) loadPause(ctx context.Context) error {
	return n.Load(ctx, Image{Name: pauseImage, Shell: true, Entrypoint: []string{"/bin/sleep", "2147483647"}})
}

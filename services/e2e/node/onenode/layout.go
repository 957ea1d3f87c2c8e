package onenode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// What the environment of scripts/node.sh says.
const (
	// EnvParts names a folder with the programs of a cluster.
	EnvParts = "HOLDFAST_NODE_PARTS"
	// EnvRoot names an empty folder, on a file system that overlayfs can stand on.
	EnvRoot = "HOLDFAST_NODE_ROOT"
)

// Addresses of the cluster; nobody else shares its network.
const (
	NodeName    = "node"
	NodeIP      = "10.245.0.1"
	PodRange    = "10.244.0.0/24"
	serviceNet  = "10.96.0.0/16"
	apiService  = "10.96.0.1" // of `kubernetes`: the first of serviceNet
	apiPort     = "6443"
	domain      = "cluster.local"
	bridge      = "pods0"
	etcdURL     = "http://127.0.0.1:2379"
	pauseImage  = "localhost/pause:local"
	containerNS = "k8s.io" // where containerd keeps what a kubelet sees
)

// CgroupRoot is where the Pods' control groups are, in every hierarchy.
const CgroupRoot = "/holdfast-node"

// StorageClass is the cluster's default one.
const StorageClass = "node"

// ErrUnprepared is wrapped where scripts/node.sh did not prepare what a cluster needs.
var ErrUnprepared = errors.New("no place for a cluster: run make test-node")

// layout is where everything is.
type layout struct {
	parts string
	root  string
}

func newLayout() (layout, error) {
	l := layout{parts: os.Getenv(EnvParts), root: os.Getenv(EnvRoot)}
	if l.parts == "" || l.root == "" {
		return l, fmt.Errorf("%w (%s and %s aren't set)", ErrUnprepared, EnvParts, EnvRoot)
	}
	for _, dir := range []string{"pki", "log", "conf", "cni", "volumes", "etcd", "kubelet", "containerd", "images"} {
		if err := os.MkdirAll(l.path(dir), 0o755); err != nil {
			return l, err
		}
	}
	return l, nil
}

func (l layout) path(elem ...string) string {
	return filepath.Join(append([]string{l.root}, elem...)...)
}
func (l layout) part(name string) string { return filepath.Join(l.parts, name) }

// write puts a file of configuration where its part finds it.
func (l layout) write(name, content string) (string, error) {
	path := l.path("conf", name)
	return path, os.WriteFile(path, []byte(content), 0o600)
}

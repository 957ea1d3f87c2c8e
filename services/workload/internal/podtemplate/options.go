package podtemplate

import (
	"cmp"
	"crypto/ed25519"
	"errors"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Options are what an installation says of all its Pods.
type Options struct {
	// Image is Holdfast's own, with sandboxd; required. PullPolicy is its policy; empty
	// is Kubernetes' default.
	Image      string
	PullPolicy corev1.PullPolicy
	// PullSecrets name Secrets that a kubelet pulls images with. No container sees them.
	PullSecrets []string
	// BindKey verifies binds: the public half of the workload service's; required.
	BindKey ed25519.PublicKey
	// Callers are let in to sandboxd's port: gateway, runner and workload; required.
	Callers []networkingv1.NetworkPolicyPeer
	// Agents are all that can be reached from inside, at AgentsPort: the gateway's
	// listener for agents; both required.
	Agents     []networkingv1.NetworkPolicyPeer
	AgentsPort int32
	// RuntimeClasses are those that a runtime may name, with the isolation that each
	// gives, such as "gvisor": {"gvisor": "gvisor"}. The cluster's default gives
	// DefaultIsolation, which is IsolationContainer where it is empty.
	RuntimeClasses   map[string]string
	DefaultIsolation string
	// ServiceAccount of Pods that name none; empty is the namespace's default. It needs
	// no rights.
	ServiceAccount string
	// StorageClass and VolumeSize of a workspace that says none; an empty class is the
	// cluster's default, an empty size DefaultVolumeSize.
	StorageClass string
	VolumeSize   string
	// Sidecar is what sandboxd may use; a zero one is a tenth of a core and 64Mi, up to
	// 256Mi.
	Sidecar corev1.ResourceRequirements
	// Labels are put on every Pod.
	Labels map[string]string
}

// IsolationContainer is the isolation of a Pod of an ordinary runtime class: the
// node's kernel, shared.
const IsolationContainer = "container"

// DefaultVolumeSize is the size of a workspace where neither runtime nor installation
// says one: a volume can't be asked for without.
const DefaultVolumeSize = "1Gi"

// validate names what is missing.
func (o Options) validate() error {
	switch {
	case o.Image == "":
		return errors.New("podtemplate: Options.Image is required")
	case len(o.BindKey) != ed25519.PublicKeySize:
		return errors.New("podtemplate: Options.BindKey is required")
	case len(o.Callers) == 0:
		return errors.New("podtemplate: Options.Callers is required: nobody could reach a sandbox")
	case len(o.Agents) == 0 || o.AgentsPort < 1 || o.AgentsPort > 65535:
		return errors.New("podtemplate: Options.Agents and AgentsPort are required: no sandbox could be bound")
	}
	if _, err := resource.ParseQuantity(o.volumeSize()); err != nil {
		return errors.New("podtemplate: Options.VolumeSize is no quantity")
	}
	return nil
}

func (o Options) volumeSize() string { return cmp.Or(o.VolumeSize, DefaultVolumeSize) }

// Isolation is what a runtime class gives, and whether a runtime may name it.
func (o Options) Isolation(class string) (grade string, known bool) {
	if class == "" {
		return cmp.Or(o.DefaultIsolation, IsolationContainer), true
	}
	grade, known = o.RuntimeClasses[class]
	return grade, known
}

func (o Options) sidecarResources() corev1.ResourceRequirements {
	if len(o.Sidecar.Limits) > 0 || len(o.Sidecar.Requests) > 0 {
		return o.Sidecar
	}
	return corev1.ResourceRequirements{
		Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
		},
		Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
	}
}

// Package clusterfile reads what an installation on Kubernetes says of itself: the file
// that the chart makes (deploy/chart/templates/cluster.yaml) for the workload service and
// for `holdfast doctor --kube`. It holds no secret.
//
//	namespace: holdfast-system
//	instance: holdfast
//	agentsURL: http://holdfast-agents.holdfast-system:7071
//	image: holdfast:local
//	tenants: {default: holdfast-default}
//	runtimeClasses: {gvisor: gvisor}
package clusterfile

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/events"
)

// EnvFile names the environment variable with the file's path.
const EnvFile = "HOLDFAST_CLUSTER_FILE"

// ErrInvalid is wrapped by every error that says what is wrong with a file.
var ErrInvalid = errors.New("invalid cluster file")

// ClusterDefault stands in Verified for Pods that name no runtime class.
const ClusterDefault = "default"

// File is what it says.
type File struct {
	// Namespace is where Holdfast's own services are, and Instance the value of their
	// label app.kubernetes.io/instance. Network policies of sandboxes let them in.
	Namespace string `json:"namespace"`
	Instance  string `json:"instance"`
	// AgentsURL is the Service of the gateways' listener for agents. Its name is for who
	// reads the file: sandboxes resolve none and are told the address.
	AgentsURL string `json:"agentsURL"`
	// APIURL is the Service of the gateways' API, which no sandbox may reach.
	APIURL string `json:"apiURL"`
	// Image is Holdfast's own, whose sandboxd is in each sandbox; PullPolicy and
	// PullSecrets are for it.
	Image       string   `json:"image"`
	PullPolicy  string   `json:"pullPolicy,omitempty"`
	PullSecrets []string `json:"pullSecrets,omitempty"`
	// Tenants gives each tenant's namespace.
	Tenants map[string]string `json:"tenants"`
	// RuntimeClasses are those that runtimes may name, with the isolation that each
	// gives; DefaultIsolation is that of Pods that name none.
	RuntimeClasses   map[string]string `json:"runtimeClasses,omitempty"`
	DefaultIsolation string            `json:"defaultIsolation,omitempty"`
	// ServiceAccount is sandboxes', without any right; empty is the namespace's default.
	ServiceAccount string `json:"serviceAccount,omitempty"`
	// StorageClass and VolumeSize are of a workspace whose runtime says none.
	StorageClass string `json:"storageClass,omitempty"`
	VolumeSize   string `json:"volumeSize,omitempty"`
	// WatchNodes says that the workload service may see the cluster's nodes.
	WatchNodes bool `json:"watchNodes,omitempty"`
	// Verified are the runtime classes, ClusterDefault among them, whose isolation and
	// closed network `holdfast doctor --kube --probe` has proven here. Sessions of others
	// are shown as unverified.
	Verified []string `json:"verified,omitempty"`
}

// IsVerified says whether what isolates Pods of a runtime class, "" for none, was proven.
func (f File) IsVerified(runtimeClass string) bool {
	if runtimeClass == "" {
		runtimeClass = ClusterDefault
	}
	return slices.Contains(f.Verified, runtimeClass)
}

// Read reads a file and checks it. Errors wrap ErrInvalid, or are the file system's.
func Read(path string) (File, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return File{}, fmt.Errorf("cluster file: %w", err)
	}
	var f File
	if err := yaml.UnmarshalStrict(raw, &f); err != nil {
		return File{}, fmt.Errorf("%s: %w: %w", path, ErrInvalid, err)
	}
	if err := f.validate(); err != nil {
		return File{}, fmt.Errorf("%s: %w: %w", path, ErrInvalid, err)
	}
	return f, nil
}

// validate names the first thing that is wrong.
func (f File) validate() error {
	switch {
	case len(validation.IsDNS1123Label(f.Namespace)) > 0:
		return fmt.Errorf("namespace %q is no name of a namespace", f.Namespace)
	case f.Instance == "":
		return errors.New("instance is needed: nobody could be let in to a sandbox")
	case f.Image == "":
		return errors.New("image is needed")
	case len(f.Tenants) == 0:
		return errors.New("tenants are needed")
	}
	for name, address := range map[string]string{"agentsURL": f.AgentsURL, "apiURL": f.APIURL} {
		if u, err := url.Parse(address); err != nil || u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" {
			return fmt.Errorf("%s %q: write it as http://service.namespace:port", name, address)
		}
	}
	owner := map[string]string{f.Namespace: "Holdfast itself"}
	for tenant, namespace := range f.Tenants {
		if !events.ValidToken(tenant) {
			return fmt.Errorf("tenants: %q can't be a tenant's name", tenant)
		}
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return fmt.Errorf("tenants: %q is no name of a namespace", namespace)
		}
		if other, taken := owner[namespace]; taken {
			return fmt.Errorf("tenants: %s and %s can't share the namespace %s", other, tenant, namespace)
		}
		owner[namespace] = tenant
	}
	if f.VolumeSize != "" {
		if _, err := resource.ParseQuantity(f.VolumeSize); err != nil {
			return fmt.Errorf("volumeSize %q: write it as 5Gi", f.VolumeSize)
		}
	}
	return nil
}

package workload

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/clusterfile"
	"github.com/holdfast-io/holdfast/services/workload/internal/agentsandbox"
	"github.com/holdfast-io/holdfast/services/workload/internal/app"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
	"github.com/holdfast-io/holdfast/services/workload/internal/tokenreview"
)

// Kubernetes says where sandboxes run that are Pods of a cluster.
type Kubernetes struct {
	// Rest reaches the API server, as who may do what package kuberights says.
	Rest *rest.Config
	// Cluster is what the installation says of itself.
	Cluster clusterfile.File
	// AgentsURL is where a Pod reaches the gateways' agents listeners: the address of
	// Cluster.AgentsURL, "http://address:port". Pods resolve no names.
	AgentsURL string
	// Replica is the name of this one, and of no other.
	Replica string
}

// Unverified is before the isolation of a runtime class that nobody has proven here: see
// clusterfile.File.Verified.
const Unverified = "unverified:"

// validate names what is missing.
func (k Kubernetes) validate() error {
	if err := bind.CheckAgents(k.AgentsURL); err != nil {
		return fmt.Errorf("AgentsURL: %w: a sandbox resolves no names", err)
	}
	if k.Rest == nil || k.Replica == "" {
		return errors.New("Kubernetes needs Rest and Replica")
	}
	return nil
}

// pods is what the installation says of all Pods.
func (k Kubernetes) pods(key ed25519.PublicKey) *podtemplate.Options {
	f := k.Cluster
	o := &podtemplate.Options{
		Image: f.Image, PullPolicy: corev1.PullPolicy(f.PullPolicy), PullSecrets: f.PullSecrets, BindKey: key,
		Callers: f.Callers(), Agents: f.Agents(), AgentsPort: clusterfile.AgentsPort,
		RuntimeClasses: map[string]string{}, DefaultIsolation: f.DefaultIsolation,
		ServiceAccount: f.ServiceAccount, StorageClass: f.StorageClass, VolumeSize: f.VolumeSize,
	}
	if o.DefaultIsolation == "" {
		o.DefaultIsolation = podtemplate.IsolationContainer
	}
	if !f.IsVerified("") {
		o.DefaultIsolation = Unverified + o.DefaultIsolation
	}
	for class, grade := range f.RuntimeClasses {
		if !f.IsVerified(class) {
			grade = Unverified + grade
		}
		o.RuntimeClasses[class] = grade
	}
	return o
}

// reviewer asks the API server whose a token is.
func (k Kubernetes) reviewer() (app.Reviewer, error) {
	client, err := kubernetes.NewForConfig(k.Rest)
	if err != nil {
		return nil, err
	}
	return tokenreview.New(client.AuthenticationV1()), nil
}

// open starts the driver.
func (k Kubernetes) open(ctx context.Context, pods podtemplate.Options, log *slog.Logger) (*agentsandbox.Driver, error) {
	return agentsandbox.New(ctx, agentsandbox.Config{
		Rest: k.Rest, Namespace: func(tenant string) string { return k.Cluster.Tenants[tenant] },
		Namespaces: slices.Sorted(maps.Values(k.Cluster.Tenants)), Nodes: k.Cluster.WatchNodes, Template: pods, Log: log,
		Lease: &agentsandbox.Lease{Namespace: k.Cluster.Namespace, Group: k.Cluster.Instance + "-workload", Identity: k.Replica},
	})
}

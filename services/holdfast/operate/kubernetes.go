package operate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/internal/clusterfile"
	"github.com/holdfast-io/holdfast/services/workload"
)

// envPodName is the Pod's own name, by the downward API.
const envPodName = "HOLDFAST_POD_NAME"

// kubernetes is where the workload service's sandboxes are Pods; nil without a cluster
// file. The API server is KUBECONFIG's, or in a Pod that of its service account.
func (s served) kubernetes(ctx context.Context) (*workload.Kubernetes, error) {
	if s.clusterFile == "" {
		return nil, nil //nolint:nilnil // no cluster is no error: a host runs the sandboxes
	}
	file, err := clusterfile.Read(s.clusterFile)
	if err != nil {
		return nil, err
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rest, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the cluster's API server (KUBECONFIG, or a Pod's service account): %w", err)
	}
	agents := file.AgentsURL
	if len(s.agentsURL) > 0 {
		agents = s.agentsURL[0]
	}
	if len(s.agentsURL) > 1 {
		return nil, cli.Usage(errors.New("the workload service takes one --agents-url: that of the Service before all gateways"))
	}
	if agents, err = resolved(ctx, agents); err != nil {
		return nil, err
	}
	replica := os.Getenv(envPodName)
	if replica == "" { // not in a Pod: two on one machine would be one replica
		if replica, err = os.Hostname(); err != nil {
			return nil, err
		}
		replica = fmt.Sprintf("%s-%d", replica, os.Getpid())
	}
	return &workload.Kubernetes{Rest: rest, Cluster: file, AgentsURL: agents, Replica: replica}, nil
}

// resolved puts the address of a URL's host in its place: sandboxes resolve no names.
func resolved(ctx context.Context, at string) (string, error) {
	u, err := url.Parse(at)
	if err != nil {
		return "", fmt.Errorf("agents' URL: %w", err)
	}
	addresses, err := net.DefaultResolver.LookupIP(ctx, "ip", u.Hostname())
	if err != nil {
		return "", fmt.Errorf("agents' URL %s: %w", at, err)
	}
	u.Host = net.JoinHostPort(addresses[0].String(), u.Port())
	return u.String(), nil
}

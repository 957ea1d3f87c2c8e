package agentsandbox

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
)

// Config of a Driver.
type Config struct {
	// Rest reaches the cluster; required. Where it sets no limits, the driver's are far
	// above client-go's five requests a second: a claim takes three.
	Rest *rest.Config
	// Namespace is where a tenant's sandboxes are; required. Several tenants may share one.
	Namespace func(tenant string) string
	// Namespaces are those that Namespace gives: they are watched. None means all, which
	// takes the right to watch the whole cluster.
	Namespaces []string
	// Nodes has the driver watch nodes, to tell when one is cordoned. It takes the right
	// to watch them.
	Nodes bool
	// Lease is how replicas know of each other; nil where there is one alone.
	Lease *Lease
	// Template is what the installation says of all Pods; see there for what is required.
	Template podtemplate.Options
	Log      *slog.Logger
}

// Requests a second, and at once, where the configuration says nothing.
const (
	defaultQPS   = 200
	defaultBurst = 400
)

func (c Config) validate() error {
	if c.Rest == nil || c.Namespace == nil || c.Log == nil {
		return errors.New("agent-sandbox driver: Rest, Namespace and Log are required")
	}
	if l := c.Lease; l != nil && (l.Namespace == "" || l.Group == "" || l.Identity == "") {
		return errors.New("agent-sandbox driver: a lease needs Namespace, Group and Identity")
	}
	return nil
}

// rest is a copy of the configuration with limits.
func (c Config) rest() *rest.Config {
	r := rest.CopyConfig(c.Rest)
	if r.QPS == 0 {
		r.QPS, r.Burst = defaultQPS, defaultBurst
	}
	return r
}

// namespace is a tenant's, if it is watched.
func (c Config) namespace(tenant string) (string, error) {
	ns := c.Namespace(tenant)
	if ns == "" || len(c.Namespaces) > 0 && !slices.Contains(c.Namespaces, ns) {
		return "", fmt.Errorf("%w: namespace %q of tenant %q: name the tenant and its namespace in the cluster file", errNamespace, ns, tenant)
	}
	return ns, nil
}

package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	extensions "sigs.k8s.io/agent-sandbox/clients/k8s/extensions/clientset/versioned"

	"github.com/holdfast-io/holdfast/services/internal/clusterfile"
)

// oldestKubernetes is the first version whose native sidecars are there for good.
var oldestKubernetes = version.MustParseGeneric("1.33.0")

// The objects of agent-sandbox that Holdfast makes and watches, by their group, and the
// version that it speaks.
const sandboxVersion = "v1beta1"

var sandboxResources = map[string][]string{
	"agents.x-k8s.io":            {"sandboxes"},
	"extensions.agents.x-k8s.io": {"sandboxclaims", "sandboxtemplates", "sandboxwarmpools"},
}

// kube is a cluster that is looked at, as somebody.
type kube struct {
	// host is where the API server is.
	host      string
	core      kubernetes.Interface
	sandboxes extensions.Interface
	file      clusterfile.File
	// tenants are those whose namespaces are tried, all where it is empty.
	tenants []string
}

// callWithin bounds each call to the API server: one that can't be reached is to be said in
// seconds.
const callWithin = 5 * time.Second

// kubeFlags say which cluster, as whom, and whether to try it out.
type kubeFlags struct {
	on, probe bool
	as, file  string
	tenants   []string
}

// flags are those of the command.
func (f *kubeFlags) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.on, "kube", false, "look at Kubernetes instead of this machine")
	cmd.Flags().BoolVar(&f.probe, "probe", false, "with --kube: start a sandbox of each runtime class in each tenant's namespace and prove from inside that it is isolated and closed")
	cmd.Flags().StringSliceVar(&f.tenants, "tenant", nil, "with --probe: try the namespaces of these tenants alone; the default is all")
	cmd.Flags().StringVar(&f.as, "as", "", "with --kube: ask as this user, such as system:serviceaccount:NAMESPACE:NAME, which KUBECONFIG's has to be allowed")
	cmd.Flags().StringVar(&f.file, "cluster-file", "", "with --kube: what the installation says of itself; the default is "+clusterfile.EnvFile)
}

// check refuses flags that mean nothing without --kube.
func (f *kubeFlags) check() error {
	if !f.on && (f.probe || f.as != "" || f.file != "") {
		return errors.New("--probe, --as and --cluster-file are about Kubernetes: add --kube")
	}
	if len(f.tenants) > 0 && !f.probe {
		return errors.New("--tenant says where sandboxes are tried: add --probe")
	}
	return nil
}

// open connects by KUBECONFIG, ~/.kube/config or, in a Pod, its service account.
func (f *kubeFlags) open() (*kube, *Finding) {
	const name = "kube.installation"
	if f.file == "" {
		bad := broken(name, "no cluster file", "run it in the workload service's Pod, or name a copy of the ConfigMap's cluster.yaml with --cluster-file")
		return nil, &bad
	}
	file, err := clusterfile.Read(f.file)
	if err != nil {
		bad := broken(name, err.Error(), "correct the chart's values and run 'helm upgrade'")
		return nil, &bad
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		bad := broken("kube.api", err.Error(), "set KUBECONFIG, or run it in the workload service's Pod")
		return nil, &bad
	}
	for _, tenant := range f.tenants {
		if file.Tenants[tenant] == "" {
			bad := broken("kube.probe", fmt.Sprintf("there is no tenant %q", tenant), "name one of "+strings.Join(slices.Sorted(maps.Keys(file.Tenants)), ", "))
			return nil, &bad
		}
	}
	k, err := newKube(cfg, f.as, file)
	if err != nil {
		bad := broken("kube.api", err.Error(), "correct KUBECONFIG")
		return nil, &bad
	}
	k.tenants = f.tenants
	return k, nil
}

// newKube makes the clients; as may be empty.
func newKube(cfg *rest.Config, as string, file clusterfile.File) (*kube, error) {
	cfg = rest.CopyConfig(cfg)
	// It asks a hundred small questions, once.
	cfg.QPS, cfg.Burst, cfg.Timeout = 100, 200, callWithin
	cfg.Impersonate.UserName = cmp.Or(as, cfg.Impersonate.UserName)
	core, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	sandboxes, err := extensions.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return &kube{host: cfg.Host, core: core, sandboxes: sandboxes, file: file}, nil
}

// examineKube looks at a cluster, and with probe tries it out.
func examineKube(ctx context.Context, f *kubeFlags) []Finding {
	f.file = cmp.Or(f.file, os.Getenv(clusterfile.EnvFile))
	k, bad := f.open()
	if bad != nil {
		return []Finding{*bad}
	}
	return k.examine(ctx, f.probe)
}

// examine looks at a cluster within a minute; each sandbox that it tries has time of its
// own.
func (k *kube) examine(ctx context.Context, probe bool) []Finding {
	tries := ctx
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	api := k.api(ctx)
	if api.Grade == Broken {
		return []Finding{api}
	}
	found := append([]Finding{api}, k.served())
	found = append(found, k.rights(ctx)...)
	classes, controller := k.classes(ctx), k.controller(ctx)
	var quotas []Finding
	for _, tenant := range slices.Sorted(maps.Keys(k.file.Tenants)) {
		quotas = append(quotas, k.quota(ctx, tenant))
	}
	verdict := []Finding{k.unproven()}
	if probe {
		tried, started := k.probe(tries)
		verdict = tried
		classes, controller = k.bySandboxes(started, classes, controller)
	}
	found = append(append(found, classes, controller), quotas...)
	return append(found, verdict...)
}

// api looks at the API server, and at who is asking.
func (k *kube) api(ctx context.Context) Finding {
	const name = "kube.api"
	who, err := k.core.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return k.unanswered(name, err)
	}
	info, err := k.core.Discovery().ServerVersion()
	if err != nil {
		return k.unanswered(name, err)
	}
	at, err := version.ParseGeneric(info.GitVersion)
	if err != nil || at.LessThan(oldestKubernetes) {
		return broken(name, "Kubernetes "+info.GitVersion, "upgrade it to "+oldestKubernetes.String()+" or newer: sandboxd is a native sidecar")
	}
	return fine(name, "Kubernetes %s, asked by %s", info.GitVersion, who.Status.UserInfo.Username)
}

// unanswered is what came of a call that the API server didn't answer, or answered with no.
func (k *kube) unanswered(name string, err error) Finding {
	_, answered := errors.AsType[*apierrors.StatusError](err)
	switch {
	case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err):
		return broken(name, err.Error(), "correct KUBECONFIG, or --as where somebody else is to be asked about")
	case answered:
		return broken(name, err.Error(), "look at the API server")
	}
	return broken(name, fmt.Sprintf("%s doesn't answer: %v", k.host, err),
		"see that the API server runs there and can be reached from here (KUBECONFIG's server, network policies, a proxy)")
}

// served looks at agent-sandbox's definitions and their versions.
func (k *kube) served() Finding {
	const name, wayOut = "kube.agent-sandbox", "install agent-sandbox v0.5.6 with its extensions (docs/kubernetes.md)"
	for _, group := range slices.Sorted(maps.Keys(sandboxResources)) {
		list, err := k.core.Discovery().ServerResourcesForGroupVersion(group + "/" + sandboxVersion)
		if apierrors.IsNotFound(err) {
			return broken(name, group+"/"+sandboxVersion+" isn't served"+k.others(group), wayOut)
		}
		if err != nil {
			return k.unanswered(name, err)
		}
		for _, wanted := range sandboxResources[group] {
			if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == wanted }) {
				return broken(name, fmt.Sprintf("%s/%s has no %s", group, sandboxVersion, wanted), wayOut)
			}
		}
	}
	return fine(name, "sandboxes, claims, templates and pools in %s", sandboxVersion)
}

// others are the versions that a group is served in instead.
func (k *kube) others(group string) string {
	groups, err := k.core.Discovery().ServerGroups()
	if err != nil {
		return ""
	}
	for _, g := range groups.Groups {
		if g.Name != group {
			continue
		}
		versions := make([]string, len(g.Versions))
		for i, v := range g.Versions {
			versions[i] = v.Version
		}
		return ", but " + strings.Join(versions, ", ")
	}
	return ""
}

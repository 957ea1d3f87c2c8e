package kube_test

import (
	"context"
	"crypto/ed25519"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	sandboxclient "sigs.k8s.io/agent-sandbox/clients/k8s/clientset/versioned"
	extclient "sigs.k8s.io/agent-sandbox/clients/k8s/extensions/clientset/versioned"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/parts"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/clusterfile"
	"github.com/holdfast-io/holdfast/services/internal/install"
	"github.com/holdfast-io/holdfast/services/internal/keyfile"
	"github.com/holdfast-io/holdfast/services/internal/kuberights"
	"github.com/holdfast-io/holdfast/services/internal/kubetest"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

const (
	holdfastImage = "holdfast/holdfast:test"
	// shellImage has a shell. Its agent is the sandboxd that is installed there, or where
	// a whole Pod is given, its own.
	shellImage = "shell:test"
	agentImage = "agent:test"
	// workloadAccount and sandboxAccount are the chart's ServiceAccounts.
	workloadAccount = "holdfast-workload"
	sandboxAccount  = "holdfast-sandbox"
)

// installation is what Holdfast needs on a cluster, and on it the services, once they are
// started. It is one test's.
type installation struct {
	harness.Sessions

	t       testing.TB
	cluster *kubetest.Cluster
	// ns is the tenant's namespace, own that of the services.
	ns, own string
	// before is what is in ns without any session or runtime.
	before []string
	nats   *brokertest.Server
	dsn    string
	dir    string
	// access is the workload service's to the API server, told what else it is.
	access *rest.Config
	told   clusterfile.File
	// url is where the gateway answers, agentsURL where sandboxes reach it.
	url, agentsURL string

	// kube, boxes and ext are an administrator's, for the test to look and to do harm.
	kube  kubernetes.Interface
	boxes sandboxclient.Interface
	ext   extclient.Interface
}

// prepare makes all that services need, and starts none.
func prepare(t testing.TB) *installation {
	t.Helper()
	k := kubetest.Start(t)
	k.Image(holdfastImage, kubetest.Holdfast(harness.Sandboxd(t)))
	k.Image(shellImage, kubetest.Image{
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"}, Programs: map[string]string{"sandboxd": harness.Sandboxd(t)},
	})
	k.Image(agentImage, kubetest.Programs(map[string]string{"agent": agent(t)}))
	in := &installation{
		t: t, cluster: k, ns: k.Namespace(t), own: k.Namespace(t), dsn: pgtest.New(t), dir: t.TempDir(),
		nats: brokertest.StartWith(t, broker.Config{Port: -1}, install.Options{}),
	}
	in.Sessions = harness.SessionsOf(t, in.client, in.openLog)
	admin := k.Config()
	in.kube, in.boxes, in.ext = kubernetes.NewForConfigOrDie(admin), sandboxclient.NewForConfigOrDie(admin), extclient.NewForConfigOrDie(admin)
	in.grant()
	in.access = k.ServiceAccount(t, in.own, workloadAccount)
	in.before = k.Objects(t, in.ns)
	in.told = clusterfile.File{
		Namespace: in.own, Instance: "holdfast", AgentsURL: "http://holdfast-agents." + in.own + ":7071",
		APIURL: "http://holdfast." + in.own + ":7070", Image: holdfastImage,
		Tenants: map[string]string{harness.Tenant: in.ns}, ServiceAccount: sandboxAccount, VolumeSize: "1Gi", WatchNodes: true,
	}
	_, err := keyfile.Ensure(in.keyFile())
	in.must(err)
	var people []tokenfile.Entry
	for name, roles := range map[string][]api.Role{
		"admin": {api.RoleAdmin, api.RoleApprover, api.RoleDeveloper, api.RoleAuditor, api.RoleOperator}, "alice": {api.RoleDeveloper}, "bob": {api.RoleApprover},
	} {
		people = append(people, tokenfile.Entry{Name: name, Token: tokenOf(name), Roles: roles, Tenants: []string{harness.Tenant}})
	}
	in.must(tokenfile.Write(in.tokensFile(), people))
	return in
}

// built is the suite's agent, built once.
var built = sync.OnceValues(func() (string, error) {
	return harness.Build("github.com/holdfast-io/holdfast/services/e2e/kube/agent", "")
})

func agent(t testing.TB) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// grant makes the accounts with the rights that the chart gives them, and has the
// tenant's namespace admit what the chart has it admit, and hold its sessions.
func (in *installation) grant() {
	in.t.Helper()
	ctx := in.t.Context()
	restricted := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`
	_, err := in.kube.CoreV1().Namespaces().Patch(ctx, in.ns, types.MergePatchType, []byte(restricted), metav1.PatchOptions{})
	in.must(err)
	for namespace, name := range map[string]string{in.own: workloadAccount, in.ns: sandboxAccount} {
		_, err := in.kube.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		in.must(err)
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: workloadAccount, Namespace: in.own}}
	for namespace, scope := range map[string]kuberights.Scope{in.ns: kuberights.Tenant, in.own: kuberights.Installation} {
		named := metav1.ObjectMeta{Name: workloadAccount}
		_, err := in.kube.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: named, Rules: kuberights.Rules(scope)}, metav1.CreateOptions{})
		in.must(err)
		_, err = in.kube.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: named, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: workloadAccount},
		}, metav1.CreateOptions{})
		in.must(err)
	}
	_, err = in.kube.PolicyV1().PodDisruptionBudgets(in.ns).Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: kuberights.BudgetName}, Spec: kuberights.Budget(),
	}, metav1.CreateOptions{})
	in.must(err)
	named := metav1.ObjectMeta{Name: in.own + "-" + workloadAccount}
	_, err = in.kube.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: named, Rules: slices.Concat(kuberights.Rules(kuberights.Cluster), kuberights.Rules(kuberights.Nodes)),
	}, metav1.CreateOptions{})
	in.must(err)
	_, err = in.kube.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: named, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name},
	}, metav1.CreateOptions{})
	in.must(err)
}

func (in *installation) must(err error) {
	in.t.Helper()
	if err != nil {
		in.t.Fatal(err)
	}
}

func (in *installation) keyFile() string    { return filepath.Join(in.dir, "sandbox.pem") }
func (in *installation) tokensFile() string { return filepath.Join(in.dir, "tokens.yaml") }

// key is what the workload service signs with.
func (in *installation) key() ed25519.PrivateKey {
	in.t.Helper()
	key, err := keyfile.Private(in.keyFile())
	in.must(err)
	return key
}

func tokenOf(name string) string { return "hf_test_token_of_" + name }

// client is the API as somebody.
func (in *installation) client(t testing.TB, name string) *apiclient.ClientWithResponses {
	t.Helper()
	c, err := apiclient.New(apiclient.Config{URL: in.url, Token: tokenOf(name)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (in *installation) openLog(ctx context.Context) (eventlog.Log, func(), error) {
	return parts.ReadLog(ctx, in.nats)
}

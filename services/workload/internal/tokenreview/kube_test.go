package tokenreview_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/services/internal/kubetest"
	"github.com/holdfast-io/holdfast/services/workload/internal/app"
	"github.com/holdfast-io/holdfast/services/workload/internal/tokenreview"
)

func TestMain(m *testing.M) { kubetest.Exit(m) }

// account is the service account of the sandboxes' Pods.
const account = "sandbox"

// cluster is a real API server, and a namespace with two Pods in it.
type cluster struct {
	*kubetest.Cluster

	t         *testing.T
	client    kubernetes.Interface
	namespace string
}

func openCluster(t *testing.T) *cluster {
	t.Helper()
	k := kubetest.Start(t)
	c := &cluster{Cluster: k, t: t, client: kubernetes.NewForConfigOrDie(k.Config()), namespace: k.Namespace(t)}
	_, err := c.client.CoreV1().ServiceAccounts(c.namespace).Create(t.Context(), &core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: account}}, meta.CreateOptions{})
	must(t, err)
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pod makes one; whether it ever runs is nothing to its token.
func (c *cluster) pod(name string) *core.Pod {
	c.t.Helper()
	p, err := c.client.CoreV1().Pods(c.namespace).Create(c.t.Context(), &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: name},
		Spec:       core.PodSpec{ServiceAccountName: account, Containers: []core.Container{{Name: "agent", Image: "none"}}},
	}, meta.CreateOptions{})
	must(c.t, err)
	return p
}

// token is what the kubelet projects into a Pod; nil is a token bound to none.
func (c *cluster) token(p *core.Pod, audiences ...string) string {
	c.t.Helper()
	seconds := int64(600)
	req := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{Audiences: audiences, ExpirationSeconds: &seconds}}
	if p != nil {
		req.Spec.BoundObjectRef = &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: p.Name, UID: p.UID}
	}
	got, err := c.client.CoreV1().ServiceAccounts(c.namespace).CreateToken(c.t.Context(), account, req, meta.CreateOptions{})
	must(c.t, err)
	return got.Status.Token
}

// reviewer asks with the rights of the workload service and no others; allowed says
// whether it has them.
func (c *cluster) reviewer(name string, allowed bool) *tokenreview.Reviewer {
	c.t.Helper()
	_, err := c.client.CoreV1().ServiceAccounts(c.namespace).Create(c.t.Context(), &core.ServiceAccount{ObjectMeta: meta.ObjectMeta{Name: name}}, meta.CreateOptions{})
	must(c.t, err)
	if allowed {
		c.allow(name)
	}
	client, err := kubernetes.NewForConfig(c.quiet(c.ServiceAccount(c.t, c.namespace, name)))
	must(c.t, err)
	return tokenreview.New(client.AuthenticationV1())
}

// quiet leaves out warnings, which aren't the test's.
func (c *cluster) quiet(config *rest.Config) *rest.Config {
	config.WarningHandler = rest.NoWarnings{}
	return config
}

func (c *cluster) allow(name string) {
	c.t.Helper()
	role := &rbac.ClusterRole{
		ObjectMeta: meta.ObjectMeta{Name: c.namespace + "-" + name},
		Rules:      []rbac.PolicyRule{{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}}},
	}
	_, err := c.client.RbacV1().ClusterRoles().Create(c.t.Context(), role, meta.CreateOptions{})
	must(c.t, err)
	_, err = c.client.RbacV1().ClusterRoleBindings().Create(c.t.Context(), &rbac.ClusterRoleBinding{
		ObjectMeta: meta.ObjectMeta{Name: role.Name},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbac.Subject{{Kind: rbac.ServiceAccountKind, Namespace: c.namespace, Name: name}},
	}, meta.CreateOptions{})
	must(c.t, err)
	c.t.Cleanup(func() {
		ctx := context.WithoutCancel(c.t.Context())
		if err := errors.Join(c.client.RbacV1().ClusterRoleBindings().Delete(ctx, role.Name, meta.DeleteOptions{}),
			c.client.RbacV1().ClusterRoles().Delete(ctx, role.Name, meta.DeleteOptions{})); err != nil {
			c.t.Error(err)
		}
	})
}

// TestRealReview: real tokens of real Pods, reviewed by the API server that issued them.
func TestRealReview(t *testing.T) {
	t.Parallel()
	c := openCluster(t)
	one, two := c.pod("one"), c.pod("two")
	r := c.reviewer("workload", true)
	c.Eventually(t, "the API server knows the Pods", func(ctx context.Context) (bool, error) {
		uid, err := r.Review(ctx, c.token(one, tokenreview.Audience))
		return err == nil && uid == string(one.UID), nil
	})
	good := c.token(one, tokenreview.Audience)
	head, rest, _ := strings.Cut(good, ".")
	for name, test := range map[string]struct {
		token string
		pod   *core.Pod // nil where it proves none
	}{
		"of the Pod":           {good, one},
		"of another":           {c.token(two, tokenreview.Audience), two},
		"for both audiences":   {c.token(one, tokenreview.Audience, "https://kubernetes.default.svc"), one},
		"for the API server":   {c.token(one), nil},
		"for another audience": {c.token(one, "vault"), nil},
		"bound to no Pod":      {c.token(nil, tokenreview.Audience), nil},
		"another's signature":  {good[:len(good)-8] + "AAAAAAAA", nil},
		"another's head":       {"x" + head + "." + rest, nil},
		"nothing":              {"x", nil},
	} {
		uid, err := r.Review(t.Context(), test.token)
		switch {
		case test.pod != nil && (err != nil || uid != string(test.pod.UID)):
			t.Errorf("%s: %q, %v", name, uid, err)
		case test.pod == nil && (!errors.Is(err, app.ErrUnproven) || uid != ""):
			t.Errorf("%s: %q, %v", name, uid, err)
		}
		if err != nil && len(test.token) > 10 && strings.Contains(err.Error(), test.token) {
			t.Errorf("%s: the token is in the error: %v", name, err)
		}
	}
}

// TestRealReviewOfADeletedPod: a token ends with its Pod, at the latest when the API
// server's memory of the last review does, some ten seconds later.
func TestRealReviewOfADeletedPod(t *testing.T) {
	t.Parallel()
	c := openCluster(t)
	r := c.reviewer("workload", true)
	pod := c.pod("one")
	token := c.token(pod, tokenreview.Audience)
	c.Eventually(t, "the API server knows the Pod", func(ctx context.Context) (bool, error) {
		uid, err := r.Review(ctx, token)
		return err == nil && uid == string(pod.UID), nil
	})
	now := int64(0)
	must(t, c.client.CoreV1().Pods(c.namespace).Delete(t.Context(), pod.Name, meta.DeleteOptions{GracePeriodSeconds: &now}))
	again := c.pod("one") // the same name is another Pod
	c.Eventually(t, "the token is refused", func(ctx context.Context) (bool, error) {
		uid, err := r.Review(ctx, token)
		if err == nil && uid != string(pod.UID) {
			t.Errorf("it is %s's now; the new Pod is %s", uid, again.UID)
		}
		return errors.Is(err, app.ErrUnproven), nil
	})
}

// TestRealReviewNeedsItsRight: a service that may not ask knows nothing of a token, which
// is another thing than a token that is no good.
func TestRealReviewNeedsItsRight(t *testing.T) {
	t.Parallel()
	c := openCluster(t)
	_, err := c.reviewer("nobody", false).Review(t.Context(), c.token(c.pod("one"), tokenreview.Audience))
	if err == nil || errors.Is(err, app.ErrUnproven) {
		t.Errorf("asked without a right: %v", err)
	}
}

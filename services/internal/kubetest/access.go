package kubetest

import (
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Config is an administrator's access, without a limit of its own. The caller may
// change the copy that it gets.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// As is access as a user that doesn't exist otherwise, with the rights that RBAC gives
// to the name and the groups.
func (c *Cluster) As(user string, groups ...string) *rest.Config {
	config := c.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

// ServiceAccount is access by a real token of a service account, as its Pods have it:
// with that account's rights and no others. The account must exist.
func (c *Cluster) ServiceAccount(t testing.TB, namespace, name string) *rest.Config {
	t.Helper()
	got, err := c.client.CoreV1().ServiceAccounts(namespace).
		CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("kubetest: token of %s/%s: %v", namespace, name, err)
	}
	config := rest.AnonymousClientConfig(c.config)
	config.QPS, config.Burst = c.config.QPS, c.config.Burst
	config.BearerToken = got.Status.Token
	return config
}

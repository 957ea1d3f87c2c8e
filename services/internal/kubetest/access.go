package kubetest

import (
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
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

// TokenUntil is a token of the API server's, signed by its own key, that differs in its
// time alone: it was issued ten minutes before until. The API server itself issues none
// for less than ten minutes.
func (c *Cluster) TokenUntil(t testing.TB, token string, until time.Time) string {
	t.Helper()
	claims := jwt.MapClaims{}
	parsed, _, err := jwt.NewParser().ParseUnverified(token, claims)
	if err != nil {
		t.Fatalf("kubetest: token: %v", err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(c.signer)
	if err != nil {
		t.Fatalf("kubetest: the API server's key: %v", err)
	}
	issued := until.Add(-10 * time.Minute)
	claims["iat"], claims["nbf"], claims["exp"] = issued.Unix(), issued.Unix(), until.Unix()
	again := jwt.NewWithClaims(parsed.Method, claims)
	again.Header["kid"] = parsed.Header["kid"]
	signed, err := again.SignedString(key)
	if err != nil {
		t.Fatalf("kubetest: sign a token: %v", err)
	}
	return signed
}

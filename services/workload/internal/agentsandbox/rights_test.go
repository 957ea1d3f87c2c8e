package agentsandbox

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/services/internal/kuberights"
)

// atStart is what a start that comes to nothing may take: far less than the minute that is
// given to a slow API server.
const atStart = 20 * time.Second

// refuses wants a driver not to start, in time, with an error that says so.
func (b *bench) refuses(ctx context.Context, access *rest.Config, words ...string) error {
	b.t.Helper()
	begun := time.Now()
	d, err := New(ctx, Config{
		Rest: access, Namespace: func(string) string { return b.ns }, Namespaces: []string{b.ns}, Nodes: true,
		Log: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	})
	if err == nil {
		b.t.Fatalf("it starts: %v", d.Close())
	}
	if took := time.Since(begun); took > atStart {
		b.t.Errorf("it took %s", took)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			b.t.Errorf("it doesn't say %q: %v", w, err)
		}
	}
	return err
}

// A driver whose rights are missing says which, and doesn't wait for somebody to give them.
func TestMissingRightsAreNamed(t *testing.T) {
	t.Parallel()
	b := set(t)
	const user = "holdfast-without"
	access := b.cluster.As(user + b.ns)
	if err := b.refuses(t.Context(), access, "and more", "holdfast doctor --kube"); !errors.Is(err, ErrRights) {
		t.Errorf("with none at all: %v", err)
	}
	meta := metav1.ObjectMeta{Name: "tenant"}
	roles, bindings := b.kube.RbacV1().Roles(b.ns), b.kube.RbacV1().RoleBindings(b.ns)
	_, err := roles.Create(t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: kuberights.Rules(kuberights.Tenant)}, metav1.CreateOptions{})
	must(t, err)
	_, err = bindings.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user + b.ns}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
	}, metav1.CreateOptions{})
	must(t, err)
	err = b.refuses(t.Context(), access, "may not list nodes cluster-wide", "watch nodes cluster-wide", "helm upgrade")
	if !errors.Is(err, ErrRights) || strings.Contains(err.Error(), b.ns) {
		t.Errorf("without nodes: %v", err)
	}
}

// A start doesn't outlast its caller, whatever the API server is like.
func TestSilentAPIServerIsNotWaitedForWithoutEnd(t *testing.T) {
	t.Parallel()
	b := &bench{t: t, ns: "ns"}
	var lc net.ListenConfig
	mute, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // takes connections, and says nothing
	must(t, err)
	defer func() { _ = mute.Close() }()
	ctx, cancel := context.WithTimeoutCause(t.Context(), askAfter+time.Second, errSilent)
	defer cancel()
	if err := b.refuses(ctx, &rest.Config{Host: "http://" + mute.Addr().String()}, "nodes can't be listed and watched"); !errors.Is(err, errSilent) {
		t.Errorf("it says %v", err)
	}
}

//go:build node

package node_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/e2e/node/onenode"
)

// root is the repository, seen from this package.
const root = "../../.."

const (
	release   = "holdfast"
	ownSpace  = "holdfast-system"
	boxSpace  = "holdfast-default" // of tenant default's sandboxes
	ourImage  = "localhost/holdfast"
	natsImage = "localhost/nats"
	sqlImage  = "localhost/postgres"
	tag       = "local"

	// What agents are in: a shell alone, and the suite's own.
	shellImage = "localhost/shell:local"
	agentImage = "localhost/agent:local"
)

// installation is Holdfast as its chart installs it: each service a Deployment under
// its own service account, NATS and Postgres a StatefulSet with a volume each.
type installation struct{ apiURL, token string }

// install installs it and waits until every part is ready.
func install(ctx context.Context) (*installation, error) {
	if err := loadImages(ctx); err != nil {
		return nil, err
	}
	if err := cluster.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ownSpace}}); err != nil {
		return nil, err
	}
	in := &installation{}
	if err := in.chart(ctx); err != nil {
		return nil, err
	}
	return in, in.reach(ctx)
}

// loadImages makes the images of all that runs in Pods.
func loadImages(ctx context.Context) error {
	parts := os.Getenv(onenode.EnvParts)
	sql, err := postgresImage(ctx)
	if err != nil {
		return err
	}
	for _, image := range []onenode.Image{
		{
			Name: ourImage + ":" + tag, Shell: true, User: "10001:10001", Entrypoint: []string{"holdfast"},
			Files: map[string]string{
				"/usr/local/bin/holdfast": filepath.Join(parts, "holdfast"), "/usr/local/bin/sandboxd": filepath.Join(parts, "sandboxd"),
			},
			Env: []string{"HOLDFAST_SANDBOXD=/usr/local/bin/sandboxd"},
		},
		{Name: natsImage + ":" + tag, Files: map[string]string{"/usr/local/bin/nats-server": filepath.Join(parts, "nats-server")}},
		sql,
		{Name: shellImage, Shell: true, User: "1000:1000"},
		{Name: agentImage, Shell: true, User: "1000:1000", Files: map[string]string{"/agent": filepath.Join(parts, "agent")}},
	} {
		if err := cluster.Load(ctx, image); err != nil {
			return err
		}
	}
	return nil
}

// values are what the chart is told here.
func values() map[string]any {
	one := map[string]any{"replicas": 1, "resources": map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "32Mi"}}}
	services := map[string]any{}
	for _, s := range []string{"session", "workload", "policy", "runner", "gateway", "projector"} {
		services[s] = one
	}
	classes := map[string]any{}
	if os.Getenv(envGVisor) != "" {
		classes[onenode.GVisor] = "gvisor"
	}
	return map[string]any{
		"sandboxes": map[string]any{"runtimeClasses": classes},
		"image":     map[string]any{"repository": ourImage, "tag": tag, "pullPolicy": "Never"},
		"services":  services,
		"nats": map[string]any{
			"replicas": 1, "image": map[string]any{"repository": natsImage, "tag": tag, "pullPolicy": "Never"},
			"storage":   map[string]any{"size": "3Gi"},
			"resources": map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "64Mi"}},
		},
		"install": map[string]any{"logMaxBytes": 268435456},
		"postgres": map[string]any{"tryout": map[string]any{
			"image":     map[string]any{"repository": sqlImage, "tag": tag, "pullPolicy": "Never"},
			"storage":   map[string]any{"size": "1Gi"},
			"resources": map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "64Mi"}},
		}},
		"logFormat": "text",
	}
}

// chart has Helm install the chart, as an administrator of the cluster; what is
// installed runs under the chart's accounts.
func (in *installation) chart(ctx context.Context) error {
	raw, err := yaml.Marshal(values())
	if err != nil {
		return err
	}
	file := filepath.Join(os.Getenv(onenode.EnvRoot), "values.yaml")
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		return err
	}
	if err := cluster.Helm(ctx, "install", release, filepath.Join(root, "deploy/chart"), "--namespace", ownSpace, "--values", file); err != nil {
		return err
	}
	return in.rolledOut(ctx)
}

// upgrade has Helm tell the installation one more value, and waits until it has it.
func (in *installation) upgrade(ctx context.Context, value string) error {
	err := cluster.Helm(ctx, "upgrade", release, filepath.Join(root, "deploy/chart"), "--namespace", ownSpace, "--reset-then-reuse-values", "--set", value)
	if err != nil {
		return err
	}
	return in.rolledOut(ctx)
}

// rolledOut waits until every service is as it was last asked for, and nothing else.
func (in *installation) rolledOut(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var all appsv1.DeploymentList
		var pods corev1.PodList
		err := errors.Join(cluster.Client.List(ctx, &all, client.InNamespace(ownSpace)), cluster.Client.List(ctx, &pods, client.InNamespace(ownSpace)))
		if err != nil {
			return false, err
		}
		for _, d := range all.Items {
			s, wanted := d.Status, *d.Spec.Replicas
			if s.ObservedGeneration < d.Generation || s.UpdatedReplicas != wanted || s.ReadyReplicas != wanted || s.Replicas != wanted {
				return false, nil
			}
		}
		leaving := slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		return len(all.Items) > 0 && !leaving, nil
	})
}

// reach finds the API and the administrator's token.
func (in *installation) reach(ctx context.Context) error {
	var service corev1.Service
	var tokens corev1.Secret
	err := errors.Join(
		cluster.Client.Get(ctx, client.ObjectKey{Namespace: ownSpace, Name: release}, &service),
		cluster.Client.Get(ctx, client.ObjectKey{Namespace: ownSpace, Name: release + "-tokens"}, &tokens),
	)
	if err != nil {
		return err
	}
	in.apiURL = "http://" + net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(int(service.Spec.Ports[0].Port)))
	in.token = string(tokens.Data["admin"])
	c, err := apiclient.New(apiclient.Config{URL: in.apiURL, Token: in.token})
	if err != nil {
		return err
	}
	// A ready Pod is behind its Service a moment later.
	return wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		r, err := c.ReadyzWithResponse(ctx)
		return err == nil && r.StatusCode() == http.StatusOK, nil
	})
}

// client is the API as its administrator.
func (in *installation) client(t testing.TB) *apiclient.ClientWithResponses {
	t.Helper()
	c, err := apiclient.New(apiclient.Config{URL: in.apiURL, Token: in.token})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

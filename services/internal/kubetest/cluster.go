package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/holdfast-io/holdfast/services/internal/kubetest/internal/kubelet"
)

const (
	// EnvAssets names the folder of kube-apiserver, etcd and kube-controllers.
	EnvAssets = "KUBEBUILDER_ASSETS"
	// EnvRequire makes, set to 1, a test fail that would be skipped without them.
	EnvRequire = "HOLDFAST_REQUIRE_KUBE"
	// DefaultNode takes every Pod that asks for no other.
	DefaultNode = "node-1"

	startTimeout = 90 * time.Second
)

// Cluster is a running cluster.
type Cluster struct {
	config  *rest.Config
	client  kubernetes.Interface
	kubelet *kubelet.Kubelet
	// signer is the API server's own key for tokens of service accounts, as PEM.
	signer []byte
	stops  []func() error // in the order of starting
}

// shared is the cluster of this process.
var shared struct {
	mu      sync.Mutex
	main    bool // TestMain will stop it
	cluster *Cluster
	err     error
}

// Start returns this process's cluster, which it starts if no test has yet. It skips
// the test, loudly, where there are no programs for it.
func Start(t testing.TB) *Cluster {
	t.Helper()
	assets := os.Getenv(EnvAssets)
	if assets == "" {
		const how = "there is no API server: set " + EnvAssets + ` to "$(scripts/kube.sh --path)", or run make test-kube`
		if os.Getenv(EnvRequire) == "1" {
			t.Fatal("kubetest: " + how)
		}
		t.Skip("SKIPPED: NOTHING IS TESTED AGAINST KUBERNETES: " + how)
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.main {
		t.Fatal("kubetest: the package's TestMain must be kubetest.Exit or run kubetest.Main, or the cluster would outlive it")
	}
	if shared.cluster == nil && shared.err == nil {
		shared.cluster, shared.err = start(assets)
	}
	if shared.err != nil {
		t.Fatalf("kubetest: %v", shared.err)
	}
	return shared.cluster
}

// Main wraps a package's tests so that the cluster is stopped when they have run: for
// what takes tests by this interface, as goleak's VerifyTestMain does.
func Main(m interface{ Run() int }) interface{ Run() int } { return wrapped{m} }

// Exit runs a package's tests, stops the cluster, and ends the process.
func Exit(m *testing.M) { os.Exit(Main(m).Run()) }

type wrapped struct{ m interface{ Run() int } }

// quiet drops what client libraries say of watches that end: it is no part of a test's
// output. It is set once, and before any test that might log.
var quiet = sync.OnceFunc(func() { klog.SetLogger(logr.Discard()) })

// Run runs the tests, then stops the cluster if any test has started it.
func (w wrapped) Run() int {
	quiet()
	shared.mu.Lock()
	shared.main = true
	shared.mu.Unlock()
	code := w.m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.main = false
	if shared.cluster != nil {
		if err := shared.cluster.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "kubetest:", err)
			code = max(code, 1)
		}
		shared.cluster = nil
	}
	return code
}

// start starts every part, or none.
func start(assets string) (_ *Cluster, err error) {
	quiet()
	c := &Cluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	dir, err := os.MkdirTemp("", "kubetest-")
	if err != nil {
		return nil, err
	}
	c.stops = append(c.stops, func() error { return os.RemoveAll(dir) })
	kubeconfig, err := c.startAPIServer(assets, dir)
	if err != nil {
		return nil, err
	}
	if err := c.startKubeControllers(assets, kubeconfig, dir); err != nil {
		return nil, err
	}
	if err := c.startAgentSandbox(); err != nil {
		return nil, fmt.Errorf("agent-sandbox: %w", err)
	}
	if c.kubelet, err = kubelet.New(c.client, dir); err != nil {
		return nil, err
	}
	c.stops = append(c.stops, func() error { c.kubelet.Stop(); return nil })
	if err := c.kubelet.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return c, c.kubelet.AddNode(ctx, DefaultNode, nil)
}

// stop ends every part, the last one first.
func (c *Cluster) stop() error {
	var errs []error
	for _, stop := range slices.Backward(c.stops) {
		errs = append(errs, stop())
	}
	c.stops = nil
	return errors.Join(errs...)
}

// startAPIServer starts etcd and the API server, installs agent-sandbox's definitions,
// and returns an administrator's kubeconfig.
func (c *Cluster) startAPIServer(assets, dir string) (kubeconfig string, err error) {
	// They end with this process, whatever becomes of it.
	if err := os.Setenv("HOLDFAST_KUBE_PARENT", strconv.Itoa(os.Getpid())); err != nil {
		return "", err
	}
	scheme, err := newScheme()
	if err != nil {
		return "", err
	}
	crds, err := definitions()
	if err != nil {
		return "", err
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory:    assets,
		ControlPlaneStartTimeout: startTimeout,
		Scheme:                   scheme,
		CRDs:                     crds,
	}
	env.ControlPlane.Etcd = &envtest.Etcd{}
	env.ControlPlane.Etcd.Configure().Set("unsafe-no-fsync", "true")
	// envtest leaves service accounts out, which a cluster doesn't.
	env.ControlPlane.GetAPIServer().Configure().Disable("disable-admission-plugins")
	config, err := env.Start()
	if err != nil {
		return "", fmt.Errorf("API server: %w", err)
	}
	c.stops = append(c.stops, env.Stop)
	// Clients here are never slowed down by themselves.
	config.QPS, config.Burst = -1, 0
	config.WarningHandler = rest.NoWarnings{}
	c.config = config
	if c.signer, err = os.ReadFile(filepath.Join(env.ControlPlane.GetAPIServer().CertDir, "sa-signer.key")); err != nil {
		return "", err
	}
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return "", err
	}
	kubeconfig = filepath.Join(dir, "kubeconfig")
	return kubeconfig, os.WriteFile(kubeconfig, env.KubeConfig, 0o600)
}

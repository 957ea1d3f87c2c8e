package kubetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	sandboxv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	"sigs.k8s.io/agent-sandbox/controllers"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
	extensions "sigs.k8s.io/agent-sandbox/extensions/controllers"
	"sigs.k8s.io/agent-sandbox/extensions/controllers/queue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"
)

// agentSandbox is the module whose definitions are installed.
const agentSandbox = "sigs.k8s.io/agent-sandbox"

// The numbers of workers that agent-sandbox's own command has by default.
const (
	sandboxWorkers = 100
	claimWorkers   = 50
	poolBatch      = 300
)

// newScheme knows what Kubernetes, agent-sandbox and its extensions define.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme,
		sandboxv1beta1.AddToScheme, extensionsv1beta1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return scheme, nil
}

// definitions are agent-sandbox's own, but for the older version and the webhook that
// would convert it: nobody serves one here.
func definitions() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", agentSandbox).Output()
	if err != nil {
		return nil, fmt.Errorf("where is %s: %w", agentSandbox, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "k8s", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%s has no definitions: %w", agentSandbox, err)
	}
	var crds []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
		var kept []apiextensionsv1.CustomResourceDefinitionVersion
		for _, version := range crd.Spec.Versions {
			if version.Name == sandboxv1beta1.GroupVersion.Version {
				kept = append(kept, version)
			}
		}
		crd.Spec.Versions = kept
		crds = append(crds, crd)
	}
	return crds, nil
}

// startAgentSandbox runs the four reconcilers as agent-sandbox's own command does,
// without its webhook.
func (c *Cluster) startAgentSandbox() error {
	ctrl.SetLogger(logr.Discard()) // what they do is seen in the API
	scheme, err := newScheme()
	if err != nil {
		return err
	}
	again := true
	mgr, err := ctrl.NewManager(c.config, ctrl.Options{
		Scheme:     scheme,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &again}, // a second cluster in one process
	})
	if err != nil {
		return err
	}
	if err := reconcilers(mgr); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	c.stops = append(c.stops, func() error {
		cancel()
		return <-ended
	})
	synced, stop := context.WithTimeout(ctx, startTimeout)
	defer stop()
	if !mgr.GetCache().WaitForCacheSync(synced) {
		return errors.New("the controllers' caches didn't fill")
	}
	return nil
}

func reconcilers(mgr ctrl.Manager) error {
	if err := (&controllers.SandboxReconciler{
		Client: mgr.GetClient(), Scheme: mgr.GetScheme(), Tracer: untraced{},
		Recorder: mgr.GetEventRecorder("sandbox-controller"), ClusterDomain: "cluster.local",
	}).SetupWithManager(mgr, sandboxWorkers); err != nil {
		return err
	}
	if err := (&extensions.SandboxClaimReconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Scheme: mgr.GetScheme(), Tracer: untraced{},
		Recorder: mgr.GetEventRecorder("sandboxclaim-controller"), WarmSandboxQueue: queue.NewSimpleSandboxQueue(),
	}).SetupWithManager(mgr, claimWorkers); err != nil {
		return err
	}
	if err := (&extensions.SandboxTemplateReconciler{
		Client: mgr.GetClient(), Scheme: mgr.GetScheme(), Tracer: untraced{},
		Recorder: mgr.GetEventRecorder("sandboxtemplate-controller"),
	}).SetupWithManager(mgr, 1); err != nil {
		return err
	}
	return (&extensions.SandboxWarmPoolReconciler{
		Client: mgr.GetClient(), Scheme: mgr.GetScheme(), MaxBatchSize: poolBatch, EnableWarmPoolEviction: true,
		Recorder:                     mgr.GetEventRecorder("sandboxwarmpool-controller"),
		ReadinessGracePeriod:         extensions.DefaultWarmPoolReadinessGracePeriod,
		UnschedulableRecheckInterval: extensions.DefaultUnschedulableRecheckInterval,
	}).SetupWithManager(mgr, 1)
}

// untraced is the tracer of controllers that nobody traces.
type untraced struct{}

func (untraced) StartSpan(ctx context.Context, _ metav1.Object, _ string, _ map[string]string) (context.Context, func()) {
	return ctx, func() {}
}
func (untraced) GetTraceContext(context.Context) string              { return "" }
func (untraced) AddEvent(context.Context, string, map[string]string) {}
func (untraced) IsRecording(context.Context) bool                    { return false }

// settle is how long what a test has left behind may take to be gone.
const settle = 30 * time.Second

// Command kube-controllers runs those few of Kubernetes' own controllers without
// which an API server alone behaves unlike a cluster: the garbage collector
// (owner references do nothing without it), the namespace controller (namespaces
// don't finish deleting), resource quotas (admission refuses everything until their
// usage has been counted), each namespace's default service account, the root
// certificate that projected tokens come with, the protection of volumes in use (their
// finalizers would never go), and disruption budgets (admission refuses each eviction
// that one covers until its Pods have been counted).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/garbagecollector"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
	"k8s.io/kubernetes/pkg/controller/volume/pvprotection"
	"k8s.io/kubernetes/pkg/quota/v1/install"

	_ "github.com/holdfast-io/holdfast/scripts/kube/parent"
)

// rediscover is how often new resources are looked for: definitions that a test
// installs are collected this much later at most.
const rediscover = 2 * time.Second

// resync is how often everything is looked at again although nothing said so.
const resync = 10 * time.Hour

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file with the API server's address and an administrator's credentials")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig); err != nil {
		fmt.Fprintln(os.Stderr, "kube-controllers:", err)
		os.Exit(1)
	}
}

// run runs every controller until ctx ends.
func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // without a limit
	parts, err := newParts(config)
	if err != nil {
		return err
	}
	loops, err := parts.controllers(ctx)
	if err != nil {
		return err
	}
	parts.informers.Start(ctx.Done())
	parts.metadataInformers.Start(ctx.Done())
	close(parts.started)
	fmt.Println("kube-controllers: started")

	var running sync.WaitGroup
	for _, loop := range loops {
		running.Go(func() { loop(ctx) })
	}
	running.Wait()
	return nil
}

// parts is what the controllers share.
type parts struct {
	client            kubernetes.Interface
	metadata          metadata.Interface
	scales            scale.ScalesGetter
	mapper            *restmapper.DeferredDiscoveryRESTMapper
	informers         informers.SharedInformerFactory
	metadataInformers metadatainformer.SharedInformerFactory
	either            informerfactory.InformerFactory // of typed objects, or of their metadata
	rootCA            []byte
	started           chan struct{}
}

func newParts(config *rest.Config) (*parts, error) {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, err
	}
	if len(config.CAData) == 0 {
		return nil, errors.New("the kubeconfig names no certificate authority")
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client.Discovery()))
	scales, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(client.Discovery()))
	if err != nil {
		return nil, err
	}
	p := &parts{
		client:            client,
		metadata:          meta,
		scales:            scales,
		mapper:            mapper,
		informers:         informers.NewSharedInformerFactory(client, resync),
		metadataInformers: metadatainformer.NewSharedInformerFactory(meta, resync),
		rootCA:            config.CAData,
		started:           make(chan struct{}),
	}
	p.either = informerfactory.NewInformerFactory(p.informers, p.metadataInformers)
	return p, nil
}

// controllers makes them all and returns their loops, each running until its
// context ends.
func (p *parts) controllers(ctx context.Context) ([]func(context.Context), error) {
	core := p.informers.Core().V1()
	collector, err := garbagecollector.NewGarbageCollector(ctx, p.client, p.metadata, p.mapper, nil, p.either, p.started)
	if err != nil {
		return nil, fmt.Errorf("garbage collector: %w", err)
	}
	quotas, err := p.quotas(ctx)
	if err != nil {
		return nil, fmt.Errorf("resource quotas: %w", err)
	}
	accounts, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(),
		p.client, serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, fmt.Errorf("service accounts: %w", err)
	}
	publisher, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), p.client, p.rootCA)
	if err != nil {
		return nil, fmt.Errorf("root certificates: %w", err)
	}
	claims, err := pvcprotection.NewPVCProtectionController(klog.FromContext(ctx), core.PersistentVolumeClaims(), core.Pods(), p.client)
	if err != nil {
		return nil, fmt.Errorf("volume claims: %w", err)
	}
	volumes := pvprotection.NewPVProtectionController(klog.FromContext(ctx), core.PersistentVolumes(), p.client)
	budgets := disruption.NewDisruptionController(ctx, core.Pods(), p.informers.Policy().V1().PodDisruptionBudgets(),
		core.ReplicationControllers(), p.informers.Apps().V1().ReplicaSets(), p.informers.Apps().V1().Deployments(),
		p.informers.Apps().V1().StatefulSets(), p.client, p.mapper, p.scales, p.client.Discovery())
	preferred := p.client.Discovery().ServerPreferredNamespacedResources
	namespaces := namespace.NewNamespaceController(ctx, p.client, p.metadata, preferred, core.Namespaces(), resync, corev1.FinalizerKubernetes)
	return []func(context.Context){
		func(ctx context.Context) { collector.Run(ctx, 20, 30*time.Second) },
		func(ctx context.Context) { collector.Sync(ctx, p.client.Discovery(), rediscover) },
		func(ctx context.Context) { quotas.Run(ctx, 5) },
		func(ctx context.Context) { quotas.Sync(ctx, preferred, rediscover) },
		func(ctx context.Context) { namespaces.Run(ctx, 5) },
		func(ctx context.Context) { accounts.Run(ctx, 2) },
		func(ctx context.Context) { claims.Run(ctx, 2) },
		func(ctx context.Context) { volumes.Run(ctx, 2) },
		func(ctx context.Context) { publisher.Run(ctx, 2) },
		budgets.Run,
	}, nil
}

func (p *parts) quotas(ctx context.Context) (*resourcequota.Controller, error) {
	usage, err := install.NewQuotaConfigurationForControllers(generic.ListerFuncForResourceFunc(p.informers.ForResource), p.informers)
	if err != nil {
		return nil, err
	}
	every := func() time.Duration { return resync }
	return resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               p.client.CoreV1(),
		ResourceQuotaInformer:     p.informers.Core().V1().ResourceQuotas(),
		ResyncPeriod:              every,
		InformerFactory:           p.either,
		ReplenishmentResyncPeriod: every,
		DiscoveryFunc:             p.client.Discovery().ServerPreferredNamespacedResources,
		IgnoredResourcesFunc:      usage.IgnoredResources,
		InformersStarted:          p.started,
		Registry:                  generic.NewRegistry(usage.Evaluators()),
		UpdateFilter:              install.DefaultUpdateFilter(),
	})
}

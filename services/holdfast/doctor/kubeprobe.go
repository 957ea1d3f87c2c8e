package doctor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	sandboxv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/internal/clusterfile"
	"github.com/holdfast-io/holdfast/services/internal/sandboxprobe"
)

const (
	// probeWithin bounds one sandbox: its image may have to be pulled.
	probeWithin = 2 * time.Minute
	// placesAtOnce is in how many namespaces sandboxes are tried side by side: each takes a
	// node's room and the API server's time.
	placesAtOnce = 4
	// probeGone is when Kubernetes removes what a doctor who was killed left.
	probeGone = 10 * time.Minute
	// probeLook passes between two looks at its Pod, and removeWithin bounds its removal.
	probeLook    = 500 * time.Millisecond
	removeWithin = 20 * time.Second
	// probeLabel is on the Pod of a probe, and nothing of Holdfast's sessions.
	probeLabel = "holdfast.dev/probe"
	probeUID   = 10001
	// metadataAddress is where clouds tell a machine its credentials.
	metadataAddress = "169.254.169.254:80"
)

// What the targets are called in findings.
const (
	targetAgents   = "the gateway's agents port"
	targetGateway  = "the gateway's API"
	targetAPI      = "the API server"
	targetDNS      = "the cluster's DNS"
	targetMetadata = "the metadata address"
)

// place is a namespace where sandboxes are tried, with the tenants whose it is.
type place struct{ namespace, tenants string }

// places are the namespaces that are to be tried.
func (k *kube) places() []place {
	if len(k.tenants) == 0 {
		return k.placesOf(slices.Collect(maps.Keys(k.file.Tenants)))
	}
	return k.placesOf(k.tenants)
}

// everywhere says whether those are all that there are.
func (k *kube) everywhere() bool {
	return len(k.places()) == len(k.placesOf(slices.Collect(maps.Keys(k.file.Tenants))))
}

// placesOf are the namespaces of tenants, each once, in the order of their names.
func (k *kube) placesOf(tenants []string) []place {
	var out []place
	for _, tenant := range slices.Compact(slices.Sorted(slices.Values(tenants))) {
		namespace := k.file.Tenants[tenant]
		if i := slices.IndexFunc(out, func(p place) bool { return p.namespace == namespace }); i >= 0 {
			out[i].tenants += ", " + tenant
		} else {
			out = append(out, place{namespace, tenant})
		}
	}
	return out
}

// tried is what came of a sandbox: what it saw, or why it didn't start.
type tried struct {
	report sandboxprobe.Report
	err    error
}

// probe makes a sandbox of each runtime class in each place, as the driver makes them, and
// judges what it sees from inside. The classes whose sandboxes started everywhere are named,
// too, "" for none.
func (k *kube) probe(ctx context.Context) (found []Finding, started []string) {
	targets, err := k.targets(ctx)
	if err != nil {
		return []Finding{broken("kube.probe", err.Error(), "run it in the workload service's Pod, where names are resolved")}, nil
	}
	places := k.places()
	seen := make([]map[string]tried, len(places))
	var all errgroup.Group
	all.SetLimit(placesAtOnce)
	for i, p := range places {
		all.Go(func() error {
			seen[i] = map[string]tried{}
			for _, class := range k.classNames() { // a tenant's quota may be small
				report, err := k.look(ctx, p.namespace, class, targets)
				seen[i][class] = tried{report, err}
			}
			return nil
		})
	}
	_ = all.Wait() // what failed is in seen
	return k.verdicts(places, seen)
}

// classNames are the runtime classes that sandboxes may have, the cluster's own first.
func (k *kube) classNames() []string {
	return append([]string{""}, slices.Sorted(maps.Keys(k.file.RuntimeClasses))...)
}

// shown is a runtime class by a name that is never empty.
func shown(class string) string {
	if class == "" {
		return clusterfile.ClusterDefault
	}
	return class
}

// isolationOf is what a runtime class gives beyond an ordinary container, or "".
func (k *kube) isolationOf(class string) string {
	if grade := k.file.RuntimeClasses[class]; grade != k.file.DefaultIsolation {
		return grade
	}
	return ""
}

// targets are what a sandbox tries: one may be reached, all others not.
func (k *kube) targets(ctx context.Context) ([]sandboxprobe.Target, error) {
	agents, err := k.address(ctx, k.file.AgentsURL)
	if err != nil {
		return nil, err
	}
	gateway, err := k.address(ctx, k.file.APIURL)
	if err != nil {
		return nil, err
	}
	return []sandboxprobe.Target{
		{Name: targetAgents, Address: agents, Open: true},
		{Name: targetGateway, Address: gateway},
		{Name: targetAPI, Address: sandboxprobe.KubernetesAPI},
		{Name: targetDNS, Address: sandboxprobe.ClusterDNS},
		{Name: targetMetadata, Address: metadataAddress},
	}, nil
}

// address is where a Service is, by number: resolved, or as the API server knows it where
// names of the cluster aren't resolved.
func (k *kube) address(ctx context.Context, at string) (string, error) {
	u, err := url.Parse(at)
	if err != nil {
		return "", err
	}
	found, err := net.DefaultResolver.LookupHost(ctx, u.Hostname())
	if err == nil {
		return net.JoinHostPort(found[0], u.Port()), nil
	}
	service, namespace, _ := strings.Cut(u.Hostname(), ".")
	s, failed := k.core.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
	if failed != nil {
		return "", fmt.Errorf("%s: %w", at, errors.Join(err, failed))
	}
	return net.JoinHostPort(s.Spec.ClusterIP, u.Port()), nil
}

// look makes one sandbox, waits for what it says, and removes it.
func (k *kube) look(ctx context.Context, namespace, class string, targets []sandboxprobe.Target) (report sandboxprobe.Report, err error) {
	name := "holdfast-probe-" + strings.ToLower(rand.Text()[:10])
	question, err := json.Marshal(targets)
	if err != nil {
		return report, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeWithin)
	defer cancel()
	defer func() { err = errors.Join(err, k.remove(ctx, namespace, name)) }()
	if err := k.make(ctx, namespace, name, class, string(question)); err != nil {
		return report, err
	}
	said, err := k.answer(ctx, namespace, name)
	if err != nil {
		return report, err
	}
	if err := json.Unmarshal([]byte(said), &report); err != nil {
		return report, fmt.Errorf("the sandbox said %q: %w", said, err)
	}
	return report, nil
}

// make makes a claim, and the template and the empty pool that it names: a cold start, as
// that of any session whose pool is empty. The claim owns them, so that they go with it
// where a doctor who was killed left all three.
func (k *kube) make(ctx context.Context, namespace, name, class, question string) error {
	client := k.sandboxes.ExtensionsV1beta1()
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: map[string]string{probeLabel: name}}
	gone := metav1.NewTime(time.Now().Add(probeGone))
	claim := &extensionsv1beta1.SandboxClaim{ObjectMeta: meta}
	claim.Spec.WarmPoolRef.Name = name
	claim.Spec.Lifecycle = &extensionsv1beta1.Lifecycle{ShutdownTime: &gone, ShutdownPolicy: extensionsv1beta1.ShutdownPolicyDelete}
	claim, err := client.SandboxClaims(namespace).Create(ctx, claim, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make a SandboxClaim: %w", err)
	}
	meta.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: extensionsv1beta1.GroupVersion.String(), Kind: "SandboxClaim", Name: claim.Name, UID: claim.UID,
	}}
	template := &extensionsv1beta1.SandboxTemplate{ObjectMeta: meta, Spec: k.blueprint(name, class, question)}
	if _, err := client.SandboxTemplates(namespace).Create(ctx, template, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a SandboxTemplate: %w", err)
	}
	none := int32(0)
	pool := &extensionsv1beta1.SandboxWarmPool{ObjectMeta: meta} // the last: agent-sandbox looks at the claim again for it
	pool.Spec.Replicas, pool.Spec.TemplateRef.Name = &none, name
	if _, err := client.SandboxWarmPools(namespace).Create(ctx, pool, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make a SandboxWarmPool: %w", err)
	}
	return nil
}

// blueprint is a Pod that is held and closed as those of sessions are, and looks around.
// Unlike theirs it is told the cluster's DNS, so that there is something to try.
func (k *kube) blueprint(name, class, question string) extensionsv1beta1.SandboxTemplateSpec {
	yes, no, uid := true, false, int64(probeUID)
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: k.file.ServiceAccount,
		AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
		Containers: []corev1.Container{{
			Name: "probe", Image: k.file.Image, ImagePullPolicy: corev1.PullPolicy(k.file.PullPolicy),
			Command: []string{"/usr/local/bin/sandboxd", "probe"},
			Env: []corev1.EnvVar{
				{Name: sandboxprobe.EnvTargets, Value: question}, {Name: sandboxprobe.EnvAnswer, Value: sandboxprobe.AnswerFile},
			},
			SecurityContext: &corev1.SecurityContext{
				RunAsNonRoot: &yes, RunAsUser: &uid, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
				Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
				Limits:   corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("128Mi")},
			},
		}},
	}
	if class != "" {
		pod.RuntimeClassName = &class
	}
	for _, secret := range k.file.PullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
	}
	protocol, port := corev1.ProtocolTCP, intstr.FromInt32(clusterfile.AgentsPort)
	return extensionsv1beta1.SandboxTemplateSpec{
		SandboxBlueprint: sandboxv1beta1.SandboxBlueprint{
			PodTemplate: sandboxv1beta1.PodTemplate{
				Spec: pod, ObjectMeta: sandboxv1beta1.PodMetadata{Labels: map[string]string{probeLabel: name}},
			},
			Service: &no,
		},
		NetworkPolicyManagement: extensionsv1beta1.NetworkPolicyManagementManaged,
		NetworkPolicy: &extensionsv1beta1.NetworkPolicySpec{
			Egress: []networkingv1.NetworkPolicyEgressRule{{
				To: k.file.Agents(), Ports: []networkingv1.NetworkPolicyPort{{Protocol: &protocol, Port: &port}},
			}},
		},
	}
}

// answer waits until the Pod has ended and gives its last words. What keeps it from
// starting is in the error.
func (k *kube) answer(ctx context.Context, namespace, name string) (said string, err error) {
	last := "no Pod was made for the claim: see kube.controller above"
	err = wait.PollUntilContextCancel(ctx, probeLook, true, func(ctx context.Context) (bool, error) {
		pods, err := k.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: probeLabel + "=" + name})
		if err != nil {
			return false, err
		}
		if len(pods.Items) == 0 {
			last = k.whyNoPod(ctx, namespace, name, last)
			return false, nil
		}
		pod := pods.Items[0]
		for _, c := range pod.Status.ContainerStatuses {
			switch {
			case c.State.Terminated != nil && c.State.Terminated.ExitCode != 0:
				return false, fmt.Errorf("it ended with %d, %s: %s", c.State.Terminated.ExitCode, c.State.Terminated.Reason, c.State.Terminated.Message)
			case c.State.Terminated != nil:
				said = c.State.Terminated.Message
				return true, nil
			case c.State.Waiting != nil:
				last = c.State.Waiting.Reason + ": " + c.State.Waiting.Message
			}
		}
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				last = c.Reason + ": " + c.Message
			}
		}
		return false, nil
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return "", fmt.Errorf("it didn't start within %s: %s", probeWithin, last)
	}
	return said, err
}

// whyNoPod is what the claim says of it, if anything.
func (k *kube) whyNoPod(ctx context.Context, namespace, name, before string) string {
	claim, err := k.sandboxes.ExtensionsV1beta1().SandboxClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return before
	}
	for _, c := range claim.Status.Conditions {
		if c.Type == string(sandboxv1beta1.SandboxConditionReady) && c.Status == metav1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return before
}

// remove removes what make made; sandbox and Pod go with the claim.
func (k *kube) remove(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
	defer cancel()
	client := k.sandboxes.ExtensionsV1beta1()
	var errs []error
	for _, remove := range []func(context.Context, string, metav1.DeleteOptions) error{
		client.SandboxClaims(namespace).Delete, client.SandboxWarmPools(namespace).Delete, client.SandboxTemplates(namespace).Delete,
	} {
		if err := remove(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove the probe %s/%s: %w", namespace, name, err))
		}
	}
	return errors.Join(errs...)
}

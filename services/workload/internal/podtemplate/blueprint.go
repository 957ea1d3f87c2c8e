package podtemplate

import (
	"maps"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	agentsv1beta1 "sigs.k8s.io/agent-sandbox/api/v1beta1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Blueprint is what a runtime's sandboxes are made of.
type Blueprint struct {
	// Spec is the SandboxTemplate's.
	Spec extensionsv1beta1.SandboxTemplateSpec
	// AgentContainer is the name of the agent's container: with the sidecar's its
	// restarts are those that count.
	AgentContainer string
	// Isolation is what the Pod's runtime class gives; see Options.RuntimeClasses.
	Isolation string
	// Secrets are what containers are given that is secret, sorted: names of Secrets, and
	// "token:<audience>" for tokens of the Pod's service account.
	Secrets []string
}

// Build makes the blueprint of a runtime. Equal arguments give equal blueprints. Its
// error is a [*RefusedError] where the runtime is at fault.
func Build(spec driver.RuntimeSpec, o Options) (Blueprint, error) {
	if err := o.validate(); err != nil {
		return Blueprint{}, err
	}
	var wrong refusals
	if spec.Pod == nil {
		wrong.add("/sandbox/image", "is needed: a Pod is made of it")
		return Blueprint{}, wrong.err()
	}
	template := written(spec, &wrong)
	if err := wrong.err(); err != nil {
		return Blueprint{}, err
	}
	b := Blueprint{Secrets: secrets(template.Spec, spec.Pod.AllowSecrets, &wrong)}
	at := agentOf(template.Spec)
	b.AgentContainer = AgentContainerOf(template.Spec)
	b.Isolation = isolate(&template.Spec, spec, o, &wrong)
	installs := needsSandboxd(template.Spec.Containers[at], spec)
	dress(&template.Spec.Containers[at], at, spec, installs, &wrong)
	addOurs(&template.Spec, spec, b.Isolation, installs, o)
	restrict(&template.Spec, &wrong)
	if err := wrong.err(); err != nil {
		return Blueprint{}, err
	}
	volumes, err := claims(spec, o, &wrong)
	if err != nil {
		return Blueprint{}, err
	}
	no := false
	b.Spec = extensionsv1beta1.SandboxTemplateSpec{
		SandboxBlueprint: agentsv1beta1.SandboxBlueprint{
			PodTemplate: agentsv1beta1.PodTemplate{
				Spec: template.Spec,
				ObjectMeta: agentsv1beta1.PodMetadata{
					Labels: merged(template.Labels, o.Labels), Annotations: template.Annotations,
				},
			},
			VolumeClaimTemplates: volumes,
			Service:              &no, // callers go to the Pod's address, which is fenced
		},
		NetworkPolicy:           network(o),
		NetworkPolicyManagement: extensionsv1beta1.NetworkPolicyManagementManaged,
		// What a claim adds would make its start a cold one, unseen.
		EnvVarsInjectionPolicy:     extensionsv1beta1.EnvVarsInjectionPolicyDisallowed,
		VolumeClaimTemplatesPolicy: extensionsv1beta1.VolumeClaimTemplatesPolicyDisallowed,
	}
	return b, nil
}

// isolate gives the Pod its runtime class, and says what that isolates.
func isolate(pod *corev1.PodSpec, spec driver.RuntimeSpec, o Options, wrong *refusals) string {
	pointer := "/sandbox/runtimeClassName"
	class := spec.Pod.RuntimeClassName
	if pod.RuntimeClassName != nil {
		pointer, class = templatePointer+"/spec/runtimeClassName", *pod.RuntimeClassName
	}
	grade, known := o.Isolation(class)
	if !known {
		wrong.add(pointer, "%q is none of the runtime classes that are allowed here", class)
	}
	if class != "" {
		pod.RuntimeClassName = &class
	}
	return grade
}

// addOurs adds sandboxd before all that is an admin's.
func addOurs(pod *corev1.PodSpec, spec driver.RuntimeSpec, isolation string, installs bool, o Options) {
	ours := make([]corev1.Container, 0, 2+len(pod.InitContainers))
	if installs {
		ours = append(ours, install(o))
	}
	ours = append(ours, sidecar(spec, isolation, o))
	pod.InitContainers = append(ours, pod.InitContainers...)
	pod.Volumes = append(ownVolumes(spec, installs), pod.Volumes...)
	for _, name := range o.PullSecrets {
		pod.ImagePullSecrets = append(pod.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	if pod.ServiceAccountName == "" {
		pod.ServiceAccountName = o.ServiceAccount
	}
	if pod.TerminationGracePeriodSeconds == nil {
		seconds := int64(math.Ceil(max(spec.Pod.Grace, time.Second).Seconds()))
		pod.TerminationGracePeriodSeconds = &seconds
	}
	no := false
	pod.AutomountServiceAccountToken, pod.EnableServiceLinks = &no, &no
	if pod.DNSPolicy == "" {
		// Nothing outside is reached by name. A name server that isn't there answers at
		// once, where one behind a closed network would have every look-up wait.
		pod.DNSPolicy = corev1.DNSNone
		pod.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"127.0.0.1"}}
	}
}

// claims are the session's volume, if it has one.
func claims(spec driver.RuntimeSpec, o Options, wrong *refusals) ([]agentsv1beta1.PersistentVolumeClaimTemplate, error) {
	if !spec.HasVolume {
		return nil, nil
	}
	size := spec.Pod.VolumeSize
	if size == "" {
		size = o.volumeSize()
	}
	quantity, err := resource.ParseQuantity(size)
	if err != nil || quantity.Sign() <= 0 {
		wrong.add("/workspace/size", "%q is no quantity: write it as 5Gi", size)
		return nil, wrong.err()
	}
	claim := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity}},
	}
	class := spec.Pod.StorageClass
	if class == "" {
		class = o.StorageClass
	}
	if class != "" {
		claim.StorageClassName = &class
	}
	return []agentsv1beta1.PersistentVolumeClaimTemplate{{
		EmbeddedObjectMetadata: agentsv1beta1.EmbeddedObjectMetadata{Name: WorkspaceVolume}, Spec: claim,
	}}, nil
}

// merged is both maps; what is in the second counts.
func merged(a, b map[string]string) map[string]string {
	if len(a)+len(b) == 0 {
		return nil
	}
	out := make(map[string]string, len(a)+len(b))
	for _, m := range []map[string]string{a, b} {
		maps.Copy(out, m)
	}
	return out
}

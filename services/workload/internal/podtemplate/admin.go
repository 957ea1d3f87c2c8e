package podtemplate

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	strictjson "sigs.k8s.io/json"
)

// templatePointer is where an admin's template is in a runtime's spec.
const templatePointer = "/sandbox/podTemplate"

// adminTemplate reads an admin's template and refuses what is Holdfast's to say.
func adminTemplate(raw json.RawMessage, wrong *refusals) corev1.PodTemplateSpec {
	var template corev1.PodTemplateSpec
	unknown, err := strictjson.UnmarshalStrict(raw, &template)
	if err != nil {
		wrong.add(templatePointer, "can't be read: %v", err)
		return template
	}
	for _, u := range unknown {
		wrong.add(templatePointer+place(u), "%v", u)
	}
	metadata(template.ObjectMeta, wrong)
	if len(template.Spec.Containers) == 0 {
		wrong.add(templatePointer+"/spec/containers", "has to have the agent's container")
	}
	ownWords(template.Spec, wrong)
	volumes(template.Spec.Volumes, wrong)
	for i, c := range template.Spec.InitContainers {
		container(fmt.Sprintf("%s/spec/initContainers/%d", templatePointer, i), c, wrong)
	}
	for i, c := range template.Spec.Containers {
		container(fmt.Sprintf("%s/spec/containers/%d", templatePointer, i), c, wrong)
	}
	return template
}

// quoted finds the path in what the strict decoder says of a field.
var quoted = regexp.MustCompile(`field "([^"]*)"`)

// place is the JSON pointer of a field that the strict decoder found wrong.
func place(err error) string {
	found := quoted.FindStringSubmatch(err.Error())
	if found == nil {
		return ""
	}
	return "/" + strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(found[1])
}

// foreign are the prefixes of labels and annotations by which controllers find their
// Pods: a template that had them could pass for another's.
var foreign = []string{"holdfast.dev/", "agents.x-k8s.io/", "extensions.agents.x-k8s.io/"}

// metadata refuses all that a template has no say in, and others' labels.
func metadata(m metav1.ObjectMeta, wrong *refusals) {
	at := templatePointer + "/metadata"
	for _, words := range []struct {
		name string
		of   map[string]string
	}{{"labels", m.Labels}, {"annotations", m.Annotations}} {
		for key := range words.of {
			for _, prefix := range foreign {
				if strings.HasPrefix(key, prefix) {
					wrong.add(at+"/"+words.name+"/"+escapedPointer(key), "labels and annotations of %s are set by Holdfast and agent-sandbox", prefix)
				}
			}
		}
	}
	m.Labels, m.Annotations = nil, nil
	if !reflect.DeepEqual(m, metav1.ObjectMeta{}) {
		wrong.add(at, "only labels and annotations can be said: agent-sandbox names the Pod")
	}
}

// escapedPointer is a key as a token of a JSON pointer (RFC 6901).
func escapedPointer(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

// ownWords refuses what would undo what Holdfast promises of each sandbox. What the
// restricted Pod Security forbids is refused afterwards, see restrict.
func ownWords(pod corev1.PodSpec, wrong *refusals) {
	is := func(b *bool) bool { return b != nil && *b }
	for _, w := range []struct {
		said          bool
		field, detail string
	}{
		{is(pod.AutomountServiceAccountToken), "automountServiceAccountToken", "a sandbox has no rights in the cluster"},
		{is(pod.EnableServiceLinks), "enableServiceLinks", "a sandbox isn't told of the cluster's services"},
		{is(pod.ShareProcessNamespace), "shareProcessNamespace", "the agent would reach into sandboxd"},
		{len(pod.EphemeralContainers) > 0, "ephemeralContainers", "can't be in a template"},
		{pod.ActiveDeadlineSeconds != nil, "activeDeadlineSeconds", "timeouts.max says how long a session lasts"},
		{pod.DeprecatedServiceAccount != "", "serviceAccount", "is the old name of serviceAccountName"},
		{
			pod.DNSPolicy != "" && pod.DNSPolicy != corev1.DNSNone && pod.DNSPolicy != corev1.DNSDefault, "dnsPolicy",
			"can be None or Default: a sandbox doesn't reach the cluster's DNS",
		},
		{pod.DNSPolicy == "" && pod.DNSConfig != nil, "dnsConfig", "needs dnsPolicy None or Default beside it"},
		{
			pod.RestartPolicy != "" && pod.RestartPolicy != corev1.RestartPolicyAlways, "restartPolicy",
			"has to be Always: a restart is seen, and the session's generation counts it",
		},
	} {
		if w.said {
			wrong.add(templatePointer+"/spec/"+w.field, "%s", w.detail)
		}
	}
}

// container refuses names, ports and volumes of ours. A port without a protocol gets the
// one that agent-sandbox's definition would give it, so that a template is kept as it was
// made.
func container(at string, c corev1.Container, wrong *refusals) {
	if strings.HasPrefix(c.Name, reserved) {
		wrong.add(at+"/name", "names that begin with %s are Holdfast's", reserved)
	}
	for i, p := range c.Ports {
		if p.ContainerPort == Port || p.ContainerPort == RelayPort {
			wrong.add(fmt.Sprintf("%s/ports/%d/containerPort", at, i), "%d is sandboxd's", p.ContainerPort)
		}
		if p.Protocol == "" {
			c.Ports[i].Protocol = corev1.ProtocolTCP
		}
	}
	for i, m := range c.VolumeMounts {
		if strings.HasPrefix(m.Name, reserved) && m.Name != WorkspaceVolume {
			wrong.add(fmt.Sprintf("%s/volumeMounts/%d/name", at, i), "%s is sandboxd's alone", m.Name)
		}
	}
}

func volumes(of []corev1.Volume, wrong *refusals) {
	for i, v := range of {
		if strings.HasPrefix(v.Name, reserved) {
			wrong.add(fmt.Sprintf("%s/spec/volumes/%d/name", templatePointer, i), "names that begin with %s are Holdfast's", reserved)
		}
	}
}

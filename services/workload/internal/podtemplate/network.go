package podtemplate

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"
)

// network lets callers in to sandboxd, and sandboxd out to the gateway's listener for
// agents; nothing else, no names resolved.
func network(o Options) *extensionsv1beta1.NetworkPolicySpec {
	return &extensionsv1beta1.NetworkPolicySpec{
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: o.Callers, Ports: tcp(Port)}},
		Egress:  []networkingv1.NetworkPolicyEgressRule{{To: o.Agents, Ports: tcp(o.AgentsPort)}},
	}
}

func tcp(port int32) []networkingv1.NetworkPolicyPort {
	protocol, number := corev1.ProtocolTCP, intstr.FromInt32(port)
	return []networkingv1.NetworkPolicyPort{{Protocol: &protocol, Port: &number}}
}

package clusterfile

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AgentsPort is where gateways' Pods listen for agents: network policies are about Pods,
// whatever the port of their Service.
const AgentsPort = 7071

// Callers are who may reach sandboxd's port: what NetworkPolicies of sandboxes let in.
func (f File) Callers() []networkingv1.NetworkPolicyPeer {
	return f.services("gateway", "runner", "workload")
}

// Agents are whom a sandbox may reach, at AgentsPort, and nobody else.
func (f File) Agents() []networkingv1.NetworkPolicyPeer { return f.services("gateway") }

// services are Pods of this installation, as the chart labels them.
func (f File) services(components ...string) []networkingv1.NetworkPolicyPeer {
	return []networkingv1.NetworkPolicyPeer{{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": f.Namespace}},
		PodSelector: &metav1.LabelSelector{
			MatchLabels: map[string]string{"app.kubernetes.io/name": "holdfast", "app.kubernetes.io/instance": f.Instance},
			MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app.kubernetes.io/component", Operator: metav1.LabelSelectorOpIn, Values: components},
			},
		},
	}}
}

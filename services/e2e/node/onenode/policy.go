package onenode

import (
	"context"
	"fmt"
	"os"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// enforcer is kube-network-policies, a program, its account and the folder that a Pod's
// credentials are in.
const (
	enforcer    = "kube-network-policies"
	credentials = "/run/secrets/kubernetes.io/serviceaccount"
	queue       = "100"
)

// enforce has network policies enforced, by kube-network-policies under its own account.
// It is shown packets by rules of iptables: its own ones, of nftables, take a kernel
// with CONFIG_NFT_QUEUE. What the node itself sends is none of its business, as a
// kubelet's probes must pass; of what was let through once, answers too. What Pods send
// to the node, to the API server among it, isn't sent on: it is taken on its way in. By
// containerd's NRI it knows a Pod's address before anything in the Pod runs.
func (n *Node) enforce(ctx context.Context) error {
	if err := n.enforcerAccount(ctx); err != nil {
		return fmt.Errorf("%s: %w", enforcer, err)
	}
	for _, rule := range [][]string{
		{"POSTROUTING", "-m", "owner", "--uid-owner", "0", "-j", "RETURN"},
		{"POSTROUTING", "-m", "conntrack", "--ctstate", "ESTABLISHED", "-j", "RETURN"},
		{"POSTROUTING", "-s", PodRange, "-j", "NFQUEUE", "--queue-num", queue},
		{"POSTROUTING", "-d", PodRange, "-j", "NFQUEUE", "--queue-num", queue},
		{"INPUT", "-m", "conntrack", "--ctstate", "ESTABLISHED", "-j", "RETURN"},
		{"INPUT", "-s", PodRange, "-j", "NFQUEUE", "--queue-num", queue},
	} {
		if err := run(ctx, "iptables", slices.Concat([]string{"-t", "mangle", "-A"}, rule)...); err != nil {
			return err
		}
	}
	p, err := n.spawn(enforcer, []string{"KUBERNETES_SERVICE_HOST=" + NodeIP, "KUBERNETES_SERVICE_PORT=" + apiPort},
		"--hostname-override", NodeName, "--nfqueue-id", queue, "--metrics-bind-address", "127.0.0.1:9080")
	if err == nil {
		n.running = append(n.running, p)
	}
	return err
}

// enforcerAccount makes the account of its manifests, and puts its credentials where a
// program in a Pod finds them.
func (n *Node) enforcerAccount(ctx context.Context) error {
	raw, err := os.ReadFile(n.part(enforcer + ".yaml"))
	if err != nil {
		return err
	}
	manifests, err := decode(raw)
	if err != nil {
		return err
	}
	for _, m := range manifests {
		if m.GetKind() == "DaemonSet" { // it runs on the node without a Pod
			continue
		}
		if err := n.apply(ctx, m); err != nil {
			return err
		}
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: enforcer}}
	token := &authenticationv1.TokenRequest{}
	if err := n.Client.SubResource("token").Create(ctx, account, token); err != nil {
		return err
	}
	ca, err := os.ReadFile(n.ca.certFile("ca"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(credentials, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(credentials+"/ca.crt", ca, 0o600); err != nil {
		return err
	}
	return os.WriteFile(credentials+"/token", []byte(token.Status.Token), 0o600)
}

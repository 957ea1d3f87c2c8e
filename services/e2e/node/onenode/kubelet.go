package onenode

import (
	"context"
	"fmt"
	"os"
)

func writeFile(path, content string) error { return os.WriteFile(path, []byte(content), 0o600) }

// startKubelet runs the node's agent. It never evicts: the machine's disk and memory
// are others' to worry about.
func (n *Node) startKubelet(context.Context) error {
	resolv, err := n.write("resolv.conf", "nameserver "+NodeIP+"\n")
	if err != nil {
		return err
	}
	config, err := n.write("kubelet.yaml", fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[2]s
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %[3]s}
authorization: {mode: Webhook}
tlsCertFile: %[4]s
tlsPrivateKeyFile: %[5]s
cgroupDriver: cgroupfs
cgroupRoot: %[6]s
failCgroupV1: false
failSwapOn: false
clusterDomain: %[7]s
clusterDNS: [%[2]s]
resolvConf: %[8]s
containerRuntimeEndpoint: unix://%[9]s
makeIPTablesUtilChains: false
podLogsDir: %[1]s/log/pods
volumePluginDir: %[1]s/conf/plugins
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
maxPods: 250
serializeImagePulls: false
registryPullQPS: 0
eventRecordQPS: 0
kubeAPIQPS: 200
kubeAPIBurst: 400
`, n.root, NodeIP, n.ca.certFile("ca"), n.ca.certFile("node"), n.ca.keyFile("node"), CgroupRoot, domain, resolv, n.containerdSocket()))
	if err != nil {
		return err
	}
	_, err = n.launch("kubelet", "--config", config, "--kubeconfig", n.ca.kubeconfigFile("node"),
		"--hostname-override", NodeName, "--node-ip", NodeIP, "--root-dir", n.path("kubelet"), "--cert-dir", n.path("pki"))
	return err
}

// startProxy makes Services reachable, from Pods and from the node.
func (n *Node) startProxy(context.Context) error {
	config, err := n.write("proxy.yaml", fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
bindAddress: %[1]s
clusterCIDR: %[2]s
hostnameOverride: %[3]s
clientConnection: {kubeconfig: %[4]s}
conntrack: {maxPerCore: 0, min: 0}
`, NodeIP, PodRange, NodeName, n.ca.kubeconfigFile("proxy")))
	if err != nil {
		return err
	}
	_, err = n.launch("kube-proxy", "--config", config)
	return err
}

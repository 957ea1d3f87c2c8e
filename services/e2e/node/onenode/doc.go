// Package onenode runs a whole Kubernetes cluster of one node for a test: every part of
// it is the real one, and its Pods are real containers.
//
//	etcd ◀─ kube-apiserver ◀─ controller-manager, scheduler, kube-proxy, DNS, volumes
//	              ▲
//	           kubelet ─▶ containerd ─▶ runc, CNI's bridge ─▶ Pods 10.244.0.0/24
//	                                                           ▲
//	                    10.245.0.1, the node ──────────────────┘
//
// It runs in namespaces of its own (processes, mounts, network), which
// scripts/node.sh makes: the addresses, the bridge and the rules of the firewall are
// nobody else's, and the kernel takes back all of it when the first process of the
// namespace ends, however it does. What is no namespace's — the control groups below
// [CgroupRoot], four settings of the kernel that a kubelet changes, and the files below
// one folder — that script undoes.
//
// [Options] add gVisor's runsc beside runc, and an enforcer of network policies.
//
// Two parts are this package's own, since a cluster leaves them to who installs it: a
// DNS server for the names of Services, and a provisioner that makes a PersistentVolume
// of a folder. Images are made of binaries (see [Image]); nothing is pulled.
package onenode

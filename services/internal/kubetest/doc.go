// Package kubetest gives tests a Kubernetes cluster: a real API server on a real etcd,
// Kubernetes' own controllers for what every cluster has (garbage collection, quotas,
// namespaces, service accounts, protection of volumes, disruption budgets), the
// unmodified agent-sandbox controllers, and nodes whose containers are processes of this
// machine (package kubelet says what these do and don't).
//
//	func TestMain(m *testing.M) { kubetest.Exit(m) }
//
//	func TestX(t *testing.T) {
//		cluster := kubetest.Start(t)
//		cluster.Image("holdfast/holdfast", kubetest.Holdfast(sandboxd))
//		ns := cluster.Namespace(t)
//		client := kubernetes.NewForConfigOrDie(cluster.Config())
//		…
//	}
//
// All tests of a package share one cluster, which starts with the first of them in some
// seconds; each has a namespace of its own, and a node of its own if it wants to drain
// one. The programs are what scripts/kube.sh builds; the environment variable
// KUBEBUILDER_ASSETS names their folder, and `make test-kube` sets it. Without it a test
// is skipped, or with HOLDFAST_REQUIRE_KUBE=1 fails.
//
// No test patches a status: what the API says of a Pod is what its processes did.
package kubetest

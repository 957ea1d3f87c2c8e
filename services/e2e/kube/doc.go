// Package kube runs the whole program on a real API server: sessions are claims of the
// unmodified agent-sandbox controllers, whose Pods run the real sandboxd and agents
// (package kubetest says what stands for nodes). The services have what the chart gives
// them and nothing else: the workload service a token of its own ServiceAccount with the
// rights of package kuberights, which services/e2e/chart holds the chart to, in a tenant's
// namespace that admits restricted Pods alone.
//
// Where a process has to die the services are processes of the built binary; elsewhere
// they run in the test's own. Each test ends with the log held to its invariants, and to
// what is left on the API server: for each sandbox that the log says a session has there
// is one claim, and there is no other.
//
// `make test-kube` runs it.
package kube

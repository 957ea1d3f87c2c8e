// Package chart holds the tests of deploy/chart, the Helm chart. Rendered with its
// defaults and with each file of deploy/chart/ci, all that comes out is held to rules
// (render_test.go); Helm itself installs, upgrades and uninstalls it on a real API server
// (install_test.go), which is asked what each service account may do (rights_test.go).
//
// They need Helm, in HOLDFAST_HELM, and those on the API server KUBEBUILDER_ASSETS:
// `make test-kube` gives both.
package chart

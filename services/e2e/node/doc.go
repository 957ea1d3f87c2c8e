// Package node runs Holdfast as it is installed on Kubernetes, by its chart, on a real
// cluster of one node (package onenode): sandboxes are containers, which are warm and
// cold, suspended and resumed, killed for their memory, and drained with their node.
//
// Its tests have the build tag node and need root: `make test-node` sees to all else.
package node

//go:build node

package node_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/e2e/node/onenode"
)

// TestNetworkPolicy looks out from inside a sandbox: the gateway's listener for agents
// is reached, and nothing else that the node itself reaches.
func TestNetworkPolicy(t *testing.T) {
	if os.Getenv(envPolicy) == "" {
		t.Skip("network policies aren't enforced here: run make test-node-policy")
	}
	w := newWorld(t)
	w.runtime("prisoner", 0, agent)
	s := w.create("prisoner", "")
	other := w.create("prisoner", "")
	at := func(namespace, service string) string {
		var of corev1.Service
		if err := cluster.Client.Get(harness.Context(t), client.ObjectKey{Namespace: namespace, Name: service}, &of); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s:%d", of.Spec.ClusterIP, of.Spec.Ports[0].Port)
	}
	pod := func(name string) string {
		var of corev1.Pod
		if err := cluster.Client.Get(harness.Context(t), client.ObjectKey{Namespace: ownSpace, Name: name}, &of); err != nil {
			t.Fatal(err)
		}
		return of.Status.PodIP
	}
	agents := at(ownSpace, release+"-agents")
	closed := map[string]string{
		"the API":           at(ownSpace, release),
		"NATS":              pod(release+"-nats-0") + ":4222",
		"NATS's monitoring": pod(release+"-nats-0") + ":8222",
		"Postgres":          pod(release+"-postgres-0") + ":5432",
		"the API server":    at("default", "kubernetes"),
		"the kubelet":       onenode.NodeIP + ":10250",
		"another sandbox":   w.pods(other.ID)[0].Status.PodIP + ":7778",
	}
	asked := []string{agents}
	for what, address := range closed {
		asked = append(asked, address)
		conn, err := net.DialTimeout("tcp", address, 5*time.Second)
		if err != nil {
			t.Fatalf("%s is reached by nobody: %v", what, err)
		}
		_ = conn.Close()
	}
	said, err := w.invoke(s.ID, "GET", "/reach?to="+url.QueryEscape(strings.Join(asked, ",")), "")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(os.Stdout, said)
	if !strings.Contains(said, agents+" yes") {
		t.Error("the agents' listener isn't reached")
	}
	for what, address := range closed {
		if !strings.Contains(said, address+" no") {
			t.Errorf("%s at %s is reached", what, address)
		}
	}
	w.end(other.ID)
	w.end(s.ID)
}

//go:build node

package node_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/e2e/node/onenode"
)

// startPatience bounds the whole start, patience the waits of a test.
const (
	startPatience = 5 * time.Minute
	patience      = 90 * time.Second
)

const (
	// envPolicy asks for a cluster that enforces network policies.
	envPolicy = "HOLDFAST_NODE_POLICY"
	// envGVisor asks for one that has gVisor; scripts/node.sh reads it, too.
	envGVisor = "HOLDFAST_NODE_GVISOR"
)

// cluster, and Holdfast on it, are what all tests share; they run one after the other.
var (
	cluster  *onenode.Node
	holdfast *installation
)

func TestMain(m *testing.M) { os.Exit(runMain(m)) }

func runMain(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), startPatience)
	defer cancel()
	var err error
	cluster, err = onenode.Start(ctx, onenode.Options{
		NetworkPolicies: os.Getenv(envPolicy) != "", GVisor: os.Getenv(envGVisor) != "",
	})
	if errors.Is(err, onenode.ErrUnprepared) {
		fmt.Fprintln(os.Stderr, "skipped:", err)
		return 69
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "no cluster:", err)
		return 1
	}
	defer cluster.Stop()
	fmt.Fprintf(os.Stdout, "the node is ready after %s\n", cluster.ReadyAfter.Round(100*time.Millisecond))
	if err := cluster.InstallAgentSandbox(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "agent-sandbox:", err)
		return 1
	}
	began := time.Now()
	installed, err := install(ctx)
	if err != nil {
		fmt.Fprintf(os.Stderr, "Holdfast: %v\n%s", err, cluster.Describe(context.Background()))
		return 1
	}
	holdfast = installed
	fmt.Fprintf(os.Stdout, "Holdfast is ready %s after its chart\n", time.Since(began).Round(100*time.Millisecond))
	code := m.Run()
	if err := cluster.Failures(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}

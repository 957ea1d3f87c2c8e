package kube_test

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/migrations/pgtest"
	"github.com/holdfast-io/holdfast/services/internal/kubetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(tidy{kubetest.Main(pgtest.Main(m))},
		// klog flushes its files for ever.
		goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
		// A queue of controller-runtime that is shut down while it hands something out waits for ever.
		goleak.IgnoreTopFunction("sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue.(*priorityqueue[...]).handleReadyItems.func1.1"))
}

// tidy closes the connections that HTTP clients keep, which are no leak.
type tidy struct{ tests interface{ Run() int } }

// Run implements goleak's TestingM.
func (t tidy) Run() int {
	code := t.tests.Run()
	if transport, ok := http.DefaultTransport.(*http.Transport); ok {
		transport.CloseIdleConnections()
	}
	return code
}

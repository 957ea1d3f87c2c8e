package kubetest_test

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/services/internal/kubetest"
)

// programEnv makes the test binary be one of the programs of a container.
const programEnv = "KUBETEST_PROGRAM"

func TestMain(m *testing.M) {
	switch os.Getenv(programEnv) {
	case "":
		goleak.VerifyTestMain(kubetest.Main(m),
			// klog flushes its files for ever, and a workqueue's metrics may be updated once more.
			goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"),
			// A queue of controller-runtime that is shut down while it hands something out waits for ever.
			goleak.IgnoreTopFunction("sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue.(*priorityqueue[...]).handleReadyItems.func1.1"))
	case "serve":
		serve()
	case "fail":
		fmt.Fprintln(os.Stdout, "there is nothing to do")
		os.Exit(3)
	case "once":
		os.Exit(0)
	}
}

// serve answers at LISTEN with its identity, and with what is in NOTES; a PUT appends
// to that. It ends on SIGTERM, unless STUBBORN is set.
func serve() {
	if os.Getenv("STUBBORN") != "" {
		signal.Ignore(syscall.SIGTERM)
	}
	notes := filepath.Join(os.Getenv("NOTES"), "notes")
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "%s %s", os.Getenv("WHO"), os.Getenv("UID"))
	})
	mux.HandleFunc("GET /notes", func(w http.ResponseWriter, _ *http.Request) {
		text, _ := os.ReadFile(notes)
		_, _ = w.Write(text)
	})
	mux.HandleFunc("PUT /notes", func(_ http.ResponseWriter, r *http.Request) {
		_ = os.WriteFile(notes, []byte(r.URL.Query().Get("text")), 0o600)
	})
	mux.HandleFunc("GET /token", func(w http.ResponseWriter, _ *http.Request) {
		text, _ := os.ReadFile(os.Getenv("TOKEN_FILE"))
		_, _ = w.Write(text)
	})
	if err := http.ListenAndServe(os.Getenv("LISTEN"), mux); err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
}

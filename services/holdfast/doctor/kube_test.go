package doctor

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/services/internal/clusterfile"
)

// seconds is what a verdict on an API server that can't be used may take; each call has
// five.
const seconds = 15 * time.Second

// An API server that can't be asked is said so in seconds, whatever it is that it does.
func TestAPIServerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	mute, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	gone, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	half := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // knows who asks, and hangs then
		if r.URL.Path == "/apis/authentication.k8s.io/v1/selfsubjectreviews" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1","status":{"userInfo":{"username":"ann"}}}`))
			return
		}
		<-over
	}))
	defer half.Close()
	defer close(over)
	refuses := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer refuses.Close()
	for name, c := range map[string]struct {
		host  string
		words []string
	}{
		"says nothing": {"http://" + mute.Addr().String(), []string{mute.Addr().String() + " doesn't answer", "can be reached from here"}},
		"isn't there":  {"http://" + gone.Addr().String(), []string{gone.Addr().String() + " doesn't answer", "can be reached from here"}},
		"hangs":        {half.URL, []string{half.URL + " doesn't answer", "can be reached from here"}},
		"refuses":      {refuses.URL, []string{"KUBECONFIG"}},
	} {
		k, err := newKube(&rest.Config{Host: c.host}, "", clusterfile.File{Namespace: "own", Tenants: map[string]string{"a": "ns-1"}})
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*seconds)
		found := k.examine(ctx, true)
		cancel()
		if took := time.Since(begun); took > seconds {
			t.Errorf("%s: it took %s", name, took)
		}
		if len(found) != 1 {
			t.Errorf("%s: found %+v", name, found)
		}
		want(t, found, "kube.api", Broken, c.words...)
	}
}

package workload

import (
	"crypto/ed25519"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/services/internal/clusterfile"
)

func TestKubernetesNeedsAnAddress(t *testing.T) {
	t.Parallel()
	for url, says := range map[string]string{
		"http://10.0.0.7:7071": "", "http://[fd00::7]:7071": "",
		"http://gateway:7071": "resolves no names", "https://10.0.0.7:7071": "http://address:port", "http://10.0.0.7": "http://address:port", "": "http://address:port", "http://10.0.0.7:7071/": "http://address:port",
	} {
		err := Kubernetes{Rest: &rest.Config{}, Replica: "r", AgentsURL: url}.validate()
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", url, err, says)
		}
	}
	for _, k := range []Kubernetes{{AgentsURL: "http://10.0.0.7:7071", Replica: "r"}, {AgentsURL: "http://10.0.0.7:7071", Rest: &rest.Config{}}} {
		if k.validate() == nil {
			t.Errorf("%+v is accepted", k)
		}
	}
}

// What nobody has proven here is not said of a session without saying so.
func TestUnprovenIsolationIsShown(t *testing.T) {
	t.Parallel()
	file := clusterfile.File{Image: "holdfast:1", Instance: "h", Namespace: "ns", RuntimeClasses: map[string]string{"gvisor": "gvisor", "kata": "kata"}}
	for _, tc := range []struct {
		verified []string
		class    string
		want     string
	}{
		{nil, "", "unverified:container"},
		{[]string{clusterfile.ClusterDefault}, "", "container"},
		{[]string{"gvisor"}, "gvisor", "gvisor"},
		{[]string{"gvisor"}, "kata", "unverified:kata"},
	} {
		file.Verified = tc.verified
		pods := Kubernetes{Cluster: file}.pods(make(ed25519.PublicKey, ed25519.PublicKeySize))
		if got, ok := pods.Isolation(tc.class); !ok || got != tc.want {
			t.Errorf("class %q with %v proven is %q, want %q", tc.class, tc.verified, got, tc.want)
		}
	}
}

package agentsandbox

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	sandboxclient "sigs.k8s.io/agent-sandbox/clients/k8s/clientset/versioned"
	extclient "sigs.k8s.io/agent-sandbox/clients/k8s/extensions/clientset/versioned"

	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/kubetest"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
	"github.com/holdfast-io/holdfast/services/workload/internal/tokenreview"
)

// deadline bounds every wait of a test.
const deadline = 60 * time.Second

// bench is one test's driver, in a namespace of its own.
type bench struct {
	*Driver
	t       *testing.T
	cluster *kubetest.Cluster
	ns      string
	agents  string // URL of what stands for the gateway
	signer  ed25519.PrivateKey
	until   time.Time // of binds

	kube      kubernetes.Interface
	sandboxes sandboxclient.Interface
	ext       extclient.Interface
}

// set starts a driver on the test cluster, with something to redeem binds at.
func set(t *testing.T) *bench {
	t.Helper()
	cluster := kubetest.Start(t)
	cluster.Image("holdfast", kubetest.Holdfast(filepath.Join(built, "sandboxd")))
	cluster.Image("probe", kubetest.Image{Argv: probe, Env: []string{"LOOPBACK=127.0.0.1"}})
	_, key, err := ed25519.GenerateKey(nil)
	must(t, err)
	b := &bench{t: t, cluster: cluster, ns: cluster.Namespace(t), signer: key, until: time.Now().Add(time.Hour).Truncate(time.Second)}
	config := cluster.Config()
	b.kube, b.sandboxes, b.ext = kubernetes.NewForConfigOrDie(config), sandboxclient.NewForConfigOrDie(config), extclient.NewForConfigOrDie(config)
	b.serveAgents()
	b.Driver = b.another()
	return b
}

// another is another replica's driver on the same namespace.
func (b *bench) another() *Driver { return b.open(nil) }

// replica is one of several that know of each other.
func (b *bench) replica(name string, change ...func(*Config)) *Driver {
	return b.open(&Lease{Namespace: b.ns, Group: "replicas", Identity: name, For: leaseFor}, change...)
}

// leaseFor is how soon a replica that doesn't renew is taken for gone here.
const leaseFor = 3 * time.Second

func (b *bench) open(lease *Lease, change ...func(*Config)) *Driver {
	b.t.Helper()
	anyone := []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}
	cfg := Config{
		Rest: b.cluster.Config(), Namespace: func(string) string { return b.ns }, Namespaces: []string{b.ns}, Nodes: true, Lease: lease,
		Template: podtemplate.Options{
			Image: "holdfast", BindKey: b.public(), Callers: anyone, Agents: anyone, AgentsPort: 7071, ServiceAccount: "default",
		},
		Log: slog.New(slog.NewTextHandler(b.t.Output(), nil)),
	}
	for _, c := range change {
		c(&cfg)
	}
	d, err := New(b.t.Context(), cfg)
	must(b.t, err)
	b.t.Cleanup(func() { must(b.t, d.Close()) })
	return d
}

func (b *bench) public() ed25519.PublicKey {
	public, _ := b.signer.Public().(ed25519.PublicKey)
	return public
}

// serveAgents serves what a gateway does for binds: who the Pod is says the API server.
func (b *bench) serveAgents() {
	b.t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(b.t.Context(), "tcp", net.JoinHostPort(b.cluster.HostIP(), "0"))
	must(b.t, err)
	b.agents = "http://" + l.Addr().String()
	reviewer := tokenreview.New(b.kube.AuthenticationV1())
	grant := func(w http.ResponseWriter, r *http.Request) {
		var body sandboxapi.BindRequest
		err := json.NewDecoder(r.Body).Decode(&body)
		signed, readErr := bind.Read(b.public(), body.Bind)
		pod, reviewErr := reviewer.Review(r.Context(), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		if errors.Join(err, readErr, reviewErr) != nil || pod != bind.Pod(signed.PodUID) {
			http.Error(w, "no", http.StatusForbidden)
			return
		}
		claims := sandboxtoken.Claims{Tenant: signed.Tenant, Session: signed.Session, Generation: signed.Generation, PodUID: signed.PodUID}
		token, expires, err := sandboxtoken.Mint(b.signer, claims, time.Now())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(sandboxapi.Grant{
			Tenant: signed.Tenant, Session: signed.Session, Generation: signed.Generation, PodUID: signed.PodUID,
			Token: token, ExpiresUnix: expires.Unix(),
		})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+sandboxapi.PathRedeem, grant)
	mux.HandleFunc("POST "+sandboxapi.PathRenew, grant)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: deadline}
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	b.t.Cleanup(func() {
		must(b.t, server.Close())
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			b.t.Error(err)
		}
	})
}

// Bind signs what the suite words as "tenant/session/generation", for the incarnation that
// is there.
func (b *bench) Bind(ctx context.Context, ref driver.Ref, words string) (sandboxapi.Health, error) {
	at, err := b.Locate(ctx, ref)
	if err != nil {
		return sandboxapi.Health{}, err
	}
	parts := strings.Split(words, "/")
	generation, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil {
		return sandboxapi.Health{}, err
	}
	signed, err := bind.Sign(b.signer, bind.Bind{
		Tenant: parts[0], Session: parts[1], Generation: generation, PodUID: at.PodUID, Agents: b.agents,
	}, b.until)
	if err != nil {
		return sandboxapi.Health{}, err
	}
	return b.Driver.Bind(ctx, ref, signed)
}

// Access implements drivertest.Accessor.
func (b *bench) Access(ref driver.Ref, podUID string) string {
	token, _, err := sandboxtoken.MintAccess(b.signer, sandboxtoken.Claims{
		Tenant: ref.Tenant, Session: ref.Session, Generation: ref.Generation, PodUID: podUID,
	}, time.Now())
	must(b.t, err)
	return token
}

// probe is what the image "probe" runs: probeagent, in the workspace as an image's working
// directory would have it, or the command itself.
func probe(c kubetest.Container) ([]string, error) {
	if c.Command[0] != "probeagent" {
		return c.Command, nil
	}
	return []string{"/bin/sh", "-c", "cd " + c.Mounts["/workspace"] + " && exec " + filepath.Join(built, "probeagent")}, nil
}

// runtime has probeagent as its entrypoint.
func (b *bench) runtime() driver.RuntimeSpec {
	return driver.RuntimeSpec{
		Name: "default.probe", Revision: 1, Kind: "agent", Adapter: "none",
		Argv: []string{"probeagent"}, Port: 8000, ReadyPath: "/health",
		WorkspacePath: "/workspace", Pod: &driver.PodSpec{Image: "probe", Grace: time.Second},
	}
}

// claim is a session's first.
func (b *bench) claim(session string) driver.Claim {
	return driver.Claim{
		Ref: driver.Ref{Tenant: "default", Session: session, Generation: 1}, Intent: 5, Epoch: "e-1", Runtime: b.runtime(),
	}
}

// within is a context that ends with the test's patience.
func (b *bench) within() context.Context {
	ctx, cancel := context.WithTimeout(b.t.Context(), deadline)
	b.t.Cleanup(cancel)
	return ctx
}

// event is the next loss that is told, or the next that has to leave its place.
func (b *bench) event(draining bool) driver.Event {
	b.t.Helper()
	for {
		select {
		case e := <-b.Events():
			if e.Draining == draining {
				return e
			}
		case <-b.within().Done():
			b.t.Fatal("no event")
		}
	}
}

// pod is the Pod of a claim as the API server has it.
func (b *bench) pod(ref driver.Ref) *corev1.Pod {
	b.t.Helper()
	key := mustKey(b.t, b, ref)
	pod := b.sight(key).pod()
	if pod == nil {
		b.t.Fatalf("claim %s has no Pod", key)
	}
	return pod
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Subject {
		t.Helper()
		t.Parallel() // each has a namespace of its own
		b := set(t)
		return drivertest.Subject{Driver: b, Runtime: b.runtime(), Isolation: podtemplate.IsolationContainer}
	})
}

func mustKey(t *testing.T, b *bench, ref driver.Ref) types.NamespacedName {
	t.Helper()
	key, err := b.keyFor(ref)
	must(t, err)
	return key
}

package agentsandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	sandboxclient "sigs.k8s.io/agent-sandbox/clients/k8s/clientset/versioned"
	extclient "sigs.k8s.io/agent-sandbox/clients/k8s/extensions/clientset/versioned"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/roster"
)

// errNamespace is wrapped where a tenant's sandboxes would be where nobody looks.
var errNamespace = fmt.Errorf("%w: a namespace that isn't watched", driver.ErrInvalid)

// Driver runs sandboxes on Kubernetes. It implements driver.Driver.
type Driver struct {
	cfg       Config
	kube      kubernetes.Interface
	sandboxes sandboxclient.Interface
	ext       extclient.Interface

	scopes      map[string]*scope         // by namespace; one for metav1.NamespaceAll
	nodes       cache.SharedIndexInformer // nil unless Config.Nodes
	nodeFactory informers.SharedInformerFactory
	notices     notices
	memos       memos
	events      *driver.Queue
	locks       driver.Locks
	pools       poolMemory
	released    *lru.Cache[driver.SessionKey, uint64] // the newest intents of what is gone
	namespaces  namespaceUIDs
	writes      workqueue.TypedRateLimitingInterface[types.NamespacedName]
	newcomers   workqueue.TypedInterface[types.NamespacedName] // warm Pods to be asked for their processes
	processes   *processes

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	closed sync.Once
	roster *roster.Roster // nil for one replica
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Backstop  = (*Driver)(nil)
	_ driver.Explainer = (*Driver)(nil)
	_ driver.Shared    = (*Driver)(nil)
	_ driver.Keeper    = (*Driver)(nil)
	_ driver.Upholder  = (*Driver)(nil)
	_ driver.Leaver    = (*Driver)(nil)
	_ driver.Prover    = (*Driver)(nil)
)

const (
	// remembered is how many released sessions' intents are kept, some 200 bytes each.
	remembered = 1 << 16
	// writers write down what was handed out, behind who asked for it.
	writers = 4
	// What failed is tried again after the first of these, then after twice as long, up to
	// the last: a loss that the API server couldn't confirm while it was away is told soon
	// after it is back.
	firstAgain, lastAgain = 50 * time.Millisecond, 10 * time.Second
)

// New watches the cluster and starts. It waits until all that exists is known, a minute at
// most, or ErrRights says what it may not; losses that happened before are told by Events.
func New(ctx context.Context, cfg Config) (*Driver, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	d := &Driver{cfg: cfg, scopes: map[string]*scope{}}
	if err := d.connect(); err != nil {
		return nil, fmt.Errorf("agent-sandbox driver: %w", err)
	}
	var err error
	if d.released, err = lru.New[driver.SessionKey, uint64](remembered); err != nil {
		return nil, fmt.Errorf("agent-sandbox driver: %w", err)
	}
	if d.processes, err = lru.New[string, string](acquainted); err != nil {
		return nil, fmt.Errorf("agent-sandbox driver: %w", err)
	}
	d.events, d.newcomers = driver.NewQueue(), workqueue.NewTyped[types.NamespacedName]()
	d.writes = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](firstAgain, lastAgain))
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if err := d.watchAll(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("agent-sandbox driver: %w", err), d.Close())
	}
	for range writers {
		d.tasks.Go(d.write)
	}
	for range askers {
		d.tasks.Go(d.ask)
	}
	if err := d.share(); err != nil {
		return nil, errors.Join(fmt.Errorf("agent-sandbox driver: %w", err), d.Close())
	}
	d.cfg.Log.Info("agent-sandbox driver started", "namespaces", cfg.Namespaces, "nodes", cfg.Nodes)
	return d, nil
}

// connect makes the clients.
func (d *Driver) connect() (err error) {
	r := d.cfg.rest()
	if d.kube, err = kubernetes.NewForConfig(r); err != nil {
		return err
	}
	if d.sandboxes, err = sandboxclient.NewForConfig(r); err != nil {
		return err
	}
	d.ext, err = extclient.NewForConfig(r)
	return err
}

// watchAll starts the informers of every namespace.
func (d *Driver) watchAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, errSilent)
	defer cancel()
	for _, ns := range d.watched() {
		s, err := d.newScope(ns)
		if err != nil {
			return err
		}
		d.scopes[ns] = s
	}
	// Nodes first: whatever is judged may ask for them.
	if err := d.watchNodes(ctx); err != nil {
		return err
	}
	for _, s := range d.scopes {
		if err := d.start(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// Close ends the watches; sandboxes go on. What was handed out last may not be written
// down, which the log makes good.
func (d *Driver) Close() error {
	d.closed.Do(func() {
		d.cancel()
		d.locks.Drain()
		d.writes.ShutDown()
		d.newcomers.ShutDown()
		d.tasks.Wait()
		for _, s := range d.scopes {
			for _, f := range s.factories {
				f.Shutdown()
			}
		}
		if d.nodeFactory != nil {
			d.nodeFactory.Shutdown()
		}
		d.events.Close()
	})
	return nil
}

// Events tells of incarnations that are lost.
func (d *Driver) Events() <-chan driver.Event { return d.events.Out() }

// List returns every sandbox that a session has, in the order of their names, as the
// informers show it.
func (d *Driver) List(context.Context) ([]driver.Found, error) {
	if d.ctx.Err() != nil {
		return nil, driver.ErrClosed
	}
	var list []driver.Found
	for _, s := range d.scopes {
		for _, o := range s.claims.GetStore().List() {
			claim, ok := o.(*extensionsv1beta1.SandboxClaim)
			if !ok {
				continue
			}
			if ref, ours := d.ours(claim); ours && claim.DeletionTimestamp == nil {
				list = append(list, d.describe(ref, d.sightOf(s, claim)))
			}
		}
	}
	slices.SortFunc(list, func(a, b driver.Found) int { return a.Compare(b.Ref) })
	return list, nil
}

// ours says whose a claim is. One in another namespace than its tenant's is nobody's, and
// one that somebody else made is theirs, even if it is a copy of ours.
func (d *Driver) ours(claim *extensionsv1beta1.SandboxClaim) (driver.Ref, bool) {
	ref, ok := refOf(claim)
	return ref, ok && d.cfg.Namespace(ref.Tenant) == claim.Namespace && madeByUs(claim)
}

// describe is a claim in a list.
func (d *Driver) describe(ref driver.Ref, s sight) driver.Found {
	m, _ := d.memos.of(s.claim)
	v := d.verdict(s)
	f := driver.Found{
		Ref: ref, SandboxUID: string(v.sandbox), PodUID: v.incarnation, Intent: m.intent, Epoch: s.claim.Annotations[annEpoch],
		State: driver.StateRunning, Since: s.claim.CreationTimestamp.Time,
	}
	if v.sure {
		f.State, f.Cause = v.state, v.cause
	}
	return f
}

// keyFor names the claim of a sandbox.
func (d *Driver) keyFor(ref driver.Ref) (types.NamespacedName, error) {
	if err := ref.Validate(); err != nil {
		return types.NamespacedName{}, err
	}
	ns, err := d.cfg.namespace(ref.Tenant)
	return types.NamespacedName{Namespace: ns, Name: claimName(ref)}, err
}

// Locate says where the incarnation that was handed out is reached.
func (d *Driver) Locate(_ context.Context, ref driver.Ref) (driver.Endpoint, error) {
	s, was, err := d.running(ref)
	if err != nil {
		return driver.Endpoint{}, err
	}
	return driver.Endpoint{URL: addressOf(s.pods[0]), PodUID: was.incarnation, Relayed: true}, nil
}

// running is a claim whose incarnation, as it was handed out, runs.
func (d *Driver) running(ref driver.Ref) (sight, record, error) {
	key, err := d.keyFor(ref)
	if err != nil {
		return sight{}, record{}, err
	}
	s := d.sight(key)
	if s.claim == nil || s.claim.DeletionTimestamp != nil {
		return sight{}, record{}, notFound(ref)
	}
	v := d.verdict(s)
	switch {
	case v.record == record{}:
		return sight{}, record{}, notRunning(ref, driver.CauseSlow)
	case !v.sure:
		return sight{}, record{}, fmt.Errorf("session %s: %w: its Pod is not shown yet", ref.Session, driver.ErrUnreachable)
	case v.state != driver.StateRunning:
		return sight{}, record{}, notRunning(ref, string(v.state)+" "+v.cause)
	case s.pods[0].Status.PodIP == "":
		return sight{}, record{}, notRunning(ref, "it has no address")
	}
	return s, v.record, nil
}

func notFound(ref driver.Ref) error {
	return fmt.Errorf("session %s, generation %d: %w", ref.Session, ref.Generation, driver.ErrNotFound)
}

func notRunning(ref driver.Ref, why string) error {
	return fmt.Errorf("session %s, generation %d: %w: %s", ref.Session, ref.Generation, driver.ErrNotRunning, why)
}

// Bind hands the signed bind to the sandbox.
func (d *Driver) Bind(ctx context.Context, ref driver.Ref, bind string) (sandboxapi.Health, error) {
	at, err := d.Locate(ctx, ref)
	if err != nil {
		return sandboxapi.Health{}, err
	}
	health, err := driver.Bind(ctx, at.URL, bind)
	if err != nil {
		d.mistaken(at.PodUID, err)
		err = errors.Join(err, d.hopeless(ref))
	}
	return health, err
}

// Ready waits until the sandbox's entrypoint answers, and its volume would outlive it. The
// entrypoint's end is the kubelet's to know: sandboxd is in another container.
func (d *Driver) Ready(ctx context.Context, ref driver.Ref, bound sandboxapi.Health) (sandboxapi.Health, error) {
	at, err := d.Locate(ctx, ref)
	if err != nil {
		return sandboxapi.Health{}, errors.Join(err, d.hopeless(ref))
	}
	key, err := d.keyFor(ref)
	if err != nil {
		return sandboxapi.Health{}, err
	}
	changed, stop := d.notices.watch(key)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for {
			if err := d.hopeless(ref); err != nil {
				cancel(err)
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	health, err := driver.Ready(ctx, at.URL, bound)
	if err == nil {
		err = d.lasting(ctx, ref, key)
	}
	if cause := context.Cause(ctx); err != nil && (errors.Is(cause, driver.ErrEntrypoint) || errors.Is(cause, driver.ErrStart)) {
		err = cause
	}
	cancel(nil)
	<-watching
	return health, err
}

// failedAgent is ErrEntrypoint once the agent's container has ended, in the incarnation
// that was handed out or by a restart after it.
func (d *Driver) failedAgent(ref driver.Ref) error {
	key, err := d.keyFor(ref)
	if err != nil {
		return err
	}
	s := d.sight(key)
	if s.pod() == nil {
		return nil
	}
	_, was := d.memos.of(s.claim)
	end, over := agentEnd(s.pod())
	if !over && (end == nil || was == record{} || incarnationOf(s.pod()) == was.incarnation) {
		return nil
	}
	return agentError(end)
}

package agentsandbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

// fails wants a claim to fail for good with a cause, long before its caller gives up.
func (b *bench) fails(c driver.Claim, cause string) {
	b.t.Helper()
	_, err := b.Claim(b.within(), c)
	start, ok := errors.AsType[*driver.StartError](err)
	if !ok || start.Cause != cause || !start.Final || start.Detail == "" {
		b.t.Errorf("claim: %v, want a final %s with what the cluster says", err, cause)
	}
}

func TestExceededQuotaFailsAtOnce(t *testing.T) {
	t.Parallel()
	b := set(t)
	_, err := b.kube.CoreV1().ResourceQuotas(b.ns).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"pods": resource.MustParse("0")}},
	}, metav1.CreateOptions{})
	must(t, err)
	b.cluster.Eventually(t, "the quota is in force", func(ctx context.Context) (bool, error) {
		q, err := b.kube.CoreV1().ResourceQuotas(b.ns).Get(ctx, "none", metav1.GetOptions{})
		return err == nil && len(q.Status.Used) == 1, err
	})
	b.fails(b.claim("s-1"), driver.CauseQuota)
}

func TestUnknownImageFailsAtOnce(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	c.Runtime.Revision, c.Runtime.Pod = 2, &driver.PodSpec{Image: "there/is/none"}
	b.fails(c, driver.CauseImage)
}

func TestRefusedPodFailsAtOnce(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	// The API server has no such priority class, and says so of the Pod alone.
	c.Runtime.Revision, c.Runtime.Argv, c.Runtime.Pod = 2, nil, &driver.PodSpec{
		PodTemplate: []byte(`{"spec":{"serviceAccountName":"default","priorityClassName":"none","containers":[{"name":"agent","image":"probe","command":["probeagent"]}]}}`),
	}
	b.fails(c, driver.CauseAdmission)
}

// Room may come, so it is waited for; but that there is none is known.
func TestUnschedulableIsWaitedForAndExplained(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	c.Runtime.Revision, c.Runtime.Argv, c.Runtime.Pod = 2, nil, &driver.PodSpec{
		PodTemplate: []byte(`{"spec":{"serviceAccountName":"default","nodeSelector":{"there":"is-none"},"containers":[{"name":"agent","image":"probe","command":["probeagent"]}]}}`),
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := b.Claim(ctx, c)
	start, ok := errors.AsType[*driver.StartError](err)
	if !ok || start.Cause != driver.CauseUnschedulable || start.Final || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("claim: %v, want that it is unschedulable so far", err)
	}
	if why := b.Explain(t.Context(), c.Ref); why == nil || why.Cause != driver.CauseUnschedulable {
		t.Errorf("explained as %v", why)
	}
	must(t, b.Release(b.within(), c.Ref, 6, false))
}

// Somebody removes what a claim needs: it is made again.
func TestMissingTemplateIsMended(t *testing.T) {
	t.Parallel()
	b := set(t)
	first := b.claim("s-1")
	drivertest.Start(t, b, first)
	name := templateName(first.Runtime.Name, first.Runtime.Revision)
	templates, pools := b.ext.ExtensionsV1beta1().SandboxTemplates(b.ns), b.ext.ExtensionsV1beta1().SandboxWarmPools(b.ns)
	must(t, templates.Delete(t.Context(), name, metav1.DeleteOptions{}))
	drivertest.Start(t, b, b.claim("s-2"))
	must(t, pools.Delete(t.Context(), name, metav1.DeleteOptions{}))
	drivertest.Start(t, b, b.claim("s-3"))
}

// The create is delivered twice, to two replicas at once.
func TestCreatedTwiceIsOneClaim(t *testing.T) {
	t.Parallel()
	b := set(t)
	other := b.another()
	c := b.claim("s-1")
	boxes := make([]driver.Sandbox, 2)
	var wg sync.WaitGroup
	for i, d := range []*Driver{b.Driver, other} {
		wg.Go(func() {
			var err error
			if boxes[i], err = d.Claim(b.within(), c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if boxes[0].PodUID != boxes[1].PodUID || boxes[0].SandboxUID != boxes[1].SandboxUID {
		t.Errorf("two replicas claimed %+v and %+v", boxes[0], boxes[1])
	}
	b.claims(1)
}

// claims wants so many claims on the cluster.
func (b *bench) claims(n int) {
	b.t.Helper()
	list, err := b.ext.ExtensionsV1beta1().SandboxClaims(b.ns).List(b.t.Context(), metav1.ListOptions{})
	must(b.t, err)
	if len(list.Items) != n {
		b.t.Errorf("%d claims, want %d", len(list.Items), n)
	}
}

// A process makes the claim and dies before it says so.
func TestClaimOfAProcessThatDiedIsTakenUp(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	key := mustKey(t, b, c.Ref)
	must(t, b.applyShared(t.Context(), c.Runtime, keyOf(&metav1.ObjectMeta{Namespace: b.ns, Name: templateName(c.Runtime.Name, 1)}), false))
	_, err := b.ext.ExtensionsV1beta1().SandboxClaims(b.ns).Create(t.Context(), newClaim(c, key, templateName(c.Runtime.Name, 1)), metav1.CreateOptions{FieldManager: FieldManager})
	must(t, err)
	if _, err := b.Claim(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("claim: %v", err)
	}
	must(t, b.Driver.Close())
	b.Driver = b.another()
	found, err := b.List(t.Context())
	must(t, err)
	if len(found) != 1 || found[0].Ref != c.Ref || found[0].Epoch != c.Epoch || found[0].Intent != c.Intent {
		t.Errorf("found %+v, want the claim of the process before", found)
	}
	drivertest.Start(t, b, c)
	b.claims(1)
}

// Seven at once on an empty pool, and twenty on one of three.
func TestManyClaimsAtOnce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ pool, claims int }{
		"seven cold":                {0, 7},
		"twenty on a pool of three": {3, 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := set(t)
			spec := b.claim("").Runtime
			if tc.pool > 0 {
				must(t, b.EnsurePool(t.Context(), spec, tc.pool))
				b.poolReady(spec, int32(tc.pool))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*deadline)
			defer cancel()
			var wg sync.WaitGroup
			for i := range tc.claims {
				wg.Go(func() {
					c := b.claim(fmt.Sprintf("s-%d", i))
					if _, err := b.Claim(ctx, c); err != nil {
						t.Errorf("claim %d: %v", i, err)
					}
				})
			}
			wg.Wait()
			pods := map[string]bool{}
			found, err := b.List(ctx)
			must(t, err)
			for _, f := range found {
				pods[f.PodUID] = f.State == driver.StateRunning
			}
			if len(found) != tc.claims || len(pods) != tc.claims {
				t.Errorf("%d sandboxes on %d Pods, want %d", len(found), len(pods), tc.claims)
			}
			for i := range tc.claims {
				wg.Go(func() { must(t, b.Release(ctx, b.claim(fmt.Sprintf("s-%d", i)).Ref, 6, false)) })
			}
			wg.Wait()
			b.claims(0)
		})
	}
}

// What an agent printed last says why it failed, where nobody else sees its output.
func TestFailedAgentSaysItsLastWords(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	c.Runtime.Revision, c.Runtime.Argv = 2, []string{"/bin/sh", "-c", "echo no such model >&2; exit 3"}
	_, err := b.Claim(b.within(), c)
	if err == nil {
		_, err = b.Ready(b.within(), c.Ref, sandboxapi.Health{})
	}
	failed, ok := errors.AsType[*driver.EntrypointError](err)
	if !ok || !errors.Is(err, driver.ErrEntrypoint) || !strings.Contains(failed.Words, "no such model") || failed.Reason != "exit code 3 (Error)" {
		t.Errorf("ready: %v, %+v", err, failed)
	}
}

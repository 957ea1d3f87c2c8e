package kube_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extensionsv1beta1 "sigs.k8s.io/agent-sandbox/extensions/api/v1beta1"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// bareName begins the names of bare claims.
const bareName = "bare-"

// claimsOf makes bare claims on the pool that a runtime's sessions have, by the official
// client, as the workload service's account; each is watched until it is Ready. They are
// deleted, which doesn't count.
func (b *bench) claimsOf(runtime string, pool int) side {
	b.t.Helper()
	return func(n int) []time.Duration {
		b.t.Helper()
		name := b.poolOf(runtime)
		b.full(runtime, pool)
		first := b.bares
		b.bares += n
		took := make([]time.Duration, n)
		together(n, func(i int) { took[i] = b.bareClaim(bareName+strconv.Itoa(first+i), name, pool) })
		if b.t.Failed() {
			b.t.FailNow()
		}
		harness.Eventually(b.t, "bare claims are gone", func() bool {
			return !slices.ContainsFunc(b.claims(), func(c claim) bool { return strings.HasPrefix(c.Name, bareName) })
		})
		return took
	}
}

// poolOf is the pool of a runtime's sessions. One of no replicas is there while a session
// is.
func (b *bench) poolOf(runtime string) string {
	b.t.Helper()
	pools, err := b.ext.ExtensionsV1beta1().SandboxWarmPools(b.ns).List(b.Context(), metav1.ListOptions{})
	b.must(err)
	for _, p := range pools.Items {
		if strings.HasSuffix(p.Labels[labelRuntime], runtime) {
			return p.Name
		}
	}
	b.t.Fatalf("runtime %s has no pool", runtime)
	return ""
}

func (b *bench) bareClaim(name, pool string, size int) (took time.Duration) {
	claims := b.ext.ExtensionsV1beta1().SandboxClaims(b.ns)
	w, err := claims.Watch(b.t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	if err != nil {
		b.t.Error(err)
		return 0
	}
	defer w.Stop()
	begin := time.Now()
	_, err = claims.Create(b.t.Context(), &claim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       extensionsv1beta1.SandboxClaimSpec{WarmPoolRef: extensionsv1beta1.SandboxWarmPoolRef{Name: pool}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.t.Error(err)
		return 0
	}
	for e := range w.ResultChan() {
		c, ok := e.Object.(*claim)
		if !ok || !meta.IsStatusConditionTrue(c.Status.Conditions, "Ready") {
			continue
		}
		took = time.Since(begin)
		if warm := c.Status.SandboxStatus.Name != name; warm != (size > 0) {
			b.t.Errorf("claim %s has Sandbox %s", name, c.Status.SandboxStatus.Name)
		}
		break
	}
	foreground := metav1.DeletePropagationForeground
	if err := claims.Delete(b.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
		b.t.Error(err)
	}
	return took
}

func (b *bench) podCount() int {
	b.t.Helper()
	pods, err := b.kube.CoreV1().Pods(b.ns).List(b.Context(), metav1.ListOptions{})
	b.must(err)
	return len(pods.Items)
}

// footprint is the resident memory of a workload service that was just started, in bytes.
func (b *bench) footprint() int {
	b.t.Helper()
	child := b.spawn()
	defer child.Kill()
	child.Await("driver started")
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", child.PID()))
	b.must(err)
	pages, err := strconv.Atoi(strings.Fields(string(raw))[1])
	b.must(err)
	return pages * os.Getpagesize()
}

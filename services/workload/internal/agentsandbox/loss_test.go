package agentsandbox

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-io/holdfast/services/internal/kubetest"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
	"github.com/holdfast-io/holdfast/services/workload/internal/podtemplate"
)

// lost checks what is told of a loss, and that nothing is located of it.
func (b *bench) lost(was driver.Sandbox, cause string) {
	b.t.Helper()
	want := driver.Event{Ref: was.Ref, SandboxUID: was.SandboxUID, PodUID: was.PodUID, Cause: cause}
	if got := b.event(false); got != want {
		b.t.Errorf("told %+v, want %+v", got, want)
	}
	found, err := b.List(b.t.Context())
	must(b.t, err)
	if len(found) != 1 || found[0].State != driver.StateLost || found[0].PodUID != was.PodUID {
		b.t.Errorf("found %+v, want it lost", found)
	}
	if at, err := b.Locate(b.t.Context(), was.Ref); !errors.Is(err, driver.ErrNotRunning) {
		b.t.Errorf("located at %+v, %v", at, err)
	}
}

// keptBy waits until a claim's volume would outlive its Sandbox.
func (b *bench) keptBy(ref driver.Ref) {
	b.t.Helper()
	key := mustKey(b.t, b, ref)
	if _, err := b.wait(b.within(), key, func(s sight) (bool, error) { return s.claim != nil && recordOf(s.claim).volume != "", nil }); err != nil {
		b.t.Fatalf("the volume isn't kept: %v", err)
	}
}

// warmed is a session's sandbox out of a pool that has another ready.
func (b *bench) warmed(session string, spares int) (driver.Claim, driver.Sandbox) {
	b.t.Helper()
	c := b.claim(session)
	c.Runtime.HasVolume = true
	must(b.t, b.EnsurePool(b.t.Context(), c.Runtime, spares+1))
	b.poolReady(c.Runtime, int32(spares+1))
	box := drivertest.Start(b.t, b, c)
	if box.Path != driver.PathWarm {
		b.t.Fatalf("the sandbox came %s from a full pool", box.Path)
	}
	return c, box
}

// poolReady waits until a pool has so many ready.
func (b *bench) poolReady(spec driver.RuntimeSpec, n int32) {
	b.t.Helper()
	drivertest.Eventually(b.t, "the pool is full", func() bool {
		pool, err := b.ext.ExtensionsV1beta1().SandboxWarmPools(b.ns).Get(b.t.Context(), templateName(spec.Name, spec.Revision), metav1.GetOptions{})
		return err == nil && pool.Status.ReadyReplicas >= n
	})
}

// The claim's Ready never changes: agent-sandbox binds it to the spare.
func TestDeletedSandboxIsLostThoughASpareTakesItsPlace(t *testing.T) {
	t.Parallel()
	b := set(t)
	c, box := b.warmed("s-1", 1)
	if said, code := drivertest.Shell(t, b, c.Ref, "echo kept > file"); code != 0 {
		t.Fatal(said)
	}
	name := b.pod(c.Ref).Name
	must(t, b.sandboxes.AgentsV1beta1().Sandboxes(b.ns).Delete(t.Context(), name, metav1.DeleteOptions{}))
	b.lost(box, driver.CauseSandboxDeleted)

	must(t, b.Release(t.Context(), c.Ref, 6, true))
	next := c
	next.Generation, next.Intent = 2, 7
	again := drivertest.Start(t, b, next)
	if again.SandboxUID == box.SandboxUID || again.PodUID == box.PodUID {
		t.Errorf("the next generation is the lost one: %+v", again)
	}
	if said, _ := drivertest.Shell(t, b, next.Ref, "cat file"); said != "kept" {
		t.Errorf("the volume has %q", said)
	}
}

func TestDeletedPodIsLostThoughItIsMadeAgain(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	box := drivertest.Start(t, b, c)
	must(t, b.kube.CoreV1().Pods(b.ns).Delete(t.Context(), b.pod(c.Ref).Name, metav1.DeleteOptions{}))
	b.lost(box, driver.CausePodDeleted)
	c.Intent = 6
	again := drivertest.Start(t, b, c)
	if again.SandboxUID != box.SandboxUID || again.PodUID == box.PodUID {
		t.Errorf("claimed again %+v, want another Pod of %s", again, box.SandboxUID)
	}
}

func TestRestartedContainersAreLost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		harm  func(*bench, *corev1.Pod) error
		cause string
	}{
		"agent out of memory": {func(b *bench, pod *corev1.Pod) error {
			return b.cluster.OOM(b.ns, pod.Name, podtemplate.AgentContainer)
		}, driver.CauseOOM},
		"sandboxd killed": {func(b *bench, pod *corev1.Pod) error {
			return b.cluster.Kill(b.ns, pod.Name, podtemplate.SidecarContainer, syscall.SIGKILL)
		}, driver.CauseRestarted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := set(t)
			c := b.claim("s-1")
			box := drivertest.Start(t, b, c)
			must(t, tc.harm(b, b.pod(c.Ref)))
			b.lost(box, tc.cause)
		})
	}
}

// What sandboxd knew is gone with it, so its Pod is replaced, whole.
func TestClaimAfterSandboxdWasKilledIsAnotherPod(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	box := drivertest.Start(t, b, c)
	must(t, b.cluster.Kill(b.ns, b.pod(c.Ref).Name, podtemplate.SidecarContainer, syscall.SIGKILL))
	b.lost(box, driver.CauseRestarted)
	c.Intent = 6
	if again := drivertest.Start(t, b, c); podOf(again.PodUID) == podOf(box.PodUID) {
		t.Errorf("claimed again %+v, want another Pod", again)
	}
}

// What a process has handed out, another one knows; and what was lost meanwhile it tells.
func TestAnotherProcessTellsWhatWasLostBefore(t *testing.T) {
	t.Parallel()
	b := set(t)
	c, box := b.warmed("s-1", 0)
	b.keptBy(c.Ref)
	must(t, b.Driver.Close())
	key := mustKey(t, b, box.Ref)
	claim, err := b.ext.ExtensionsV1beta1().SandboxClaims(b.ns).Get(t.Context(), key.Name, metav1.GetOptions{})
	must(t, err)
	must(t, b.kube.CoreV1().Pods(b.ns).Delete(t.Context(), claim.Status.SandboxStatus.Name, metav1.DeleteOptions{}))
	b.Driver = b.another()
	b.lost(box, driver.CausePodDeleted)
}

// A process that dies after it handed a sandbox out, and before that is on the claim: the
// next one has the log's word for it.
func TestWhatWasNotWrittenDownIsKnownFromTheLog(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	box := drivertest.Start(t, b, c)
	must(t, b.Driver.Close())
	var none []string
	for _, name := range []string{annClaim, annSandbox, annIncarnation, annVolumeUID} {
		none = append(none, strconv.Quote(name)+":null")
	}
	claims := b.ext.ExtensionsV1beta1().SandboxClaims(b.ns)
	_, err := claims.Patch(t.Context(), claimName(c.Ref), types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{`+strings.Join(none, ",")+`}}}`), metav1.PatchOptions{})
	must(t, err)

	b.Driver = b.another()
	if at, err := b.Locate(t.Context(), c.Ref); !errors.Is(err, driver.ErrNotRunning) {
		t.Fatalf("located at %+v, %v", at, err)
	}
	b.Remind(c.Ref, box.SandboxUID, box.PodUID)
	if at, err := b.Locate(t.Context(), c.Ref); err != nil || at.PodUID != box.PodUID {
		t.Fatalf("located at %+v, %v", at, err)
	}
	drivertest.Eventually(t, "it is written down", func() bool {
		claim, err := claims.Get(t.Context(), claimName(c.Ref), metav1.GetOptions{})
		return err == nil && recordOf(claim).incarnation == box.PodUID
	})
	// What is written down counts for more: the log may be read a moment before it.
	b.Remind(c.Ref, box.SandboxUID, "another")
	if at, err := b.Locate(t.Context(), c.Ref); err != nil || at.PodUID != box.PodUID {
		t.Errorf("located at %+v, %v", at, err)
	}
}

func TestDeletedClaimIsLost(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	box := drivertest.Start(t, b, c)
	must(t, b.ext.ExtensionsV1beta1().SandboxClaims(b.ns).Delete(t.Context(), claimName(c.Ref), metav1.DeleteOptions{}))
	if e := b.event(false); e.PodUID != box.PodUID || e.Cause != driver.CauseClaimDeleted {
		t.Errorf("told %+v", e)
	}
	if _, err := b.Locate(t.Context(), c.Ref); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("located: %v", err)
	}
}

// A claim of our name that isn't ours is neither used nor removed.
func TestForeignClaimIsRefused(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	drivertest.Start(t, b, c)
	key := mustKey(t, b, c.Ref)
	claims := b.ext.ExtensionsV1beta1().SandboxClaims(b.ns)
	ours, err := claims.Get(t.Context(), key.Name, metav1.GetOptions{})
	must(t, err)
	must(t, claims.Delete(t.Context(), key.Name, metav1.DeleteOptions{}))
	drivertest.Eventually(t, "the claim is gone", func() bool {
		_, err := claims.Get(t.Context(), key.Name, metav1.GetOptions{})
		return err != nil
	})
	copied := ours.DeepCopy()
	copied.ResourceVersion, copied.UID = "", ""
	_, err = claims.Create(t.Context(), copied, metav1.CreateOptions{})
	must(t, err)
	c.Intent = 6
	if _, err := b.Claim(b.within(), c); !errors.Is(err, driver.ErrForeign) {
		t.Errorf("a copy of our claim is claimed: %v", err)
	}
	if err := b.Release(b.within(), c.Ref, 7, false); !errors.Is(err, driver.ErrForeign) {
		t.Errorf("a copy of our claim is released: %v", err)
	}
}

func TestResumeWithoutItsVolumeIsRefused(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	c.Runtime.HasVolume = true
	drivertest.Start(t, b, c)
	b.keptBy(c.Ref)
	volume := volumeOf(b.sight(mustKey(t, b, c.Ref)).sandbox)
	must(t, b.Suspend(b.within(), c.Ref, 6))
	must(t, b.kube.CoreV1().PersistentVolumeClaims(b.ns).Delete(t.Context(), volume, metav1.DeleteOptions{}))
	c.Intent = 7
	if _, err := b.Resume(b.within(), c); !errors.Is(err, driver.ErrWorkspaceGone) {
		t.Errorf("resumed: %v, want that the workspace is gone", err)
	}
}

// A suspend that was decided before a resume, and comes to the cluster after it.
func TestSlowSuspendIsRefusedByAnotherReplica(t *testing.T) {
	t.Parallel()
	b := set(t)
	other := b.another()
	c := b.claim("s-1")
	drivertest.Start(t, b, c)
	must(t, b.Suspend(b.within(), c.Ref, 6))
	c.Intent = 8
	box := drivertest.Restart(t, b, c)
	if err := other.Suspend(b.within(), c.Ref, 7); !errors.Is(err, driver.ErrOlderIntent) {
		t.Errorf("the older suspend: %v", err)
	}
	at, err := b.Locate(t.Context(), c.Ref)
	if err != nil || at.PodUID != box.PodUID {
		t.Errorf("located at %+v, %v, want %s", at, err, box.PodUID)
	}
}

func TestReleaseLeavesNothing(t *testing.T) {
	t.Parallel()
	b := set(t)
	before := b.cluster.Objects(t, b.ns)
	c, _ := b.warmed("s-1", 1)
	b.keptBy(c.Ref)
	must(t, b.Release(b.within(), c.Ref, 6, true))
	c.Generation, c.Intent = 2, 7 // has a template and a pool of its own
	drivertest.Start(t, b, c)
	must(t, b.Suspend(b.within(), c.Ref, 8))
	must(t, b.Release(b.within(), c.Ref, 9, false))
	must(t, b.EnsurePool(b.within(), c.Runtime, 0))
	b.cluster.Eventually(t, "nothing is left", func(context.Context) (bool, error) {
		return strings.Join(b.cluster.Objects(t, b.ns), " ") == strings.Join(before, " "), nil
	})
}

// Informers may lag behind each other: what stands on a claim and was never seen here is
// no loss before the API server says so.
func TestWhatWasNeverSeenIsNotLost(t *testing.T) {
	t.Parallel()
	b := set(t)
	c := b.claim("s-1")
	c.Runtime.HasVolume = true
	box := drivertest.Start(t, b, c)
	b.keptBy(c.Ref) // nothing is written on the claim any more, so that nothing is seen meanwhile
	s := b.sight(mustKey(t, b, c.Ref))
	for what, blind := range map[string]sight{"Sandbox": {claim: s.claim}, "Pod": {claim: s.claim, sandbox: s.sandbox}} {
		b.memos.change(s.claim.UID, func(m *memo) { m.seen = "" })
		if v := b.verdict(blind); v.sure {
			t.Errorf("without its %s it is %s for sure", what, v.state)
		}
		b.judge(blind)
		must(t, b.doubt(t.Context(), blind))
	}
	if at, err := b.Locate(t.Context(), c.Ref); err != nil || at.PodUID != box.PodUID {
		t.Errorf("located at %+v, %v", at, err)
	}
	select {
	case e := <-b.Events():
		t.Errorf("told %+v", e)
	default:
	}
}

// claimOn is a claim of a session whose Pod runs on a node.
func (b *bench) claimOn(session, node string) driver.Claim {
	b.t.Helper()
	c := b.claim(session)
	pod := corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		ServiceAccountName: "default",
		Containers:         []corev1.Container{{Name: podtemplate.AgentContainer, Image: "probe", Command: []string{"probeagent"}}},
	}}
	kubetest.OnNode(&pod.Spec, node)
	raw, err := json.Marshal(pod)
	must(b.t, err)
	c.Runtime.Revision, c.Runtime.Argv, c.Runtime.Pod = 3, nil, &driver.PodSpec{PodTemplate: raw}
	return c
}

// What was warm on a node when it was cordoned still is handed out, and leaves it as well.
func TestClaimOnACordonedNodeHasToLeave(t *testing.T) {
	t.Parallel()
	b := set(t)
	node := b.cluster.Node(t)
	c := b.claimOn("s-1", node)
	must(t, b.EnsurePool(t.Context(), c.Runtime, 1))
	b.poolReady(c.Runtime, 1)
	b.cluster.Cordon(t, node, true)
	drivertest.Eventually(t, "the driver sees it", func() bool { return b.cordoned(node) })
	box := drivertest.Start(t, b, c)
	if why := b.Leaving(c.Ref); box.Path != driver.PathWarm || why != driver.CauseCordoned {
		t.Errorf("%s, leaving for %q", box.Path, why)
	}
	b.cluster.Cordon(t, node, false)
	drivertest.Eventually(t, "it may stay", func() bool { return b.Leaving(c.Ref) == "" })
}

// What is idle on a cordoned node can be put away before the node is drained, and may stay
// once the node takes Pods again.
func TestCordonedNodeIsToldOf(t *testing.T) {
	t.Parallel()
	b := set(t)
	node := b.cluster.Node(t)
	c := b.claimOn("s-1", node)
	box := drivertest.Start(t, b, c)
	leave := driver.Event{Ref: c.Ref, SandboxUID: box.SandboxUID, PodUID: box.PodUID, Cause: driver.CauseCordoned, Draining: true}
	stay := driver.Event{Ref: c.Ref, SandboxUID: box.SandboxUID, PodUID: box.PodUID, Stays: true}
	for _, want := range []driver.Event{leave, stay, leave} {
		b.cluster.Cordon(t, node, want.Draining)
		if got := b.event(want.Draining); got != want {
			t.Errorf("told %+v, want %+v", got, want)
		}
	}
	if at, err := b.Locate(t.Context(), c.Ref); err != nil || at.PodUID != box.PodUID {
		t.Errorf("located at %+v, %v: it runs on", at, err)
	}
	// The drain evicts it.
	must(t, b.kube.PolicyV1().Evictions(b.ns).Evict(t.Context(), &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.ns, Name: b.pod(c.Ref).Name},
	}))
	b.lost(box, driver.CauseEvicted)
}

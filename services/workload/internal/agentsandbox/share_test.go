package agentsandbox

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/holdfast-io/holdfast/services/internal/kubetest"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver/drivertest"
)

// errCut is what a replica gets that doesn't reach the API server.
var errCut = errors.New("cut off")

// cutOff has a replica not reach the API server any more once cut is set.
type cutOff struct {
	next http.RoundTripper
	cut  *atomic.Bool
}

func (c cutOff) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.cut.Load() {
		return nil, errCut
	}
	return c.next.RoundTrip(r)
}

// manyKeys are enough that each of three replicas has some.
func manyKeys() []string {
	keys := make([]string, 60)
	for i := range keys {
		keys[i] = fmt.Sprintf("s-%d", i)
	}
	return keys
}

// owners gives of each key which of the replicas take care of it, and fails where several
// do.
func (r *replicas) owners(keys []string) map[string]*Driver {
	r.t.Helper()
	owners := map[string]*Driver{}
	for _, key := range keys {
		for _, d := range r.drivers {
			if !d.Mine(key) {
				continue
			}
			if owners[key] != nil {
				r.t.Fatalf("two replicas take care of %s", key)
			}
			owners[key] = d
		}
	}
	return owners
}

// share waits until each key has an owner, at no moment two, and gives how many each has.
func (r *replicas) share(keys []string) map[*Driver]int {
	r.t.Helper()
	count := map[*Driver]int{}
	drivertest.Eventually(r.t, "somebody takes care of each", func() bool {
		owners := r.owners(keys)
		clear(count)
		for _, d := range owners {
			count[d]++
		}
		return len(owners) == len(keys)
	})
	return count
}

// began waits until a replica is told that more falls to it.
func (r *replicas) began(d *Driver) {
	r.t.Helper()
	for {
		select {
		case e := <-d.Events():
			if e == (driver.Event{Began: true}) {
				return
			}
		case <-r.within().Done():
			r.t.Fatal("a replica wasn't told")
		}
	}
}

// Three replicas share what is to be taken care of. Of one that doesn't reach the API
// server any more, as of one that ends, the others take over what was its, in time and
// never while it still does; and it has its share again when it is back.
func TestReplicasShare(t *testing.T) {
	t.Parallel()
	b := set(t)
	if !b.Mine("s-1") {
		t.Error("one alone doesn't take care of everything")
	}
	keys := manyKeys()
	var cut atomic.Bool
	r := &replicas{b, []*Driver{b.replica("first", func(c *Config) {
		c.Rest = rest.CopyConfig(c.Rest)
		c.Rest.Wrap(func(next http.RoundTripper) http.RoundTripper { return cutOff{next, &cut} })
	})}}
	first := r.drivers[0]
	if count := r.share(keys); count[first] != len(keys) {
		t.Errorf("one alone takes care of %d of %d", count[first], len(keys))
	}
	r.began(first)
	for _, name := range []string{"second", "third"} {
		r.drivers = append(r.drivers, b.replica(name))
	}
	all := func() {
		t.Helper()
		drivertest.Eventually(t, "each has a share", func() bool { return len(r.share(keys)) == 3 })
	}
	all()
	for _, d := range r.drivers[1:] {
		r.began(d)
	}

	cut.Store(true)
	lost := time.Now()
	drivertest.Eventually(t, "the others have taken over", func() bool {
		owners := r.owners(keys)
		for _, d := range owners {
			if d == first {
				return false
			}
		}
		return len(owners) == len(keys)
	})
	if took := time.Since(lost); took > 2*leaseFor {
		t.Errorf("the others took over after %s", took)
	}
	for _, d := range r.drivers[1:] {
		r.began(d)
	}
	cut.Store(false)
	all()

	must(t, r.drivers[2].Close())
	r.drivers = r.drivers[:2]
	r.share(keys)
	must(t, r.drivers[1].Close())
	r.drivers = r.drivers[:1]
	r.share(keys)
	leases, err := b.kube.CoordinationV1().Leases(b.ns).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(leases.Items) != 1 || *leases.Items[0].Spec.HolderIdentity != "first" {
		t.Errorf("leases that are left: %+v", leases.Items)
	}
}

// During an upgrade two versions want a runtime's template in two forms. It is changed by
// the one that takes care of the runtime, once, whatever the other one does; and by the
// other when that is gone.
func TestVersionsDontFight(t *testing.T) {
	t.Parallel()
	b := set(t)
	old := b.replica("old")
	b.cluster.Image("holdfast-next", kubetest.Holdfast(filepath.Join(built, "sandboxd")))
	next := b.replica("next", func(c *Config) { c.Template.Image = "holdfast-next" })
	r := &replicas{b, []*Driver{old, next}}
	spec := b.claim("s-0").Runtime
	drivertest.Eventually(t, "both have a share", func() bool { return len(r.share(append(manyKeys(), spec.Name))) == 2 })
	owner := r.owners([]string{spec.Name})[spec.Name]
	other := map[*Driver]*Driver{old: next, next: old}[owner]

	must(t, other.EnsurePool(t.Context(), spec, 1)) // makes what isn't there
	templates, name := b.ext.ExtensionsV1beta1().SandboxTemplates(b.ns), templateName(spec.Name, spec.Revision)
	generation := func() int64 {
		t.Helper()
		template, err := templates.Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		return template.Generation
	}
	made := generation()
	for i := range 4 {
		for _, d := range r.drivers {
			must(t, d.EnsurePool(t.Context(), spec, 1))
			c := b.claim(fmt.Sprintf("s-%d%s", i, map[*Driver]string{old: "a", next: "b"}[d]))
			if _, err := d.Claim(b.within(), c); err != nil {
				t.Fatal(err)
			}
			must(t, d.Release(b.within(), c.Ref, 6, false))
		}
	}
	if changed := generation() - made; changed != 1 {
		t.Errorf("the template was changed %d times, want once", changed)
	}

	must(t, owner.Close())
	drivertest.Eventually(t, "the other takes care of it", func() bool { return other.Mine(spec.Name) })
	must(t, other.EnsurePool(t.Context(), spec, 1))
	if changed := generation() - made; changed != 2 {
		t.Errorf("the template was changed %d times, want twice", changed)
	}
}

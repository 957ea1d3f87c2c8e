package kube_test

import (
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events/session"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// speed has TestSpeed measure, which is no test of anything and wants a quiet machine:
// make bench-kube. With BENCH_ARGS=-short it shows that it works, on next to nothing.
var speed = flag.Bool("speed", false, "measure sessions on Kubernetes, and print tables")

// level is how much services say: a measured one not every request.
func level() slog.Level {
	if *speed {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// TestSpeed measures what sessions cost over bare claims: both are made on the same API
// server, of the same template and pools, in turns, by clients without a limit of their
// own, and nodes wait for nothing.
func TestSpeed(t *testing.T) {
	if !*speed {
		t.Skip("measures, with -speed")
	}
	in := prepare(t)
	calls := &counter{}
	in.access.Wrap(func(next http.RoundTripper) http.RoundTripper { return calls.on(next) })
	in.run("projector", "session", "policy", "workload", "runner", "gateway")
	in.begun()
	b := &bench{installation: in, calls: calls, out: tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0), pairs: 20, rounds: 5}
	if testing.Short() {
		b.pairs, b.rounds = 2, 2
	}
	fmt.Fprintln(b.out, "what\tHoldfast\tbare claim\tratio (least–most of rounds)\tadded")
	b.creates()
	b.firstInstruction()
	b.must(b.out.Flush())
	b.openLoop()
	b.must(b.out.Flush())
	b.kept()
	b.flush()
}

// bench is what is measured on.
type bench struct {
	*installation

	calls         *counter
	out           *tabwriter.Writer
	pairs, rounds int
	bares         int // claims that were made without Holdfast
	// notes are said below the table.
	notes []string
}

func (b *bench) flush() {
	b.t.Helper()
	b.must(b.out.Flush())
	for _, n := range b.notes {
		fmt.Fprintln(os.Stdout, "·", n)
	}
}

// side makes n sandboxes at the same time and says how long each took.
type side func(n int) []time.Duration

// creates measures create → ready against a bare SandboxClaim create → Ready.
func (b *bench) creates() {
	for _, path := range []struct {
		name         string
		warm, volume bool
	}{{"warm", true, false}, {"warm with a volume", true, true}, {"cold", false, false}, {"cold with a volume", false, true}} {
		for _, at := range []struct {
			name           string
			once, in1Round int
		}{{"serial", 1, b.pairs}, {"20 at once", b.pairs, 1}} {
			name := path.name + ", " + at.name
			runtime := strings.NewReplacer(", ", "-", " ", "-").Replace(name)
			pool := 0
			if path.warm {
				pool = at.once + 2
			}
			b.shell(runtime, pool, func(r *api.RuntimeSpec) {
				if !path.volume {
					r.Workspace, r.OnIdle = api.Workspace{}, api.OnIdleEnd
				}
			})
			holder := b.CreateOf("alice", api.CreateSession{Runtime: runtime}) // keeps a pool of none
			ours, bare := b.sessionsOf(runtime, pool), b.claimsOf(runtime, pool)
			ours(at.once) // what is only done once
			bare(at.once)
			b.calls.reset()
			var o, base [][]time.Duration
			for range b.rounds {
				var a, c []time.Duration
				for range at.in1Round {
					a, c = append(a, ours(at.once)...), append(c, bare(at.once)...)
				}
				o, base = append(o, a), append(base, c)
			}
			for _, q := range []float64{0.5, 0.99} {
				b.row(fmt.Sprintf("create → ready, %s, p%g", name, 100*q), o, base, q)
			}
			total, kinds := b.calls.each(b.rounds * at.in1Round * at.once)
			fmt.Fprintf(b.out, "calls of the API server a session, %s\t%.1f\t2\t\t\n", name, total)
			b.notes = append(b.notes, fmt.Sprintf("calls a session, %s: %s", name, kinds))
			b.must(b.out.Flush()) // it takes twenty minutes: what is known is shown
			b.end(holder.ID)
			b.remove(runtime)
		}
	}
}

// row prints a quantile of both sides.
func (b *bench) row(what string, ours, base [][]time.Duration, q float64) {
	ratios := make([]float64, len(ours))
	for i := range ours {
		ratios[i] = float64(quantile(ours[i], q)) / float64(quantile(base[i], q))
	}
	slices.Sort(ratios)
	o, c := quantile(slices.Concat(ours...), q), quantile(slices.Concat(base...), q)
	fmt.Fprintf(b.out, "%s\t%s\t%s\t%.2f× (%.2f–%.2f)\t%s\n", what, ms(o), ms(c), ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1], ms(o-c))
}

// quantile is the smallest time that at least the share q kept to.
func quantile(took []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(max(int(q*float64(len(sorted))+0.999999)-1, 0), len(sorted)-1)]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }

// sessionsOf makes sessions, and ends them, which doesn't count.
func (b *bench) sessionsOf(runtime string, pool int) side {
	return func(n int) []time.Duration {
		b.full(runtime, pool)
		took := make([]time.Duration, n)
		made := make([]*api.Session, n)
		alice, prefer := b.Client("alice"), "wait=60"
		together(n, func(i int) {
			begin := time.Now()
			r, err := alice.CreateSessionWithResponse(b.t.Context(), &api.CreateSessionParams{Prefer: &prefer}, api.CreateSession{Runtime: runtime})
			took[i] = time.Since(begin)
			if err != nil || r.JSON201.Phase != api.SessionPhaseReady {
				b.t.Errorf("not ready: %+v, %v", r, err)
				return
			}
			made[i] = r.JSON201
		})
		if b.t.Failed() {
			b.t.FailNow()
		}
		for _, s := range made {
			b.path(harness.Of[session.Ready](b.Facts(s.ID))[0].Path, pool)
		}
		b.endAll(made)
		return took
	}
}

// full waits until a pool is.
func (b *bench) full(runtime string, pool int) {
	b.t.Helper()
	if pool > 0 {
		b.poolHas(runtime, int32(pool))
	}
}

// path wants a sandbox to have come by the path that is measured.
func (b *bench) path(got string, pool int) {
	b.t.Helper()
	if warm := got == "warm"; warm != (pool > 0) {
		b.t.Fatalf("a sandbox came %s", got)
	}
}

func together(n int, do func(int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

// firstInstruction measures create, with a message, → the agent's first output.
func (b *bench) firstInstruction() {
	const runtime = "first"
	b.shell(runtime, 2, allowing)
	bare := b.claimsOf(runtime, 2)
	var ours, base [][]time.Duration
	for range b.rounds {
		var a, c []time.Duration
		for range b.pairs {
			b.full(runtime, 2)
			begin := time.Now()
			r, err := b.Client("alice").CreateSessionWithResponse(b.Context(), nil, api.CreateSession{Runtime: runtime, Message: "echo hello"})
			b.must(err)
			b.Follow("alice", r.JSON201.ID, func(f api.Frame) bool { return f.Kind == api.FrameKindAgui })
			a = append(a, time.Since(begin))
			b.endAll([]*api.Session{r.JSON201})
			c = append(c, bare(1)...)
		}
		ours, base = append(ours, a), append(base, c)
	}
	b.row("create → first output of the agent, warm, p50 (bare: Ready)", ours, base, 0.5)
	b.row("create → first output of the agent, warm, p99 (bare: Ready)", ours, base, 0.99)
	b.remove(runtime)
}

// openLoop makes sessions at a rate that a pool can't keep up with, whatever becomes of
// those before, and wants nothing to be stuck after it.
func (b *bench) openLoop() {
	const runtime, pool, rate, third = "open", 10, 8, 5 * time.Second
	n := int(rate * 3 * third.Seconds())
	if testing.Short() {
		n = 12
	}
	b.shell(runtime, pool)
	took := make([]time.Duration, n)
	made := make([]*api.Session, n)
	alice, prefer := b.Client("alice"), "wait=60"
	tick := time.NewTicker(time.Second / rate)
	defer tick.Stop()
	var wg sync.WaitGroup
	for i := range n {
		<-tick.C
		wg.Go(func() {
			begin := time.Now()
			r, err := alice.CreateSessionWithResponse(b.t.Context(), &api.CreateSessionParams{Prefer: &prefer}, api.CreateSession{Runtime: runtime})
			if err != nil {
				b.t.Errorf("open loop: %v", err)
				return
			}
			took[i], made[i] = time.Since(begin), r.JSON201
		})
	}
	wg.Wait()
	if b.t.Failed() {
		b.t.FailNow()
	}
	warm := 0
	for _, s := range made {
		if harness.Of[session.Ready](b.Facts(s.ID))[0].Path == "warm" {
			warm++
		}
	}
	for i, part := range []string{"first", "second", "last"} {
		of := took[i*n/3 : (i+1)*n/3]
		fmt.Fprintf(b.out, "open loop, %d a second on a pool of %d, %s third: p50, p99\t%s, %s\t\t\t\n", rate, pool, part, ms(quantile(of, 0.5)), ms(quantile(of, 0.99)))
	}
	b.endAll(made)
	b.remove(runtime)
	b.nothingLeft()
	fmt.Fprintf(b.out, "open loop: of %d sessions came warm; left after their end\t%d; nothing\t\t\t\n", n, warm)
}

// kept measures what sessions cost that only exist: calls of the service, and the memory
// of a process that sees them.
func (b *bench) kept() {
	const runtime = "kept"
	n, rest := 500, 30*time.Second
	if testing.Short() {
		n, rest = 5, time.Second
	}
	b.shell(runtime, 0)
	before := b.footprint()
	slots := make(chan struct{}, 8)
	alice, prefer := b.Client("alice"), "wait=60"
	together(n, func(int) {
		slots <- struct{}{}
		defer func() { <-slots }()
		r, err := alice.CreateSessionWithResponse(b.t.Context(), &api.CreateSessionParams{Prefer: &prefer}, api.CreateSession{Runtime: runtime})
		if err == nil {
			_, err = alice.SuspendSessionWithResponse(b.t.Context(), r.JSON201.ID, nil)
		}
		if err != nil {
			b.t.Errorf("kept: %v", err)
		}
	})
	harness.Eventually(b.t, "no Pod is left", func() bool { return b.podCount() == 0 })
	after := b.footprint()
	b.calls.reset()
	<-time.After(rest)
	fmt.Fprintf(b.out, "%d suspended sessions kept: calls a second at rest, beside watches and the lease\t%.2f\t\t\t\n", n,
		float64(b.calls.total())/rest.Seconds())
	fmt.Fprintf(b.out, "%d suspended sessions kept: resident memory of a workload service, before, after\t%d MiB, %d MiB\t\t\t\n", n, before>>20, after>>20)
}

// counter counts calls by verb and resource; watches don't count, nor does the lease.
type counter struct {
	mu sync.Mutex
	by map[string]int
}

type counting struct {
	c    *counter
	next http.RoundTripper
}

func (c *counter) on(next http.RoundTripper) http.RoundTripper { return counting{c, next} }

// RoundTrip implements http.RoundTripper.
func (t counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" && !strings.Contains(r.URL.Path, "/leases") {
		// …/namespaces/<namespace>/<kind>/…, or …/<kind> of what is in none.
		name := path.Base(r.URL.Path)
		if _, in, ok := strings.Cut(r.URL.Path, "/namespaces/"); ok {
			if parts := strings.Split(in, "/"); len(parts) > 1 {
				name = parts[1]
			}
		}
		t.c.mu.Lock()
		if t.c.by == nil {
			t.c.by = map[string]int{}
		}
		t.c.by[r.Method+" "+name]++
		t.c.mu.Unlock()
	}
	return t.next.RoundTrip(r)
}

func (c *counter) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by = nil
}

func (c *counter) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, of := range c.by {
		n += of
	}
	return n
}

// each says how many calls there were for one of n sessions, from its create to its end,
// and how many of each kind.
func (c *counter) each(n int) (total float64, kinds string) {
	total = float64(c.total()) / float64(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	for kind, of := range c.by {
		all = append(all, fmt.Sprintf("%s %.1f", kind, float64(of)/float64(n)))
	}
	slices.Sort(all)
	return total, strings.Join(all, ", ")
}

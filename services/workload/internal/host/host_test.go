package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
	"github.com/holdfast-io/holdfast/services/workload/internal/hostapi"
)

// listed is a driver that has sandboxes and does nothing with them.
type listed struct {
	driver.Driver
	found []driver.Found
}

func (l *listed) List(context.Context) ([]driver.Found, error) { return slices.Clone(l.found), nil }

// A list of any length comes in pages, each sandbox once, whatever the driver's order.
func TestListInPages(t *testing.T) {
	t.Parallel()
	d := &listed{}
	const all = 2*hostapi.PageSize + 1
	for i := range all {
		d.found = append(d.found, driver.Found{Ref: driver.Ref{Tenant: "default", Session: fmt.Sprintf("s-%d", (i*7919)%all), Generation: 1}})
	}
	c := Config{Driver: d}
	seen := map[driver.Ref]int{}
	var after driver.Ref
	for pages := 1; ; pages++ {
		page, err := c.list(t.Context(), hostapi.List{After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range page.Found {
			seen[f.Ref]++
			after = f.Ref
		}
		if !page.More {
			if pages != 3 {
				t.Errorf("%d pages", pages)
			}
			break
		}
	}
	for ref, n := range seen {
		if n != 1 {
			t.Errorf("%v is there %d times", ref, n)
		}
	}
	if len(seen) != all {
		t.Errorf("%d of %d", len(seen), all)
	}
}

// workload answers a host's questions, refusing what refuse says.
func workload(t *testing.T, refuse func(hostapi.Redemption) error) (*Granter, <-chan hostapi.Redemption) {
	t.Helper()
	s := brokertest.Start(t)
	asked := make(chan hostapi.Redemption, 16)
	answer := hostapi.Handle(func(_ context.Context, r hostapi.Redemption) (sandboxapi.Grant, error) {
		asked <- r
		return sandboxapi.Grant{PodUID: r.PodUID, Session: r.Bind}, refuse(r)
	})
	a, err := hostapi.Answer(s.NC(broker.UserWorkload), "host.h-1.ask.*", "workload", map[hostapi.Verb]hostapi.Handler{
		hostapi.VerbRedeem: answer, hostapi.VerbRenew: answer,
	}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
	})
	return NewGranter(s.NC(broker.UserHost), "h-1"), asked
}

var errRefused = errors.New("refused")

// A sandbox redeems one bind in its life and renews by the same.
func TestGranter(t *testing.T) {
	t.Parallel()
	g, asked := workload(t, func(r hostapi.Redemption) error {
		if r.Bind == "forged" {
			return errRefused
		}
		return nil
	})
	ctx := t.Context()
	if _, err := g.Renew(ctx, "pod-1"); !errors.Is(err, errNotBound) {
		t.Errorf("renewed without a bind: %v", err)
	}
	if _, err := g.Redeem(ctx, "pod-1", "forged"); err == nil {
		t.Error("redeemed what was refused")
	}
	<-asked
	for range 2 { // what was refused bound nobody; the same again is the same
		if grant, err := g.Redeem(ctx, "pod-1", "good"); err != nil || grant.Session != "good" {
			t.Fatalf("%+v, %v", grant, err)
		}
		<-asked
	}
	if _, err := g.Redeem(ctx, "pod-1", "other"); !errors.Is(err, errAnotherBind) {
		t.Errorf("redeemed another: %v", err)
	}
	if _, err := g.Renew(ctx, "pod-1"); err != nil {
		t.Error(err)
	}
	if r := <-asked; r != (hostapi.Redemption{PodUID: "pod-1", Bind: "good"}) {
		t.Errorf("asked for %+v", r)
	}
}

// Binds of the dead are dropped, those of the living never.
func TestGranterForgetsTheDead(t *testing.T) {
	t.Parallel()
	g, asked := workload(t, func(hostapi.Redemption) error { return nil })
	d := &listed{found: []driver.Found{
		{Ref: ref, PodUID: "pod-0", State: driver.StateRunning}, {PodUID: "pod-1", State: driver.StateLost},
	}}
	g.Watch(d)
	for i := range 3 * fullAt {
		if _, err := g.Redeem(t.Context(), fmt.Sprintf("pod-%d", i), "bind"); err != nil {
			t.Fatal(err)
		}
		<-asked
	}
	if _, err := g.Renew(t.Context(), "pod-0"); err != nil {
		t.Errorf("the living: %v", err)
	}
	if _, err := g.Renew(t.Context(), "pod-1"); !errors.Is(err, errNotBound) {
		t.Errorf("the dead: %v", err)
	}
	if n := len(g.binds); n > fullAt {
		t.Errorf("%d binds of one that lives", n)
	}
}

// greeter is a gateway: it says its name and repeats what it hears.
func greeter(t *testing.T, name string) (url string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, name+"\n")
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		}
	}()
	var ended bool
	stop = func() {
		if !ended {
			ended = true
			_ = l.Close()
			<-done
		}
	}
	t.Cleanup(stop)
	return "http://" + l.Addr().String(), stop
}

// What agents ask goes to any gateway that is there.
func TestForward(t *testing.T) {
	t.Parallel()
	one, stopOne := greeter(t, "one")
	other, stopOther := greeter(t, "other")
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Forward(ctx, l, []string{one, other}, quiet) }()
	call := func() string {
		t.Helper()
		conn, err := net.DialTimeout("unix", path, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		r := bufio.NewReader(conn)
		name, err := r.ReadString('\n')
		if err != nil {
			return ""
		}
		if _, err := io.WriteString(conn, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if echo, err := r.ReadString('\n'); err != nil || echo != "hello\n" {
			t.Errorf("%q, %v", echo, err)
		}
		return name
	}
	heard := map[string]int{}
	for range 6 {
		heard[call()]++
	}
	if heard["one\n"] != 3 || heard["other\n"] != 3 {
		t.Errorf("they took turns as %v", heard)
	}
	stopOne()
	for range 4 {
		if name := call(); name != "other\n" {
			t.Errorf("with one gateway left %q answered", name)
		}
	}
	stopOther()
	if name := call(); name != "" {
		t.Errorf("%q answered", name)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

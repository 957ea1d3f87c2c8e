package roster

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const patience = 15 * time.Second

// world is a few replicas, the leases that they see, and a clock.
type world struct {
	t        *rapid.T
	now      time.Time
	leases   map[string]int // versions, by identity
	replicas []*replica
	made     int
}

// replica is one that renews step by step: others do theirs in between.
type replica struct {
	members
	begun time.Time
	step  int
	list  map[string]string
}

var keys = func() (all []string) {
	for i := range 20 {
		all = append(all, "s-"+strconv.Itoa(i))
	}
	return all
}()

func (w *world) come() {
	w.made++
	w.replicas = append(w.replicas, &replica{members: members{self: fmt.Sprintf("replica-%d", w.made), patience: patience}})
}

// renew takes the next step of a renewal.
func (w *world) renew(r *replica) {
	switch r.step {
	case 0:
		r.begun = w.now
	case 1:
		w.leases[r.self]++
	case 2:
		r.list = map[string]string{}
		for name, version := range w.leases {
			if name != r.self {
				r.list[name] = strconv.Itoa(version)
			}
		}
	case 3:
		r.saw(r.list, r.begun, w.now)
	}
	r.step = (r.step + 1) % 4
}

// check holds that nobody takes care of what another one does.
func (w *world) check() {
	for _, key := range keys {
		owner := ""
		for _, r := range w.replicas {
			if !r.mine(key, w.now) {
				continue
			}
			if owner != "" {
				w.t.Fatalf("%s and %s take care of %s", owner, r.self, key)
			}
			owner = r.self
		}
	}
}

// However slowly replicas renew, come, stop for a while, leave or die, none takes care of
// what another one does; and once they renew as they should, each key has one.
func TestPropertyOneTakesCare(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := &world{t: rt, now: time.Unix(0, 0), leases: map[string]int{}}
		for range 3 {
			w.come()
		}
		w.quiet()
		for range rapid.IntRange(1, 150).Draw(rt, "steps") {
			w.now = w.now.Add(time.Duration(rapid.SampledFrom([]int{0, 0, 100, 1000, 4900, 9900, 14900, 20000}).Draw(rt, "ms")) * time.Millisecond)
			w.check()
			if len(w.replicas) < 4 && rapid.IntRange(0, 9).Draw(rt, "comes") == 0 {
				w.come()
			}
			if len(w.replicas) == 0 {
				continue
			}
			i := rapid.IntRange(0, len(w.replicas)-1).Draw(rt, "replica")
			r := w.replicas[i]
			switch rapid.IntRange(0, 40).Draw(rt, "act") {
			case 0: // killed
				w.replicas = append(w.replicas[:i:i], w.replicas[i+1:]...)
			case 1:
				r.leave()
				delete(w.leases, r.self)
				w.replicas = append(w.replicas[:i:i], w.replicas[i+1:]...)
			case 2: // a renewal that failed
				r.step = 0
			default:
				for range rapid.IntRange(1, 4).Draw(rt, "parts") {
					w.renew(r)
					w.check()
				}
			}
		}
		if len(w.replicas) == 0 {
			w.come()
		}
		w.quiet()
	})
}

// quiet has all renew as they should until everybody knows everybody, and then holds that
// each key has one.
func (w *world) quiet() {
	for range 10 {
		for _, r := range w.replicas {
			for r.step = 0; ; {
				w.renew(r)
				w.check()
				if r.step == 0 {
					break
				}
			}
		}
		w.now = w.now.Add(patience / 3)
	}
	for _, key := range keys {
		var owners []string
		for _, r := range w.replicas {
			if r.mine(key, w.now) {
				owners = append(owners, r.self)
			}
		}
		if len(owners) != 1 {
			w.t.Fatalf("%v take care of %s", owners, key)
		}
	}
}

// all renews every replica, and moves the clock by a third of patience.
func (w *world) all() (changed []string) {
	for _, r := range w.replicas {
		before := map[string]string{}
		for name, version := range w.leases {
			if name != r.self {
				before[name] = strconv.Itoa(version)
			}
		}
		w.leases[r.self]++
		if r.saw(before, w.now, w.now) {
			changed = append(changed, r.self)
		}
	}
	w.now = w.now.Add(patience / 3)
	return changed
}

// Three replicas have about a third each. The share of one that dies is taken over in
// time, and of the others' nothing changes hands.
func TestSharesAndTheirHeirs(t *testing.T) {
	t.Parallel()
	w := &world{now: time.Unix(0, 0), leases: map[string]int{}}
	for range 3 {
		w.come()
	}
	for range 5 {
		w.all()
	}
	const n = 3000
	of := func() map[string]string {
		owners := map[string]string{}
		for i := range n {
			for _, r := range w.replicas {
				if key := strconv.Itoa(i); r.mine(key, w.now) {
					owners[key] = r.self
				}
			}
		}
		return owners
	}
	before, count := of(), map[string]int{}
	for _, owner := range before {
		count[owner]++
	}
	for name, share := range count {
		if share < n/3*9/10 || share > n/3*11/10 {
			t.Errorf("%s takes care of %d of %d", name, share, n)
		}
	}
	dead := w.replicas[0].self
	w.replicas = w.replicas[1:]
	died, told := w.now, 0
	for len(of()) < n {
		told += len(w.all())
		if w.now.Sub(died) > 2*patience {
			t.Fatal("nobody takes over")
		}
	}
	if told != 2 {
		t.Errorf("%d were told that more falls to them", told)
	}
	for key, owner := range of() {
		if was := before[key]; was != owner && was != dead {
			t.Errorf("%s went from %s to %s", key, was, owner)
		}
	}
}

// One alone begins at once, and gives up what it can't renew.
func TestAlone(t *testing.T) {
	t.Parallel()
	w := &world{now: time.Unix(0, 0), leases: map[string]int{}}
	w.come()
	r := w.replicas[0]
	if r.mine("key", w.now) {
		t.Error("it takes care of something before it has said that it is there")
	}
	if changed := w.all(); len(changed) != 1 || !r.mine("key", w.now) {
		t.Errorf("told %v", changed)
	}
	if w.now = w.now.Add(patience / 2); r.mine("key", w.now) {
		t.Error("it goes on although others may have taken over")
	}
	w.all()
	if !r.mine("key", w.now) {
		t.Error("it doesn't go on")
	}
}

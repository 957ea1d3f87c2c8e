// Package blobtest holds every implementation of blob.Store to one behaviour: [Run]
// is called by the tests of memblob and natsblob, and on three clustered servers.
package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
)

// Harness opens stores for the suite.
type Harness struct {
	// Open gives two ways into one store, as two processes have.
	Open func(t *testing.T) (a, b blob.Store)
	// Damage makes one byte of what is kept another.
	Damage func(t *testing.T, owner blob.Owner, contents []byte)
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"contents of every size come back whole", testSizes},
		{"the same contents are kept once, whoever stores them at the same time", testSame},
		{"a reference leads only to its owner's contents", testOwner},
		{"contents that are not there, or damaged, are lost", testLost},
		{"what is no contents, no owner or no reference is refused", testRefused},
		{"without time it is unavailable", testEnded},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, h) })
	}
}

var owners atomic.Uint64

// fresh is an owner that no test had before.
func fresh() blob.Owner {
	return blob.Owner(fmt.Sprintf("t1.s.s-%d-%d", time.Now().UnixNano(), owners.Add(1)))
}

// Contents gives n bytes that don't repeat, so that pieces in a wrong order show.
func Contents(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = r.Read(b) // never fails
	return b
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func put(t *testing.T, s blob.Store, owner blob.Owner, contents []byte) events.Blob {
	t.Helper()
	ref, err := s.Put(bounded(t), owner, contents)
	if err != nil {
		t.Fatalf("put %d bytes: %v", len(contents), err)
	}
	return ref
}

func wantLost(t *testing.T, what string, err error) {
	t.Helper()
	if _, ok := errors.AsType[*events.LostError](err); !ok {
		t.Errorf("%s: %v, want *events.LostError", what, err)
	}
}

func testSizes(t *testing.T, h Harness) {
	a, b := h.Open(t)
	owner := fresh()
	const piece = 512 << 10
	for _, n := range []int{1, blob.Over, blob.Over + 1, piece - 1, piece, piece + 1, 2 * piece, 10 << 20} {
		want := Contents(n)
		ref := put(t, a, owner, want)
		if ref != blob.RefOf(want) {
			t.Errorf("%d bytes are referred to by %+v", n, ref)
		}
		got, err := b.Get(bounded(t), owner, ref)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes: %d came back, %v", n, len(got), err)
		}
	}
}

func testSame(t *testing.T, h Harness) {
	a, b := h.Open(t)
	owner, want := fresh(), Contents(3<<20)
	var all sync.WaitGroup
	for i := range 6 {
		s := []blob.Store{a, b}[i%2]
		all.Go(func() {
			if ref, err := s.Put(bounded(t), owner, want); err != nil || ref != blob.RefOf(want) {
				t.Errorf("put: %+v, %v", ref, err)
			}
		})
	}
	all.Wait()
	if got, err := b.Get(bounded(t), owner, put(t, a, owner, want)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
}

func testOwner(t *testing.T, h Harness) {
	a, _ := h.Open(t)
	owner := fresh()
	ref := put(t, a, owner, Contents(blob.Over+1))
	_, err := a.Get(bounded(t), fresh(), ref)
	wantLost(t, "another session's", err)
	_, err = a.Get(bounded(t), "t2"+owner[2:], ref)
	wantLost(t, "another tenant's", err)
}

func testLost(t *testing.T, h Harness) {
	a, b := h.Open(t)
	_, err := a.Get(bounded(t), fresh(), blob.RefOf([]byte("never stored")))
	wantLost(t, "never stored", err)
	for _, n := range []int{100, 1 << 20} {
		owner, contents := fresh(), Contents(n)
		h.Damage(t, owner, contents)
		got, err := b.Get(bounded(t), owner, blob.RefOf(contents))
		wantLost(t, "damaged", err)
		if got != nil {
			t.Error("damaged contents come beside the error")
		}
	}
	owner, contents := fresh(), Contents(1000)
	ref := put(t, a, owner, contents)
	ref.Size--
	_, err = a.Get(bounded(t), owner, ref)
	wantLost(t, "of another size", err)
}

func testRefused(t *testing.T, h Harness) {
	a, _ := h.Open(t)
	ok := blob.RefOf([]byte("x"))
	for _, owner := range []blob.Owner{"", "t1", "t1.*", "t1.s.>", "t1.s.s-1.x", "t1..s", "T1.s.x"} {
		badToken := new(*events.BadTokenError)
		if _, err := a.Put(bounded(t), owner, []byte("x")); !errors.As(err, badToken) {
			t.Errorf("put of owner %q: %v", owner, err)
		}
		if _, err := a.Get(bounded(t), owner, ok); !errors.As(err, badToken) {
			t.Errorf("get of owner %q: %v", owner, err)
		}
	}
	if _, err := a.Put(bounded(t), fresh(), nil); err == nil {
		t.Error("nothing was stored")
	}
	if _, err := a.Put(bounded(t), fresh(), make([]byte, blob.MaxBytes+1)); !errors.Is(err, events.ErrTooLarge) {
		t.Errorf("over the limit: %v", err)
	}
	for name, ref := range map[string]events.Blob{
		"no hash": {Size: 1}, "a wildcard": {SHA256: ">", Size: 1}, "no size": {SHA256: ok.SHA256},
		"a negative size": {SHA256: ok.SHA256, Size: -1}, "an endless size": {SHA256: ok.SHA256, Size: 1 << 50},
	} {
		_, err := a.Get(bounded(t), fresh(), ref)
		wantLost(t, name, err)
	}
}

func testEnded(t *testing.T, h Harness) {
	a, _ := h.Open(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	unavailable := new(*blob.UnavailableError)
	if _, err := a.Put(ended, fresh(), []byte("x")); !errors.As(err, unavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("put: %v", err)
	}
	if _, err := a.Get(ended, fresh(), blob.RefOf([]byte("x"))); !errors.As(err, unavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("get: %v", err)
	}
}

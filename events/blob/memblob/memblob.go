// Package memblob keeps blobs in memory, with the behaviour of the JetStream store:
// for tests that need no server. It forgets everything with the process.
package memblob

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
)

// Store is an in-memory blob.Store; its zero value is ready to use.
type Store struct {
	mu   sync.Mutex
	kept map[name][]byte
	down error
}

type name struct {
	owner  blob.Owner
	sha256 string
}

var _ blob.Store = (*Store)(nil)

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, owner blob.Owner, contents []byte) (events.Blob, error) {
	ref, err := blob.CheckPut(owner, contents)
	if err != nil {
		return events.Blob{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.unavailable(ctx, owner); err != nil {
		return events.Blob{}, err
	}
	if s.kept == nil {
		s.kept = map[name][]byte{}
	}
	if n := (name{owner, ref.SHA256}); s.kept[n] == nil {
		s.kept[n] = bytes.Clone(contents)
	}
	return ref, nil
}

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, owner blob.Owner, ref events.Blob) ([]byte, error) {
	if err := blob.CheckRef(owner, ref); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.unavailable(ctx, owner); err != nil {
		return nil, err
	}
	contents, ok := s.kept[name{owner, ref.SHA256}]
	if !ok {
		return nil, &events.LostError{Blob: ref, Reason: "are not there"}
	}
	if err := blob.Check(ref, contents); err != nil {
		return nil, err
	}
	return contents, nil
}

func (s *Store) unavailable(ctx context.Context, owner blob.Owner) error {
	err := ctx.Err()
	if err == nil {
		err = s.down
	}
	if err != nil {
		return &blob.UnavailableError{Owner: owner, Err: err}
	}
	return nil
}

// Fail has every call fail as unavailable for a reason, until it is nil again.
func (s *Store) Fail(reason error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = reason
}

// Plant keeps bytes under the name of others, as a damaged disk would; none remove it.
func (s *Store) Plant(owner blob.Owner, ref events.Blob, contents []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if contents == nil {
		delete(s.kept, name{owner, ref.SHA256})
		return
	}
	s.kept[name{owner, ref.SHA256}] = contents
}

// Owners lists whose blobs are kept, one entry for each blob, sorted.
func (s *Store) Owners() []blob.Owner {
	s.mu.Lock()
	defer s.mu.Unlock()
	var owners []blob.Owner
	for n := range maps.Keys(s.kept) {
		owners = append(owners, n.owner)
	}
	slices.Sort(owners)
	return owners
}

package memblob_test

import (
	"bytes"
	"testing"

	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/blob/blobtest"
	"github.com/holdfast-io/holdfast/events/blob/memblob"
)

func TestSuite(t *testing.T) {
	for name, open := range map[string]func(s blob.Store) blob.Store{
		"itself": func(s blob.Store) blob.Store { return s },
		"cached": func(s blob.Store) blob.Store { return blob.Cached(s, 4<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			s := &memblob.Store{}
			blobtest.Run(t, blobtest.Harness{
				Open: func(*testing.T) (a, b blob.Store) { return open(s), open(s) },
				Damage: func(t *testing.T, owner blob.Owner, contents []byte) {
					t.Helper()
					ref, err := s.Put(t.Context(), owner, contents)
					if err != nil {
						t.Fatal(err)
					}
					damaged := bytes.Clone(contents)
					damaged[len(damaged)-1]++
					s.Plant(owner, ref, damaged)
				},
			})
		})
	}
}

package hub

import "github.com/holdfast-io/holdfast/events/output"

// seen is what a reader of a session's output has: the last batch that was new to
// it. The zero value knows nothing.
type seen struct {
	// known says that the rest is so, also where it says "nothing yet".
	known bool
	run   string
	k     uint64
	after uint64
}

// verdict is what becomes of a batch.
type verdict struct {
	// fresh says that something of it is new.
	fresh bool
	// hole says that events between what was seen and the batch never came.
	hole bool
	rest output.Batch
}

// next judges a session's next batch and remembers it if it is new.
func (s *seen) next(b output.Batch) verdict {
	v := verdict{fresh: true, rest: b}
	switch {
	case !s.known:
	case b.Run == s.run:
		v.rest, v.fresh = b.AfterK(s.k)
		v.hole = v.fresh && b.FirstK > s.k+1
	case b.After < s.after:
		v.fresh = false // an earlier run's runner, which was replaced
	default:
		v.hole = b.FirstK > 1
	}
	if v.fresh {
		*s = seen{known: true, run: b.Run, k: b.LastK, after: b.After}
	}
	return v
}

// anchor takes a batch as the last one that was delivered.
func (s *seen) anchor(b output.Batch) {
	*s = seen{known: true, run: b.Run, k: b.LastK, after: b.After}
}

// reached says that a place was delivered, or needs no delivery.
func (s *seen) reached(at spoken) bool {
	return at.k == 0 || s.known && s.run == at.run && s.k >= at.k
}

package driver

import (
	"context"
	"time"
)

// Backstop is a driver whose sandboxes end by themselves at Claim.Until.
type Backstop interface {
	// Extend moves that time later, for a session that may live longer by now.
	Extend(ctx context.Context, ref Ref, until time.Time) error
}

// Explainer is a driver whose starts and ends go on when their caller stops to wait: the
// next Claim, Resume, Suspend or Release takes them up. It knows why a sandbox isn't there
// yet.
type Explainer interface {
	// Explain is what a Claim or Resume of ref would fail with now; nil where nothing
	// is known to be in its way.
	Explain(ctx context.Context, ref Ref) *StartError
}

// Shared is a driver whose replicas see the same sandboxes, and divide among them what
// nobody asks for: of each session one compares what exists with the log, of each runtime
// one keeps the pool. Where more falls to a replica it has an Event with Began.
type Shared interface {
	// Mine says whether this replica takes care of a key now, which is a session's or the
	// driver's name of a runtime.
	Mine(key string) bool
}

// Reminded is a driver that writes down what it handed out only afterwards, so that its
// process may die before, or another replica not see it yet. The log knows.
type Reminded interface {
	// Remind says what the log has of a sandbox that is ready.
	Remind(ref Ref, sandboxUID, podUID string)
}

// Leaver is a driver whose sandboxes may have to leave their place while they run. It
// tells when that begins; of one that wasn't ready then it is asked.
type Leaver interface {
	// Leaving is why the incarnation that was handed out has to leave; "" where it hasn't.
	Leaving(ref Ref) string
}

// Upholder is a driver whose sandboxes stand on something beside them, which somebody may
// remove from under one that runs.
type Upholder interface {
	// Uphold makes it again where it is gone. c is as the sandbox was claimed.
	Uphold(ctx context.Context, c Claim) error
}

// Prover is a driver whose sandboxes redeem their binds themselves: each bind names the
// process that may.
type Prover interface {
	// Process is the one of sandboxd that runs in a sandbox; "" of an older sandboxd.
	Process(ctx context.Context, ref Ref) (string, error)
}

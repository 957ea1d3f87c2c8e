package driver

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// Kind is what a [Kept] is.
type Kind string

// The kinds, in the order in which they are removed: what owns or uses another first.
const (
	KindSandbox  Kind = "sandbox"
	KindPool     Kind = "pool"
	KindTemplate Kind = "template"
	KindVolume   Kind = "volume"
)

// Kept is one thing that a driver has, of a session or of a runtime.
type Kept struct {
	Kind Kind `json:"kind"`
	// Namespace and Name say where an operator finds it, UID which one it is.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
	// Ref is whose it is. Session is empty for a runtime's, Generation 0 for what
	// belongs to all generations.
	Ref
	// Runtime and Revision are of pools and templates, by the driver's name of it.
	Runtime  string `json:"runtime,omitempty"`
	Revision uint64 `json:"revision,omitempty"`
	// SandboxUID and Intent are a sandbox's, as Found has them.
	SandboxUID string `json:"sandboxUid,omitempty"`
	Intent     uint64 `json:"intent,omitempty"`
	// Epoch is of the log that wanted it; empty where that isn't written on it.
	Epoch string `json:"epoch,omitempty"`
	// Since is when it was made; zero where nobody knows.
	Since time.Time `json:"since,omitzero"`
}

// Compare orders what is kept as it is to be removed, then by name.
func (k Kept) Compare(other Kept) int {
	return cmp.Or(cmp.Compare(rank(k.Kind), rank(other.Kind)), strings.Compare(k.Namespace, other.Namespace), strings.Compare(k.Name, other.Name))
}

func rank(k Kind) int {
	switch k {
	case KindSandbox:
		return 0
	case KindPool:
		return 1
	case KindTemplate:
		return 2
	case KindVolume:
	}
	return 3
}

// Keeper is a driver that has more than sandboxes, each of which can be removed by
// itself. Of another driver its sandboxes are all that it keeps.
type Keeper interface {
	// Kept lists all that is the driver's own, apart from what goes with something else
	// in the list: a volume while its session has a sandbox isn't in it.
	Kept(ctx context.Context) ([]Kept, error)
	// Discard removes exactly that, whatever its session's intents; ErrNotFound where it
	// isn't there any more, or another under its name. What it owns goes with it, soon.
	Discard(ctx context.Context, k Kept) error
}

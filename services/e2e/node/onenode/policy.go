package onenode

import "context"

// enforce has network policies enforced.
func (n *Node) enforce(ctx context.Context) error { return nil }

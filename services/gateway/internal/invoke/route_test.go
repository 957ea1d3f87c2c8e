package invoke

import (
	"testing"
	"time"
)

// A way that ends soon is asked for anew, so that no request finds it closed.
func TestRouteIsGood(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		until time.Time
		good  bool
	}{
		"for ever":        {time.Time{}, true},
		"for ten minutes": {now.Add(10 * time.Minute), true},
		"for a moment":    {now.Add(renewAhead / 2), false},
		"over":            {now.Add(-time.Second), false},
	} {
		if got := (route{until: tc.until}).good(now); got != tc.good {
			t.Errorf("%s: %v", name, got)
		}
	}
}

package migrations

import "errors"

// ErrLiveSchema refuses to build or swap in a schema that is in use: the name
// given to [CreateViews] or [SwapViews] is the live schema's or public.
var ErrLiveSchema = errors.New("the schema is in use")

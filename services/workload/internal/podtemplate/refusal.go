package podtemplate

import (
	"fmt"
	"strings"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Wrong is one place of a runtime's spec that no Pod can be made of. Pointer is a JSON
// pointer into the spec, as its author wrote it.
type Wrong struct{ Pointer, Detail string }

// RefusedError is a driver.ErrInvalid that names every place that is wrong.
type RefusedError struct{ Wrong []Wrong }

func (e *RefusedError) Error() string {
	said := make([]string, len(e.Wrong))
	for i, w := range e.Wrong {
		said[i] = w.Pointer + " " + w.Detail
	}
	return "no Pod can be made of the runtime: " + strings.Join(said, "; ")
}

// Is makes the error a driver.ErrInvalid.
func (e *RefusedError) Is(target error) bool { return target == driver.ErrInvalid }

// refusals collects what is wrong.
type refusals []Wrong

func (r *refusals) add(pointer, detail string, args ...any) {
	*r = append(*r, Wrong{pointer, fmt.Sprintf(detail, args...)})
}

func (r *refusals) err() error {
	if len(*r) == 0 {
		return nil
	}
	return &RefusedError{Wrong: *r}
}

package agentcube

import (
	"fmt"
	"regexp"
	"strings"
)

// Wrong is a place of a manifest that can't be honoured. Pointer is a JSON pointer into
// it.
type Wrong struct{ Pointer, Detail string }

// RefusedError names every place of a manifest that can't be honoured.
type RefusedError struct {
	// Kind and Name are the manifest's.
	Kind, Name string
	Wrong      []Wrong
}

func (e *RefusedError) Error() string {
	lines := make([]string, len(e.Wrong))
	for i, w := range e.Wrong {
		lines[i] = w.Pointer + " " + w.Detail
	}
	return fmt.Sprintf("%s %s can't be honoured as it is written:\n  %s", e.Kind, e.Name, strings.Join(lines, "\n  "))
}

// refusals collects what is wrong.
type refusals []Wrong

func (r *refusals) add(pointer, detail string, args ...any) {
	*r = append(*r, Wrong{pointer, fmt.Sprintf(detail, args...)})
}

// quoted finds the path in what the strict decoder says of a field.
var quoted = regexp.MustCompile(`^(\w+) field "([^"]*)"`)

// field adds what the strict decoder says: that a field is unknown, or comes twice.
func (r *refusals) field(err error) {
	found := quoted.FindStringSubmatch(err.Error())
	if found == nil {
		r.add("", "%v", err)
		return
	}
	pointer := "/" + strings.NewReplacer(".", "/", "[", "/", "]", "").Replace(found[2])
	if found[1] == "duplicate" {
		r.add(pointer, "comes twice")
		return
	}
	if strings.HasSuffix(pointer, "/templateRef") {
		r.add(pointer, "isn't taken, since a revision is for good and what it refers to may change: give the Pod itself, as podTemplate or template")
		return
	}
	r.add(pointer, "is no field that Holdfast knows of AgentCube's %s", Version)
}

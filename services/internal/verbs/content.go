package verbs

import (
	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

const (
	// MaxContentBytes bounds one content, as JSON: a message, a call's arguments, its
	// output. Contents up to here are kept and shown whole on every path; larger ones
	// are refused (content-too-large), never cut. docs/limits.md has all limits.
	MaxContentBytes = 16 << 20
	// MaxConfigBytes bounds a session's config, which every bind of a sandbox carries.
	MaxConfigBytes = 256 << 10
)

// CheckContent refuses what is larger than limit. pointer says where in the request it
// stands, what names it.
func CheckContent(pointer, what string, size, limit int) error {
	if size <= limit {
		return nil
	}
	p := problem.Newf(api.CodeContentTooLarge, "%s has %d bytes; at most %d are kept. Put it into a file, and say where it is.", what, size, limit)
	return p.At(pointer, "is too large")
}

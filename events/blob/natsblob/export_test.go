package natsblob

import (
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
)

// SubjectOf is where a piece of a blob is kept.
func SubjectOf(place Place, owner blob.Owner, ref events.Blob, piece int) string {
	return (&Store{place: place}).subject(owner, ref, piece)
}

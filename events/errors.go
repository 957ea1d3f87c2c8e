package events

import "fmt"

// UnknownTypeError is what a fold returns for an event that this build does not
// know: readers ship before writers, so the caller answers 503 and decides
// nothing.
type UnknownTypeError struct {
	Type string
	V    int
}

// Error names the type and its version.
func (e *UnknownTypeError) Error() string {
	return fmt.Sprintf("event type %q version %d is not known to this build: update it", e.Type, e.V)
}

// ForeignTypeError is what a fold returns for an event whose type isn't its
// service's. NATS permissions can't tell types apart on one subject.
type ForeignTypeError struct {
	Type           string
	Service, Owner Service
}

// Error names both services.
func (e *ForeignTypeError) Error() string {
	return fmt.Sprintf("event type %q was written by %q but belongs to %q", e.Type, e.Service, e.Owner)
}

// LostError says that contents which were kept beside the log can't be had, now or
// later: they are missing or are not what was stored. What stands on them is
// faulted; nothing is decided or shown without them.
type LostError struct {
	Blob Blob
	// Reason follows "the contents <hash> of <size> bytes".
	Reason string
}

// Error names the blob.
func (e *LostError) Error() string {
	return fmt.Sprintf("the contents %.12s of %d bytes %s", e.Blob.SHA256, e.Blob.Size, e.Reason)
}

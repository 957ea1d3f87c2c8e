// Package blob keeps contents that are too large for a message of a stream: by
// their hash, as their owner's.
//
// A blob's name is made of its owner, its SHA-256 and the number of a piece. A
// reference ([events.Blob]) holds only hash and size; the owner is taken from the
// subject on which the reference stands. So no reference can lead to what another
// tenant or session keeps, and what is read is always checked against size and hash.
//
//	ev.<tenant>.s.<session>      owner <tenant>.s.<session>   in BLOBS, kept for ever, written once
//	out.<tenant>.<session>       owner <tenant>.<session>     in OUTPUT itself, and as long
//	cmd.<service>.<tenant>.…     owner <service>.<tenant>.<random>   in TRANSIT, for minutes
//
// [Store] is the port; natsblob implements it on JetStream, memblob in memory, and
// one suite (blobtest) holds both to the same behaviour.
//
// # Order, and what a crash leaves
//
// Contents are stored before what refers to them, so a reference never stands
// without its contents. A crash between the two leaves contents that nothing refers
// to. They are harmless: the same command, repeated, stores the same bytes under the
// same name and then refers to them; where nobody repeats it they take up space.
package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/holdfast-io/holdfast/events"
)

const (
	// Over is the size in bytes from which on contents are kept beside a stream:
	// what is larger than this.
	Over = 256 << 10
	// MaxBytes bounds one blob: two contents of the largest size that the API takes
	// (16 MiB) may meet in one envelope, and JSON may make them longer.
	MaxBytes = 64 << 20
)

// Owner is whose a blob is: two or three tokens, joined by dots. The first or the
// second names the tenant.
type Owner string

// OwnerOf gives the owner that a subject names: all but its first token.
func OwnerOf(subject string) Owner {
	_, owner, _ := strings.Cut(subject, ".")
	return Owner(owner)
}

// Store is the port. It is safe for use by many goroutines. Errors are
// *UnavailableError where it can't be learnt now (also where ctx ends), and those
// named below.
type Store interface {
	// Put stores contents, once however often it is called, and gives their
	// reference. events.ErrTooLarge is over MaxBytes.
	Put(ctx context.Context, owner Owner, contents []byte) (events.Blob, error)
	// Get gives contents back whole: what has the reference's size and hash, or a
	// *events.LostError. They may be shared: don't change them.
	Get(ctx context.Context, owner Owner, ref events.Blob) ([]byte, error)
}

// UnavailableError says that contents can't be had or kept now. The same may work
// later; nothing was changed by what needed them.
type UnavailableError struct {
	Owner Owner
	Err   error
}

// Error names the owner.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("contents of %s can't be had now: %v", e.Owner, e.Err)
}

// Unwrap gives what stood in the way.
func (e *UnavailableError) Unwrap() error { return e.Err }

// ErrNoRoom is what an *UnavailableError of Put wraps where a limit of the stream, the
// account or the server leaves no room: asking again helps only once there is some.
var ErrNoRoom = errors.New("no room for contents")

// RefOf gives the reference of contents.
func RefOf(contents []byte) events.Blob {
	sum := sha256.Sum256(contents)
	return events.Blob{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(contents))}
}

// CheckPut refuses what no Store keeps, and gives the reference of the rest.
func CheckPut(owner Owner, contents []byte) (events.Blob, error) {
	if err := checkOwner(owner); err != nil {
		return events.Blob{}, err
	}
	switch n := len(contents); {
	case n == 0:
		return events.Blob{}, fmt.Errorf("blob of %s: no contents", owner)
	case n > MaxBytes:
		return events.Blob{}, fmt.Errorf("%w: contents of %d bytes, at most %d", events.ErrTooLarge, n, MaxBytes)
	}
	return RefOf(contents), nil
}

var hashPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// CheckRef refuses what can't be a reference: nothing of it may get into a subject
// unread.
func CheckRef(owner Owner, ref events.Blob) error {
	if err := checkOwner(owner); err != nil {
		return err
	}
	if !hashPattern.MatchString(ref.SHA256) || ref.Size < 1 || ref.Size > MaxBytes {
		return &events.LostError{Blob: ref, Reason: "are referred to by what no reference looks like"}
	}
	return nil
}

// Check says whether contents are those of the reference.
func Check(ref events.Blob, contents []byte) error {
	if got := RefOf(contents); got != ref {
		return &events.LostError{Blob: ref, Reason: fmt.Sprintf("are damaged: %.12s of %d bytes were found", got.SHA256, got.Size)}
	}
	return nil
}

func checkOwner(owner Owner) error {
	tokens := strings.Split(string(owner), ".")
	for _, t := range tokens {
		if !events.ValidToken(t) {
			return &events.BadTokenError{What: "owner of a blob", Value: string(owner)}
		}
	}
	if len(tokens) < 2 || len(tokens) > 3 {
		return &events.BadTokenError{What: "owner of a blob", Value: string(owner)}
	}
	return nil
}

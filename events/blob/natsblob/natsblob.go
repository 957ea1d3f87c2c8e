// Package natsblob keeps blobs on JetStream: pieces of half a MiB as messages of a
// stream, each on a subject of its own, <prefix>.<owner>.<sha256>.<piece>.
//
// It is not the client library's ObjectStore, for that wants a stream with rollup,
// and whoever may write one message to such a stream can empty it by a header; it
// needs the right to purge; its objects can be replaced, and may be links to another
// bucket's; and it makes a consumer for each read. Here a piece is written once, by
// compare-and-set on its literal subject, never changed or removed by anyone (BLOBS
// denies delete and purge), and read by the same single read from the stream's leader
// as the log's messages. Permissions go by subject: owner and tenant stand in it.
package natsblob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/blob"
	"github.com/holdfast-io/holdfast/events/internal/stream"
)

// pieceBytes is the size of each piece but the last. It is part of the format: the
// number of pieces is told by a blob's size. A piece is read as base64 in JSON, and
// that has to fit into a message of 1 MiB.
const pieceBytes = 512 << 10

// codeWrongLast is the server's answer where a subject has a message already,
// codeInFlight where one isn't decided yet.
const (
	codeWrongLast jetstream.ErrorCode = 10071
	codeInFlight  jetstream.ErrorCode = 10164
)

// codesNoRoom are refusals for limits of the stream (10077), the account and the
// server. On a replicated stream a piece may be stored all the same: nothing refers to
// it, so that harms nobody.
var codesNoRoom = []jetstream.ErrorCode{10002, 10023, 10047, 10077}

// Place is where blobs are kept.
type Place struct {
	// Stream holds them, on subjects that begin with Prefix.
	Stream, Prefix string
	// Forgets says that the stream drops its oldest messages: then what is stored again
	// is written again, to last as long as what refers to it.
	Forgets bool
	// AttemptTimeout is how long one attempt at a piece waits for its answer before
	// it is made again; 0 means 2 s.
	AttemptTimeout time.Duration
}

// The places that the installer makes.
var (
	Beside  = Place{Stream: events.StreamBlobs, Prefix: "blob"}
	Output  = Place{Stream: events.StreamOutput, Prefix: "out", Forgets: true}
	Transit = Place{Stream: events.StreamTransit, Prefix: "transit"}
)

// Store is a blob.Store on a stream. It owns nothing: whoever made the connection
// closes it, after the contexts of all calls have ended.
type Store struct {
	js     jetstream.JetStream
	place  Place
	reader stream.Reader
}

var _ blob.Store = (*Store)(nil)

// New makes a Store on the connection that js was made from. It does not touch the
// stream, which the installer makes.
func New(js jetstream.JetStream, nc *nats.Conn, place Place) (*Store, error) {
	switch {
	case js == nil || nc == nil:
		return nil, errors.New("natsblob: needs a JetStream context and its connection")
	case place.Stream == "" || place.Prefix == "" || place.AttemptTimeout < 0:
		return nil, fmt.Errorf("natsblob: needs a stream, a prefix and no negative timeout: %+v", place)
	}
	if place.AttemptTimeout == 0 {
		place.AttemptTimeout = 2 * time.Second
	}
	return &Store{
		js: js, place: place,
		reader: stream.Reader{JS: js, NC: nc, Name: place.Stream, AttemptTimeout: place.AttemptTimeout},
	}, nil
}

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, owner blob.Owner, contents []byte) (events.Blob, error) {
	ref, err := blob.CheckPut(owner, contents)
	if err != nil {
		return events.Blob{}, err
	}
	for i := 0; i*pieceBytes < len(contents); i++ {
		piece := contents[i*pieceBytes : min((i+1)*pieceBytes, len(contents))]
		if err := s.putPiece(ctx, s.subject(owner, ref, i), piece); err != nil {
			return events.Blob{}, &blob.UnavailableError{Owner: owner, Err: err}
		}
	}
	return ref, nil
}

// putPiece stores one piece, in a stream that forgets nothing where there is none yet:
// what is there has the same hash in its name, and is checked when it is read.
func (s *Store) putPiece(ctx context.Context, subject string, piece []byte) error {
	pace := stream.NewPace()
	for {
		err := s.send(ctx, subject, piece)
		refused, _ := errors.AsType[*jetstream.APIError](err)
		switch {
		case err == nil, refused != nil && refused.ErrorCode == codeWrongLast:
			return nil
		case refused != nil && slices.Contains(codesNoRoom, refused.ErrorCode):
			return fmt.Errorf("store on %s: %w: %w", subject, blob.ErrNoRoom, err)
		case refused != nil && refused.ErrorCode == codeInFlight, stream.Unanswered(err):
		default:
			return fmt.Errorf("store on %s: %w", subject, err)
		}
		if stop := pace.Wait(ctx); stop != nil {
			return fmt.Errorf("store on %s: %w: %w", subject, stop, err)
		}
	}
}

func (s *Store) send(ctx context.Context, subject string, piece []byte) error {
	ctx, cancel := context.WithTimeout(ctx, s.place.AttemptTimeout)
	defer cancel()
	opts := []jetstream.PublishOpt{jetstream.WithExpectStream(s.place.Stream), jetstream.WithRetryAttempts(0)}
	if !s.place.Forgets {
		opts = append(opts, jetstream.WithExpectLastSequencePerSubject(0))
	}
	_, err := s.js.Publish(ctx, subject, piece, opts...)
	return err
}

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, owner blob.Owner, ref events.Blob) ([]byte, error) {
	if err := blob.CheckRef(owner, ref); err != nil {
		return nil, err
	}
	contents := make([]byte, 0, ref.Size)
	for i := 0; int64(i)*pieceBytes < ref.Size; i++ {
		m, err := s.reader.Last(ctx, s.subject(owner, ref, i))
		switch {
		case errors.Is(err, stream.ErrNoMessage):
			return nil, &events.LostError{Blob: ref, Reason: "are not there"}
		case err != nil:
			return nil, &blob.UnavailableError{Owner: owner, Err: err}
		}
		contents = append(contents, m.Data...)
	}
	if err := blob.Check(ref, contents); err != nil {
		return nil, err
	}
	return contents, nil
}

func (s *Store) subject(owner blob.Owner, ref events.Blob, piece int) string {
	return s.place.Prefix + "." + string(owner) + "." + ref.SHA256 + "." + strconv.Itoa(piece)
}

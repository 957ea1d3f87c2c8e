package api

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// DefaultSSELimit bounds one server-sent event, in bytes. It is above the
// largest frame: contents of 16 MiB, which masking and escapes may make longer.
const DefaultSSELimit = 64 << 20

// ErrSSETooLong is of an event over the reader's limit. The stream can't be
// read on.
var ErrSSETooLong = errors.New("server-sent event is too long")

// SSEEvent is one server-sent event, or one comment between events.
type SSEEvent struct {
	// ID is the event's own `id`; empty if it has none.
	ID string
	// Event is its type; empty means "message".
	Event string
	// Data are its `data` lines, joined by line feeds.
	Data []byte
	// Comment is set for a comment alone, the heartbeat of a connection.
	Comment string
	// IsComment tells an empty comment from an event.
	IsComment bool
}

// SSEReader reads an event stream (WHATWG HTML, 9.2.6) as it comes: an event
// is returned at its empty line, without waiting for what follows. It is for
// one goroutine.
type SSEReader struct {
	in     *bufio.Reader
	limit  int
	line   []byte
	skipLF bool // the line before ended in CR: a LF now belongs to it
	first  bool
	lastID string
}

// NewSSEReader reads events of at most limit bytes each; 0 means
// [DefaultSSELimit].
func NewSSEReader(r io.Reader, limit int) *SSEReader {
	if limit <= 0 {
		limit = DefaultSSELimit
	}
	return &SSEReader{in: bufio.NewReader(r), limit: limit, first: true}
}

// LastID is the last `id` that was read: what to resume from.
func (s *SSEReader) LastID() string { return s.lastID }

// Next is the next event or comment. io.EOF is the end between two events; a
// stream that is cut within one gives io.ErrUnexpectedEOF, and what came of it
// is dropped, as the standard says: it may be incomplete.
func (s *SSEReader) Next() (SSEEvent, error) {
	var (
		event   SSEEvent
		data    []byte // each line with a LF behind it; nil is no line
		size    int
		started bool
	)
	for {
		line, err := s.readLine(s.limit - size)
		if err != nil {
			if errors.Is(err, io.EOF) && started {
				err = io.ErrUnexpectedEOF
			}
			return SSEEvent{}, err
		}
		size += len(line)
		if len(line) == 0 {
			if !started {
				continue
			}
			if data != nil {
				event.Data = data[:len(data)-1]
				return event, nil
			}
			// Without data there is no event; its id has been noted.
			event, started, size = SSEEvent{}, false, 0
			continue
		}
		if line[0] == ':' {
			if started {
				continue
			}
			return SSEEvent{Comment: strings.TrimPrefix(string(line[1:]), " "), IsComment: true}, nil
		}
		started = true
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			data = append(append(data, value...), '\n')
		case "event":
			event.Event = string(value)
		case "id":
			if !bytes.ContainsRune(value, 0) {
				event.ID = string(value)
				s.lastID = event.ID
			}
		}
	}
}

// readLine is the next line without its end, which is LF, CR or CRLF. It is
// valid until the next call. A last line without an end is not a line.
func (s *SSEReader) readLine(limit int) ([]byte, error) {
	s.line = s.line[:0]
	for {
		b, err := s.in.ReadByte()
		if err != nil {
			if errors.Is(err, io.EOF) && len(s.line) > 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if s.skipLF {
			s.skipLF = false
			if b == '\n' {
				continue
			}
		}
		if b == '\n' || b == '\r' {
			s.skipLF = b == '\r'
			if s.first {
				s.first = false
				s.line = bytes.TrimPrefix(s.line, []byte("\ufeff"))
			}
			return s.line, nil
		}
		if len(s.line) >= limit {
			return nil, fmt.Errorf("%w: over %d bytes", ErrSSETooLong, s.limit)
		}
		s.line = append(s.line, b)
	}
}

// AppendSSE appends one event to dst as it goes over the wire. id and event may
// be empty; they must hold no line end or NUL, which are dropped because they
// would forge fields. Each line of data becomes a `data` line, with LF only:
// some AG-UI clients break on CRLF.
func AppendSSE(dst []byte, id, event string, data []byte) []byte {
	field := func(name, value string) {
		value = strings.Map(func(r rune) rune {
			if r == '\n' || r == '\r' || r == 0 {
				return -1
			}
			return r
		}, value)
		if value != "" {
			dst = append(append(append(dst, name...), ": "...), value...)
			dst = append(dst, '\n')
		}
	}
	field("id", id)
	field("event", event)
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		// A CR would end the line for the reader; JSON, which all our data is, never holds one raw.
		dst = append(append(dst, "data: "...), bytes.ReplaceAll(line, []byte("\r"), nil)...)
		dst = append(dst, '\n')
	}
	return append(dst, '\n')
}

// AppendSSEComment appends a comment, which clients ignore: a heartbeat.
func AppendSSEComment(dst []byte, text string) []byte {
	return append(append(append(dst, ": "...), strings.NewReplacer("\n", " ", "\r", " ").Replace(text)...), "\n\n"...)
}

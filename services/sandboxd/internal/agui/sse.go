package agui

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrTooLarge marks an event that is longer than the reader allows.
var ErrTooLarge = errors.New("event too large")

// Reader reads the data of server-sent events. Names, ids, comments and retry
// times are skipped: AG-UI gives them no meaning.
type Reader struct {
	r   *bufio.Reader
	max int
}

// NewReader reads events whose data has at most limit bytes.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 32<<10), max: limit}
}

// Next returns the data of the next event, its lines joined by LF. An event
// that was cut off by the end of the stream is dropped, as the standard says,
// and the error is then io.EOF or what the stream broke with.
func (r *Reader) Next() ([]byte, error) {
	var data []byte
	seen := false
	for {
		line, err := r.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if seen {
				return data, nil
			}
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != "data" {
			continue
		}
		if seen {
			data = append(data, '\n')
		}
		seen = true
		data = append(data, bytes.TrimPrefix(value, []byte(" "))...)
		if len(data) > r.max {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, r.max)
		}
	}
}

// line reads one line without its LF or CRLF. The result is valid until the
// next read.
func (r *Reader) line() ([]byte, error) {
	line, err := r.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		line = bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) {
			// The field's name and the CRLF come on top of the data.
			if len(line) > r.max+len("data: \r\n") {
				return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrTooLarge, r.max)
			}
			var part []byte
			part, err = r.r.ReadSlice('\n')
			line = append(line, part...)
		}
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

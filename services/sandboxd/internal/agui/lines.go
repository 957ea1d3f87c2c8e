package agui

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// LineReader reads events that are one a line, as programs of the adapter exec write
// them. Blank lines are skipped.
type LineReader struct {
	r   *bufio.Reader
	max int
}

// NewLineReader reads events that have at most limit bytes.
func NewLineReader(r io.Reader, limit int) *LineReader {
	return &LineReader{r: bufio.NewReaderSize(r, 32<<10), max: limit}
}

// Next returns the next event. The last one may lack its line break: a program that
// ended said all of it. The error is io.EOF at the end, [ErrTooLarge], or what the
// stream broke with.
func (r *LineReader) Next() ([]byte, error) {
	for {
		var line []byte
		for {
			part, err := r.r.ReadSlice('\n')
			line = append(line, part...)
			if len(line) > r.max+len("\r\n") {
				return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, r.max)
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			line = bytes.TrimSpace(line)
			if err == nil || errors.Is(err, io.EOF) && len(line) > 0 {
				break
			}
			return nil, err
		}
		if len(line) > 0 {
			return line, nil
		}
	}
}

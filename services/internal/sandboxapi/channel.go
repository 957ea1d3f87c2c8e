package sandboxapi

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// MaxControlBytes bounds one line of the control channel: a grant carries the
// session's config, which the session service bounds well below this.
const MaxControlBytes = 1 << 20

// ErrControl marks a line of the control channel that isn't a valid [Control].
var ErrControl = errors.New("invalid control message")

// Channel speaks [Control] over a stream, one JSON object per line. Send may be
// called from several goroutines, Receive from one.
type Channel struct {
	r  *bufio.Reader
	mu sync.Mutex
	w  io.Writer
}

// NewChannel wraps a stream, which stays the caller's to close.
func NewChannel(rw io.ReadWriter) *Channel {
	return &Channel{r: bufio.NewReader(rw), w: rw}
}

// Send writes one message as one line.
func (c *Channel) Send(m Control) error {
	line, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encode control message: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("send control message: %w", err)
	}
	return nil
}

// Receive reads the next message. It returns io.EOF when the peer is gone,
// also in the middle of a line, and an error that is [ErrControl] for a line
// that can't be understood; the channel is of no use after either.
func (c *Channel) Receive() (Control, error) {
	var line []byte
	for {
		part, err := c.r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > MaxControlBytes {
			return Control{}, fmt.Errorf("%w: longer than %d bytes", ErrControl, MaxControlBytes)
		}
		switch {
		case err == nil:
			return ParseControl(line)
		case !errors.Is(err, bufio.ErrBufferFull):
			return Control{}, err
		}
	}
}

// ParseControl reads one line and checks that it has what its type needs.
// Unknown fields and unknown types are refused: both ends come from one build,
// so that either means damage.
func ParseControl(line []byte) (Control, error) {
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	var m Control
	if err := dec.Decode(&m); err != nil {
		return Control{}, fmt.Errorf("%w: %w", ErrControl, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Control{}, fmt.Errorf("%w: more than one object on a line", ErrControl)
	}
	if missing := m.missing(); missing != "" {
		return Control{}, fmt.Errorf("%w: %q without %s", ErrControl, m.Type, missing)
	}
	return m, nil
}

// missing names what a message of this type lacks, or "".
func (m Control) missing() string {
	switch m.Type {
	case ControlBoot:
		if m.Boot == nil {
			return "boot"
		}
	case ControlRedeem:
		if m.Bind == "" {
			return "bind"
		}
	case ControlGranted:
		if m.Grant == nil || m.Grant.Session == "" || m.Grant.Token == "" {
			return "a grant with session and token"
		}
	case ControlBooted, ControlRenew, ControlRefused, ControlStop:
	default:
		return "a known type"
	}
	return ""
}

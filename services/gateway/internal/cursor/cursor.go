// Package cursor writes the opaque strings that say where a client is: in a
// session's timeline, in the inbox, and in a list. Clients give them back and
// never parse them; whatever isn't ours is ErrInvalid.
package cursor

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
)

// maxBytes bounds what is decoded: the API's Cursor has at most 512 characters.
const maxBytes = 512

// ErrInvalid says that a cursor wasn't made here, or is for another list.
var ErrInvalid = errors.New("invalid cursor")

// Session is a place in a session's timeline: after the event N and the OUTPUT
// message Out, in the log of Epoch. The zero value is the beginning.
type Session struct {
	Epoch string `json:"epoch"`
	N     uint64 `json:"n"`
	Out   uint64 `json:"out"`
}

// String is the opaque form.
func (c Session) String() string { return encode(c) }

// ParseSession reads the opaque form; "" is the beginning.
func ParseSession(s string) (Session, error) {
	var c Session
	if s == "" {
		return c, nil
	}
	if err := decode(s, &c); err != nil || c.Epoch == "" {
		return Session{}, ErrInvalid
	}
	return c, nil
}

// Inbox is a place in the inbox: after the EVENTS sequence Seq and, inside its
// envelope, the event Index (a message makes one frame for each of its events).
type Inbox struct {
	Epoch string `json:"epoch"`
	Seq   uint64 `json:"seq"`
	Index int    `json:"i,omitempty"`
}

// String is the opaque form.
func (c Inbox) String() string { return encode(c) }

// ParseInbox reads the opaque form; "" is "from now".
func ParseInbox(s string) (Inbox, error) {
	var c Inbox
	if s == "" {
		return c, nil
	}
	if err := decode(s, &c); err != nil || c.Epoch == "" || c.Index < 0 {
		return Inbox{}, ErrInvalid
	}
	return c, nil
}

// page is a place in a list, and which list.
type page struct {
	List []byte `json:"l"`
	At   string `json:"at"`
}

// Page is the cursor of a list's next page: at is the list's own word for the
// place. list names the list with its tenant and filters: the cursor is good for
// the same list alone, so that a filter can't be changed half way.
func Page(list []string, at string) string {
	if at == "" {
		return ""
	}
	return encode(page{List: digest(list), At: at})
}

// ParsePage gives back what Page was given; "" for the first page.
func ParsePage(list []string, s string) (at string, err error) {
	if s == "" {
		return "", nil
	}
	var p page
	if err := decode(s, &p); err != nil || p.At == "" || !bytes.Equal(p.List, digest(list)) {
		return "", ErrInvalid
	}
	return p.At, nil
}

func digest(list []string) []byte {
	b, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings always encode
	}
	sum := sha256.Sum256(b)
	return sum[:6]
}

func encode(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers always encode
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func decode(s string, into any) error {
	if len(s) > maxBytes {
		return ErrInvalid
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return ErrInvalid
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return ErrInvalid
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return ErrInvalid
	}
	return nil
}

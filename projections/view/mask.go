package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/events/session"
)

// Masker masks contents before they are shown. The zero value masks what is
// recognised as a secret; with redact pointers it also masks what those name in
// arguments and results.
type Masker struct{ pointers [][]string }

// NewMasker takes a runtime's redact paths: JSON pointers (RFC 6901) into a call's
// arguments and result.
func NewMasker(redact []string) Masker {
	var m Masker
	for _, p := range redact {
		if !strings.HasPrefix(p, "/") {
			continue // "" would be everything, and anything else isn't a pointer
		}
		tokens := strings.Split(p[1:], "/")
		for i, t := range tokens {
			tokens[i] = strings.ReplaceAll(strings.ReplaceAll(t, "~1", "/"), "~0", "~")
		}
		m.pointers = append(m.pointers, tokens)
	}
	return m
}

// ForSession takes the redact paths that the session is pinned to.
func ForSession(st *session.State) Masker { return NewMasker(st.Terms.Redact) }

// placeholder stands for a masked value of size bytes.
func placeholder(size int) string { return fmt.Sprintf("%s%d bytes›", placeholderStart, size) }

const placeholderStart = "‹masked, "

// masked says whether a text is a placeholder already, and nothing else.
func masked(s string) bool {
	rest, ok := strings.CutPrefix(s, placeholderStart)
	if !ok {
		return false
	}
	digits, ok := strings.CutSuffix(rest, " bytes›")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// Text masks the secrets that are recognised in a text.
func (m Masker) Text(s string) string { return maskSecrets(s) }

// Args masks a call's arguments: values that redact names, and secrets.
func (m Masker) Args(args json.RawMessage) json.RawMessage {
	return m.rewrite(args, m.pointers, false)
}

// JSON masks secrets in any JSON, and what redact names in the arguments that an
// AG-UI tool call carries as a string.
func (m Masker) JSON(raw json.RawMessage) json.RawMessage { return m.rewrite(raw, nil, false) }

// Payload masks an event's payload: as JSON, and what redact names in its args and
// result.
func (m Masker) Payload(data json.RawMessage) json.RawMessage { return m.rewrite(data, nil, true) }

// Agui masks one AG-UI event. Arguments that stream in pieces can't be judged
// piece by piece: where the runtime redacts anything they are masked whole, the
// prompt and the recorded call show the rest.
func (m Masker) Agui(event json.RawMessage) json.RawMessage {
	if len(m.pointers) == 0 {
		return m.JSON(event)
	}
	var e struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(event, &e) == nil && (e.Type == "TOOL_CALL_ARGS" || e.Type == "TOOL_CALL_CHUNK") {
		return m.rewrite(event, [][]string{{"delta"}}, false)
	}
	return m.JSON(event)
}

// rewrite masks in raw and leaves every byte around as it is. payload says that
// the members args and result at the top are what pointers point into. What isn't
// JSON is masked as text and shown as a JSON string.
func (m Masker) rewrite(raw json.RawMessage, pointers [][]string, payload bool) json.RawMessage {
	if len(pointers) == 0 && len(m.pointers) == 0 && !mayHoldSecret(string(raw)) {
		return raw
	}
	if !json.Valid(raw) {
		return mustJSON(maskSecrets(string(raw)))
	}
	w := rewriter{src: raw, mask: m}
	w.space()
	w.value(place{pointers: pointers, payload: payload})
	return w.result()
}

// place is where a rewriter is in the document.
type place struct {
	// key is the member's name, "" in an array and at the top.
	key string
	// pointers are what is left of the pointers that lead through here; one with
	// nothing left names this value.
	pointers [][]string
	payload  bool
}

// enter gives the place of a member or an element.
func (p place) enter(m Masker, key string) place {
	next := place{key: key}
	for _, ptr := range p.pointers {
		if len(ptr) > 0 && ptr[0] == key {
			next.pointers = append(next.pointers, ptr[1:])
		}
	}
	if p.payload && (key == "args" || key == "result") {
		next.pointers = m.pointers
	}
	return next
}

func (p place) named() bool {
	return slices.ContainsFunc(p.pointers, func(ptr []string) bool { return len(ptr) == 0 })
}

// rewriter walks valid JSON and copies it, but for the literals that it replaces.
type rewriter struct {
	src  []byte
	pos  int
	mask Masker
	out  []byte
	// copied is up to where src is in out.
	copied int
}

func (w *rewriter) result() json.RawMessage {
	if w.out == nil {
		return w.src
	}
	return append(w.out, w.src[w.copied:]...)
}

// replace puts a JSON string in the place of src[from:w.pos].
func (w *rewriter) replace(from int, s string) {
	w.out = append(w.out, w.src[w.copied:from]...)
	w.out = append(w.out, mustJSON(s)...)
	w.copied = w.pos
}

func (w *rewriter) value(p place) {
	from := w.pos
	switch w.src[w.pos] {
	case '{', '[':
		if p.named() {
			w.skip()
			w.replace(from, placeholder(w.pos-from))
			return
		}
		w.container(p)
	case '"':
		w.text(p, w.literal())
	default:
		w.scalar()
		if p.named() {
			w.replace(from, placeholder(w.pos-from))
		}
	}
}

// text masks a string whose literal has just been passed.
func (w *rewriter) text(p place, from int) {
	s := w.decode(from)
	to := s
	switch {
	case masked(s):
	case p.named() || s != "" && secretName(p.key):
		to = placeholder(len(s))
	case p.key == "arguments" && json.Valid([]byte(s)): // AG-UI carries a tool call's arguments as a string
		to = string(w.mask.Args(json.RawMessage(s)))
	default:
		to = maskSecrets(s)
	}
	if to != s {
		w.replace(from, to)
	}
}

// container walks an object or an array.
func (w *rewriter) container(p place) {
	object := w.src[w.pos] == '{'
	w.pos++
	for i := 0; ; i++ {
		w.space()
		switch w.src[w.pos] {
		case '}', ']':
			w.pos++
			return
		case ',':
			w.pos++
			w.space()
		}
		if object {
			from := w.literal()
			key := w.decode(from)
			if to := maskSecrets(key); to != key {
				w.replace(from, to)
			}
			w.space()
			w.pos++ // the colon
			w.space()
			w.value(p.enter(w.mask, key))
			continue
		}
		next := p.enter(w.mask, strconv.Itoa(i))
		next.key = ""
		w.value(next)
	}
}

func (w *rewriter) space() {
	for w.pos < len(w.src) && strings.IndexByte(" \t\r\n", w.src[w.pos]) >= 0 {
		w.pos++
	}
}

// literal passes a string and gives where it began.
func (w *rewriter) literal() (from int) {
	from = w.pos
	for w.pos++; w.src[w.pos] != '"'; w.pos++ {
		if w.src[w.pos] == '\\' {
			w.pos++
		}
	}
	w.pos++
	return from
}

// decode gives the text of the string literal that ends here.
func (w *rewriter) decode(from int) string {
	literal := w.src[from:w.pos]
	if !slices.Contains(literal, '\\') {
		return string(literal[1 : len(literal)-1])
	}
	var s string
	if err := json.Unmarshal(literal, &s); err != nil {
		return string(literal)
	}
	return s
}

// scalar passes a number, true, false or null.
func (w *rewriter) scalar() {
	for w.pos < len(w.src) && strings.IndexByte(",]} \t\r\n", w.src[w.pos]) < 0 {
		w.pos++
	}
}

// skip passes an object or an array without looking inside.
func (w *rewriter) skip() {
	for depth := 0; ; {
		switch w.src[w.pos] {
		case '"':
			w.literal()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				w.pos++
				return
			}
		}
		w.pos++
	}
}

package view

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible shows characters that hide or reorder text as ‹U+202E›: controls
// besides newline and tab, bidirectional marks, zero-width and other format
// characters, line and paragraph separators, and bytes that aren't UTF-8. A
// carriage return stays where a newline follows.
func Visible(s string) string {
	if strings.IndexFunc(s, hides) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i, r := range s {
		switch {
		case r == '\r' && strings.HasPrefix(s[i+1:], "\n"):
			b.WriteRune(r)
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, "‹0x%02X›", s[i])
		case hides(r):
			fmt.Fprintf(&b, "‹U+%04X›", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// hides says whether a character is one that Visible shows by its number.
func hides(r rune) bool {
	switch r {
	case '\n', '\t':
		return false
	case '\u2028', '\u2029', '\u115F', '\u1160', '\u3164', '\uFFA0': // separators, and fillers that look like nothing
		return true
	}
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
}

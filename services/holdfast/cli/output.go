package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// Show prints a value as JSON, or as text by the function.
func (o *Options) Show(w io.Writer, value any, text func(io.Writer)) error {
	if o.Output == "json" {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(value)
	}
	text(w)
	return nil
}

// Check refuses an output that there isn't, before anything is done.
func (o *Options) Check() error {
	if o.Output == "json" || o.Output == "text" {
		return nil
	}
	return usagef("output %q: use text or json", o.Output)
}

// paging are the flags of a list.
type paging struct {
	limit  int
	cursor string
}

func (p *paging) flags(cmd *cobra.Command) {
	cmd.Flags().IntVar(&p.limit, "limit", 200, "at most so many")
	cmd.Flags().StringVar(&p.cursor, "cursor", "", "go on from the page before")
}

// more says that a list goes on.
func more(w io.Writer, next string) {
	if next != "" {
		fmt.Fprintf(w, "\nThere is more: --cursor %s\n", next)
	}
}

// table prints rows with a head in aligned columns.
func table(w io.Writer, head []string, rows [][]string) {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(tw, strings.Join(head, "\t"))
	for _, r := range rows {
		fmt.Fprintln(tw, strings.Join(r, "\t"))
	}
	_ = tw.Flush() // w is a terminal or a pipe: what it can't take is lost anyway
}

// clock is a time of day, with the date where it isn't today.
func clock(t time.Time) string {
	t = t.Local()
	if y, m, d := time.Now().Date(); y == t.Year() && m == t.Month() && d == t.Day() {
		return t.Format("15:04:05")
	}
	return t.Format("2006-01-02 15:04:05")
}

// ago is how long a time is past, roughly.
func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// safe shows control and bidirectional characters of others' text instead of
// letting them act on the terminal.
func safe(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return r
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return '�'
		}
		return r
	}, s)
}

// compact is JSON on one line.
func compact(raw json.RawMessage) string {
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return string(raw)
	}
	return encode(v, "", string(raw))
}

// encode is JSON for people: < > & stay themselves.
func encode(v any, indent, otherwise string) string {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return otherwise
	}
	return strings.TrimSuffix(out.String(), "\n")
}

package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
)

// aim is what a ratio should keep to; the zero aim is none.
type aim struct{ atMost, atLeast float64 }

func (a aim) String() string {
	switch {
	case a.atMost > 0:
		return fmt.Sprintf("≤ %.2g×", a.atMost)
	case a.atLeast > 0:
		return fmt.Sprintf("≥ %.2g×", a.atLeast)
	}
	return ""
}

// verdict says whether the median of a ratio keeps to the aim; "" without one.
func (a aim) verdict(s spread) string {
	switch {
	case a == aim{}:
		return ""
	case a.atMost > 0 && s.median > a.atMost, a.atLeast > 0 && s.median < a.atLeast:
		return "missed"
	}
	return "met"
}

// figure is one line of a table.
type figure struct {
	what       string
	ours, base string
	ratio      spread
	aim        aim
}

// finding is what one benchmark found.
type finding struct {
	title string
	// baseline says what ours is compared with, samples how much was measured.
	baseline, samples string
	figures           []figure
	// notes are said below the table, one line each.
	notes []string
}

// latency is the figure of a quantile of r.
func latency(what string, r rounds, q float64, a aim) figure {
	ours, base := r.pooled(q)
	return figure{what: fmt.Sprintf("%s, p%g", what, q*100), ours: milliseconds(ours), base: milliseconds(base), ratio: r.ratio(q), aim: a}
}

func milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.0f ms", ms)
}

// rate is the figure of how much was done in a second, in rounds of equal work.
func rate(what, unit string, work int, ours, base []time.Duration, a aim) figure {
	perSecond := func(d time.Duration) float64 { return float64(work) / d.Seconds() }
	o, b, ratios := make([]float64, len(ours)), make([]float64, len(ours)), make([]float64, len(ours))
	for i := range ours {
		o[i], b[i] = perSecond(ours[i]), perSecond(base[i])
		ratios[i] = o[i] / b[i]
	}
	show := func(v []float64) string { return fmt.Sprintf("%.0f %s/s", spreadOf(v).median, unit) }
	return figure{what: what, ours: show(o), base: show(b), ratio: spreadOf(ratios), aim: a}
}

// cells are a figure's columns.
func (f figure) cells() []string {
	ratio := fmt.Sprintf("%.2f× (%.2f–%.2f)", f.ratio.median, f.ratio.least, f.ratio.most)
	verdict := f.aim.verdict(f.ratio)
	if verdict != "" {
		verdict = f.aim.String() + " " + verdict
	}
	return []string{f.what, f.ours, f.base, ratio, verdict}
}

var columns = []string{"what", "Holdfast", "baseline", "ratio (least–most of rounds)", "aim"}

// printText writes findings for a terminal.
func printText(w io.Writer, m machine, found []finding) error {
	if _, err := fmt.Fprintf(w, "%s\n", m); err != nil {
		return err
	}
	for _, f := range found {
		if _, err := fmt.Fprintf(w, "\n%s\n  baseline: %s\n  %s\n\n", strings.ToUpper(f.title), f.baseline, f.samples); err != nil {
			return err
		}
		t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
		if _, err := fmt.Fprintf(t, "  %s\n", strings.Join(columns, "\t")); err != nil {
			return err
		}
		for _, line := range f.figures {
			if _, err := fmt.Fprintf(t, "  %s\n", strings.Join(line.cells(), "\t")); err != nil {
				return err
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		for _, n := range f.notes {
			if _, err := fmt.Fprintf(w, "  · %s\n", n); err != nil {
				return err
			}
		}
	}
	return nil
}

// printMarkdown writes findings as they stand in docs/benchmarks.md.
func printMarkdown(w io.Writer, m machine, found []finding) error {
	_, err := io.WriteString(w, markdown(m, found))
	return err
}

func markdown(m machine, found []finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n", m)
	for _, f := range found {
		fmt.Fprintf(&b, "\n### %s\n\nBaseline: %s. %s.\n\n", f.title, f.baseline, f.samples)
		fmt.Fprintf(&b, "| %s |\n|---|---:|---:|---:|---|\n", strings.Join(columns, " | "))
		for _, line := range f.figures {
			fmt.Fprintf(&b, "| %s |\n", strings.Join(line.cells(), " | "))
		}
		if len(f.notes) > 0 {
			b.WriteString("\n")
		}
		for _, n := range f.notes {
			fmt.Fprintf(&b, "- %s\n", n)
		}
	}
	return b.String()
}

// The marks between which writeInto writes.
const (
	markBegin = "<!-- bench: begin -->\n"
	markEnd   = "<!-- bench: end -->\n"
)

// writeInto replaces what stands between the marks of a file.
func writeInto(path string, m machine, found []finding) error {
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(old), markBegin)
	_, after, ends := strings.Cut(rest, markEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no marks %q and %q", path, markBegin, markEnd)
	}
	return os.WriteFile(path, []byte(before+markBegin+markdown(m, found)+markEnd+after), 0o644) //nolint:gosec // documentation, for all to read
}

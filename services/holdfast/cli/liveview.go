package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
)

var (
	strong = lipgloss.NewStyle().Bold(true)
	faint  = lipgloss.NewStyle().Faint(true)
	asking = lipgloss.NewStyle().Bold(true).Reverse(true)
)

// View implements tea.Model.
func (m *live) View() tea.View {
	if m.width == 0 { // the terminal's size comes first
		return tea.NewView("")
	}
	head, foot := m.head(), m.foot()
	middle := &m.timeline
	if m.mode == approving || m.mode == denying {
		middle = &m.question
	}
	middle.SetWidth(m.width)
	follow := middle.AtBottom() && middle == &m.timeline
	middle.SetHeight(max(1, m.height-lipgloss.Height(head)-lipgloss.Height(foot)))
	if follow {
		middle.GotoBottom()
	}
	v := tea.NewView(strings.Join([]string{head, middle.View(), foot}, "\n"))
	v.AltScreen = true
	v.WindowTitle = "holdfast " + m.act.session
	return v
}

// line is one line of the terminal: what doesn't fit is cut with a sign.
func (m *live) line(s string) string {
	return lipgloss.NewStyle().MaxWidth(m.width).Render(s)
}

func (m *live) rule() string { return faint.Render(strings.Repeat("─", m.width)) }

// head is the session's state.
func (m *live) head() string {
	s := m.session
	if s == nil {
		return m.line(strong.Render(m.act.session)+"  …") + "\n" + m.rule()
	}
	about := []string{strong.Render(s.ID), phaseOf(*s)}
	if s.Waiting > 0 {
		about = append(about, fmt.Sprintf("%d to answer", s.Waiting))
	}
	if s.Run != "" {
		about = append(about, "run "+s.Run)
	}
	where := []string{fmt.Sprintf("%s@%d", s.Runtime.Name, s.Runtime.Revision), "generation " + strconv.FormatUint(s.Generation, 10), s.Isolation, s.Owner}
	if !s.Deadlines.Idle.IsZero() {
		where = append(where, "idle in "+left(s.Deadlines.Idle))
	}
	if !s.Deadlines.Max.IsZero() {
		where = append(where, "ends in "+left(s.Deadlines.Max))
	}
	if s.Cause != "" {
		where = append(where, safe(s.Cause))
	}
	return strings.Join([]string{m.line(strings.Join(about, "  ")), m.line(faint.Render(strings.Join(where, "  "))), m.rule()}, "\n")
}

// left is how long it is until a time.
func left(t time.Time) string {
	d := time.Until(t).Round(time.Second)
	if d < 0 {
		return "a moment"
	}
	return d.String()
}

// foot is what waits for a person and what keys do.
func (m *live) foot() string {
	lines := []string{m.rule()}
	switch m.mode {
	case following:
		if len(m.open) > 0 {
			lines = append(lines, m.waits())
		}
		if m.note != "" {
			lines = append(lines, m.line(safe(m.note)))
		}
		keys := "m message  s suspend  r resume  x cancel run  ↑↓ scroll  q leave"
		if len(m.open) > 0 {
			keys = "a approve  d deny  " + keys
		}
		if !m.timeline.AtBottom() {
			keys = "End follow  " + keys
		}
		lines = append(lines, m.line(faint.Render(keys)))
	case approving, denying, writing:
		does := map[mode]string{
			approving: "enter approves exactly what is shown", denying: "enter denies", writing: "enter sends",
		}[m.mode]
		if m.mode != writing {
			does += "  ↑↓ scroll"
			if !m.question.AtBottom() {
				does = fmt.Sprintf("there is more below (%d%%)  ", int(100*m.question.ScrollPercent())) + does
			}
		}
		m.input.SetWidth(max(1, m.width-4))
		lines = append(lines, m.input.View(), m.line(faint.Render(does+"  esc goes back")))
	}
	return strings.Join(lines, "\n")
}

// waits is the chosen question on one line; answering shows it whole.
func (m *live) waits() string {
	a := m.open[m.chosen]
	head := asking.Render(fmt.Sprintf(" ? %d of %d ", m.chosen+1, len(m.open)))
	if len(m.open) > 1 {
		head += " tab next "
	}
	ends := ""
	if !a.Deadline.IsZero() {
		ends = "  " + left(a.Deadline) + " left"
	}
	room := max(20, m.width-lipgloss.Width(head)-len(a.Tool)-len(ends)-24)
	return m.line(fmt.Sprintf("%s %s %s%s", head, safe(a.Tool), shortened(compact(a.Args), room), ends))
}

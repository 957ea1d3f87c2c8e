package cli

import "strings"

// transcript is text as lines; the last one is open until its end has come. It is
// what a printer writes to where there is no terminal to scroll by itself.
type transcript struct {
	lines []string
	begun bool // the last line has no end yet
}

// Write implements io.Writer; it never fails.
func (t *transcript) Write(b []byte) (int, error) {
	for part := range strings.SplitAfterSeq(string(b), "\n") {
		if part == "" {
			continue
		}
		text, ended := strings.CutSuffix(part, "\n")
		if t.begun {
			t.lines[len(t.lines)-1] += text
		} else {
			t.lines = append(t.lines, text)
		}
		t.begun = !ended
	}
	return len(b), nil
}

// open says whether the last line goes on.
func (t *transcript) open() bool { return t.begun }

// cut keeps the newest lines and says in the first that others were there.
func (t *transcript) cut(most int) {
	if len(t.lines) <= most {
		return
	}
	t.lines = t.lines[len(t.lines)-most:]
	t.lines[0] = "… earlier lines are in holdfast replay"
}

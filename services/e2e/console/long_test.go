package console_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

const (
	// frames is how long a long timeline is.
	frames = 10_000
	// mostNodes bounds the elements of a page, whatever the session's length.
	mostNodes = 2_500
	// nodes counts them.
	nodes = "document.querySelectorAll('*').length"
)

// shownLines gives the numbers of the lines that are in view, as an expression: what
// is drawn beyond it doesn't count.
const shownLines = `(() => {
  const view = document.querySelector('.timeline').getBoundingClientRect();
  return [...document.querySelectorAll('.timeline [data-kind=line]')].filter((e) => {
    const r = e.getBoundingClientRect();
    return r.bottom > view.top && r.top < view.bottom;
  }).map((e) => e.textContent);
})()`

// long is a session with so many events, on its page.
func long(t *testing.T, to int) (*harness.Holdfast, *tab, *author, string) {
	t.Helper()
	h, b := start(t)
	s := h.Create("alice", "")
	a := newAuthor(t, h)
	a.extend(s.ID, to)
	return h, b, a, s.ID
}

// Of ten thousand frames only those in view are in the document, and they are the
// right ones: at both ends, in the middle, after a jump, and while more come.
func TestTenThousandFrames(t *testing.T) {
	_, b, a, id := long(t, frames)
	b.visit("#/sessions/" + id)
	b.sees(".timeline", lineOf(frames))
	bounded := func(where string) {
		t.Helper()
		if n := eval[int](b, nodes); n > mostNodes {
			t.Errorf("%s: %d elements, more than %d", where, n, mostNodes)
		}
	}
	bounded("at the end")
	b.until("the end is in view", shownLines+".at(-1).includes("+quote(lineOf(frames))+")")

	b.run("document.querySelector('.timeline').focus()")
	b.keys(kb.Home)
	b.until("the beginning is in view", shownLines+"[0]?.includes('Created from')")
	bounded("at the beginning")

	// Into the middle, from where nothing was ever drawn: what is in view goes on
	// without a hole, and stays when the reader moves a little.
	b.run("const t = document.querySelector('.timeline'); t.scrollTop = t.scrollHeight / 2")
	b.until("the middle is in view", shownLines+".length > 10")
	bounded("in the middle")
	gapless := fmt.Sprintf(`(() => {
  const seconds = %s.map((t) => /after (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?/.exec(t)).map(([, h, m, s]) => (h || 0) * 3600 + (m || 0) * 60 + Number(s || 0));
  return seconds.length > 10 && seconds.every((s, i) => !i || s === seconds[i - 1] + 1) && seconds[0];
})()`, shownLines)
	b.until("the lines of the middle follow each other", gapless)
	at := eval[float64](b, gapless) - 3600
	if at < frames*0.4 || at > frames*0.6 {
		t.Errorf("in the middle the first line is %v of %d", at, frames)
	}
	b.run("document.querySelector('.timeline').scrollTop -= 300")
	b.until("a little further up there is no hole either", gapless)
	if up := eval[float64](b, gapless) - 3600; up >= at || up < at-30 {
		t.Errorf("300 pixels up from line %v is line %v", at, up)
	}

	// A reader who looks back isn't moved by what comes, and comes back to the live end.
	before := eval[float64](b, gapless)
	a.extend(id, frames+5)
	b.sees(".new-below", "5 new items below")
	if now := eval[float64](b, gapless); now != before {
		t.Errorf("what came moved the reader from %v to %v", before, now)
	}
	b.click(".new-below", "")
	b.until("the new end is in view", shownLines+".at(-1).includes("+quote(lineOf(frames+5))+")")
	a.extend(id, frames+6)
	b.until("and is followed", shownLines+".at(-1).includes("+quote(lineOf(frames+6))+")")

	// A link leads to its event, and the search finds what isn't drawn.
	b.visit(fmt.Sprintf("#/sessions/%s?n=%d", id, frames/4))
	b.sees(".item.found", lineOf(frames/4))
	b.until("it is in view", shownLines+".some((l) => l.includes("+quote(lineOf(frames/4))+"))")
	b.fill("#find", lineOf(frames/3))
	b.sees(".find [role=status]", "1 of ")
	b.sees(".timeline", lineOf(frames/3))
	bounded("at the end of the test")
}

// Ten thousand messages of an agent are as light, and so is one that never ends.
func TestTenThousandMessages(t *testing.T) {
	h, b := start(t)
	s := h.Create("alice", "")
	a := newAuthor(t, h)
	b.visit("#/sessions/" + s.ID)
	b.sees("[data-kind=line]", "Sandbox ready")
	const each = 500
	k := uint64(1)
	for from := 0; from < frames; from += each {
		var said []map[string]any
		for i := from; i < from+each; i++ {
			said = append(said, message(fmt.Sprintf("m-%d", i), fmt.Sprintf("message %d of the flood", i))...)
		}
		a.say(s.ID, "r-flood", k, said...)
		k += uint64(len(said))
	}
	b.sees("[data-kind=agent]", fmt.Sprintf("message %d of the flood", frames-1))
	if n := eval[int](b, nodes); n > mostNodes {
		t.Errorf("%d elements for %d messages", n, frames)
	}
	// Whoever holds Tab down comes from each to the next, faster than they are drawn.
	b.run("document.querySelector('.timeline').focus()")
	b.toBeginning()
	b.keys(strings.Repeat(kb.Tab, 100))
	b.until("the hundredth thing to stop at has the focus", "/^message 9[5-9] of/.test(document.activeElement.textContent)")
	b.fill("#find", "message 4321 of")
	b.sees("[data-kind=agent]", "message 4321 of the flood")
	b.until("only that one is found", "document.querySelectorAll('[data-kind=agent]').length === 1")
}

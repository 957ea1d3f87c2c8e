package console_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// place is where the scrubber stands, moment what the page says of it, as
// expressions.
const (
	place  = "Number(document.querySelector('.scrub').value)"
	moment = "document.querySelector('.where b').textContent"
	hash   = "location.hash"
)

// field is the value of a field of the state beside the replay, as an expression.
func field(name string) string {
	return "[...document.querySelectorAll('.fields > div')].find((d) => d.firstChild.textContent === " + quote(name) + ")?.lastChild.textContent"
}

// asked is a session that waits for an answer, and its n.
func asked(t *testing.T, h *harness.Holdfast) (id string, n int) {
	t.Helper()
	s := h.Create("alice", "ls\ntouch it.txt")
	h.AwaitQuestion(s.ID)
	now := h.Await(s.ID, "the run waits", func(s *api.Session) bool { return s.Waiting == 1 && s.Run != "" })
	facts := h.AwaitFact(s.ID, "the run is interrupted", func(f []harness.Fact) bool { return f[len(f)-1].Type == "run.interrupted" })
	return s.ID, max(int(now.N), len(facts))
}

// scrub moves the slider, as a pointer does.
func (b *tab) scrub(to string) {
	b.t.Helper()
	b.run("const s = document.querySelector('.scrub'); s.value = " + to + "; s.dispatchEvent(new Event('input', {bubbles: true}))")
}

// At each n the state beside the replay is the one that the API gives as of it.
func TestReplayShowsTheStateAsOfEachN(t *testing.T) {
	h, b := start(t)
	id, last := asked(t, h)
	b.visit("#/sessions/" + id)
	b.sees(".question", "touch it.txt")
	b.click(".session-head a", "Replay")
	b.until("the replay is there, before anything was played", moment+" === 'event 1'")
	b.sees(".replay-head", "nothing here can be answered or changed")
	for n := 1; n <= last; n++ {
		b.visit(fmt.Sprintf("#/sessions/%s/replay?n=%d", id, n))
		b.until("the state is that of the moment", fmt.Sprintf("%s === 'event %d' && document.querySelector('.moment h2').textContent === 'State as of event %d' && !document.querySelector('.late') && %s !== undefined", moment, n, n, field("phase")))
		at := fmt.Sprint(n)
		then, err := h.Client("alice").GetSessionWithResponse(h.Context(), id, &api.GetSessionParams{AsOf: &at})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{
			"phase": string(then.JSON200.Phase), "waiting": fmt.Sprint(then.JSON200.Waiting),
			"run": then.JSON200.Run, "generation": fmt.Sprint(then.JSON200.Generation),
		}
		for name, value := range want {
			if value == "" {
				value = "none"
			}
			if shown := eval[string](b, field(name)+" ?? 'none'"); shown != value {
				t.Errorf("as of n %d: %s is %q, want %q", n, name, shown, value)
			}
		}
	}
	b.sees("[data-kind=call]", "waits for an answer")
	if n := eval[int](b, "document.querySelectorAll('.question, .replay button.primary, .composer').length"); n != 0 {
		t.Error("a replay asks, or takes an answer")
	}
	b.saveScreenshot("replay")
}

// Played at its own pace or faster, it comes to the end through every frame; a long
// pause is shortened, and said to be.
func TestReplayPlays(t *testing.T) {
	h, b := start(t)
	id, last := asked(t, h)
	b.visit("#/sessions/" + id + "/replay")
	b.until("it was read", moment+" === 'event 1' && !document.querySelector('.where').textContent.includes('reading')")
	b.run("const s = document.querySelector('.scrub-row select'); s.value = '60'; s.dispatchEvent(new Event('change', {bubbles: true}))")
	b.click("button", "Play")
	b.until("it plays to its end", fmt.Sprintf("%s.startsWith('event %d') && document.querySelector('.play').textContent === 'Play' && %s === Number(document.querySelector('.scrub').max)", moment, last, place))
	b.sees("[data-kind=agent]", "$ ls")

	// An answer that came 40 seconds later is a pause that nobody waits for.
	b.visit("#/sessions/" + id + "/replay?n=2")
	b.until("it is at the second event", moment+" === 'event 2'")
	pauses := eval[string](b, `(async () => {
  const { Player } = await import('./js/player.js');
  const frame = (n, s) => ({ kind: 'event', n, time: new Date(s * 1000).toISOString(), data: { type: 'session.expired', data: {} } });
  const frames = [frame(1, 0), frame(2, 1), frame(3, 41)];
  const tape = { frames, length: 3, whole: true, timeAt: (p) => frames[p - 1]?.time,
    gapAfter: (p) => (p >= 1 && p < 3 ? Date.parse(frames[p].time) - Date.parse(frames[p - 1].time) : 0) };
  const said = [];
  for (const speed of [1, 2, 10, 60]) {
    const player = new Player(tape, () => {});
    player.pace(speed);
    for (const place of [1, 2]) { player.place = place; said.push(player.wait() + '/' + player.shortened); }
  }
  return said.join(' ');
})()`)
	if want := "1000/0 3000/40000 500/0 3000/40000 100/0 3000/40000 16.666666666666668/0 666.6666666666666/0"; pauses != want {
		// At 10 times as fast 40 s are 4 s: still longer than 3.
		t.Errorf("waits and shortened pauses at 1, 2, 10 and 60:\n got %s\nwant %s", pauses, want)
	}
}

// Step by step, by pointer and by keyboard, forward and back.
func TestReplaySteps(t *testing.T) {
	h, b := start(t)
	id, _ := asked(t, h)
	b.visit("#/sessions/" + id + "/replay?n=3")
	b.until("it is at the third event", moment+" === 'event 3'")
	at := eval[int](b, place)
	b.click("button[aria-label='One step forward']", "")
	b.until("it is a step further", fmt.Sprintf("%s === %d", place, at+1))
	b.click("button[aria-label='One step back']", "")
	b.click("button[aria-label='One step back']", "")
	b.until("it is a step further back", fmt.Sprintf("%s === %d && %s === 'event 2'", place, at-1, moment))
	if n := eval[int](b, "document.querySelectorAll('[data-kind=user]').length"); n != 1 {
		t.Errorf("%d messages after event 2, want the first", n)
	}
	b.run("document.querySelector('.scrub').focus()")
	b.keys(kb.ArrowRight)
	b.until("an arrow steps", fmt.Sprintf("%s === %d", place, at))
	b.keys(kb.Home)
	b.until("Home is before everything", place+" === 0 && "+moment+" === 'before the first event'")
	b.sees(".moment", "Nothing has happened yet")
	b.keys(kb.End)
	b.until("End is the end", place+" === Number(document.querySelector('.scrub').max)")
	b.keys(" ")
	b.until("Space plays, from the beginning", "document.querySelector('.play').textContent === 'Pause'")
	b.keys(" ")
	b.until("Space pauses", "document.querySelector('.play').textContent === 'Play'")
	value := eval[string](b, "document.querySelector('.scrub').getAttribute('aria-valuetext')")
	if !strings.Contains(value, "event") || !strings.Contains(value, ":") {
		t.Errorf("the slider says %q, not which event and when", value)
	}
}

// Two moments are compared field by field, and exactly what the API says differs.
func TestReplayComparesTwoMoments(t *testing.T) {
	h, b := start(t)
	id, last := asked(t, h)
	b.visit("#/sessions/" + id + "/replay?n=2")
	b.until("it is at the second event", moment+" === 'event 2'")
	b.click("button", "Compare from here")
	b.sees(".moment", "Nothing of the state is different")
	b.scrub("document.querySelector('.scrub').max")
	b.until("both moments are named", fmt.Sprintf("document.querySelector('.moment h2').textContent === 'From event 2 to event %d' && document.querySelector('.changes') && !document.querySelector('.late')", last))
	rows := eval[map[string][]string](b, "Object.fromEntries([...document.querySelectorAll('.changes tbody tr')].map((r) => [r.cells[0].textContent, [r.cells[1].textContent, r.cells[2].textContent]]))")
	for name, want := range map[string][2]string{"phase": {"pending", "ready"}, "waiting": {"0", "1"}, "generation": {"0", "1"}} {
		if got := rows[name]; len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("%s went from %v, want %v", name, got, want)
		}
	}
	for _, same := range []string{"owner", "createdAt", "runtime.name"} {
		if got, ok := rows[same]; ok {
			t.Errorf("%s is said to have changed: %v", same, got)
		}
	}
	b.until("the address says both", fmt.Sprintf("%s.includes('with=2') && %s.includes('n=%d')", hash, hash, last))
	b.saveScreenshot("compared")
	b.do("reload", reload)
	b.until("a reload shows the same", fmt.Sprintf("document.querySelector('.moment h2')?.textContent === 'From event 2 to event %d' && document.querySelector('.changes')", last))
	b.click("button", "Stop comparing")
	b.until("the state is back", field("phase")+" === 'ready'")
}

// A link opens exactly its moment, in a browser that was never here, also between two
// events; the copied one is the address of what is shown.
func TestReplayLink(t *testing.T) {
	h, b := start(t)
	id, last := asked(t, h)
	b.visit("#/sessions/" + id + "/replay")
	b.until("it was read", moment+" === 'event 1' && !document.querySelector('.where').textContent.includes('reading')")
	// Where the agent spoke: a place behind an event that has no n of its own.
	for eval[int](b, place) < eval[int](b, "Number(document.querySelector('.scrub').max)") && !strings.Contains(eval[string](b, moment), "later") {
		before := eval[int](b, place)
		b.click("button[aria-label='One step forward']", "")
		b.until("it stepped", fmt.Sprintf("%s === %d", place, before+1))
	}
	here, at := eval[string](b, moment), eval[int](b, place)
	if !strings.Contains(here, "later") {
		t.Fatalf("the agent said nothing up to %s", here)
	}
	b.until("the address is of the moment", hash+".includes('&k=')")
	b.run("window.copied = ''; Object.defineProperty(navigator, 'clipboard', {value: {writeText: async (t) => { window.copied = t; }}})")
	b.click("button", "Copy link")
	b.sees("button", "Copied")
	link := eval[string](b, "window.copied")
	if link != eval[string](b, "location.href") {
		t.Errorf("the copied link is %s", link)
	}

	cold := open(t, link) // signed out: the link survives signing in
	cold.fill("input[name=token]", h.Token("bob"))
	cold.enter()
	cold.until("the same moment is shown", fmt.Sprintf("document.querySelector('.scrub') && %s === %d && %s === %s", place, at, moment, quote(here)))
	if shown, want := eval[string](cold, "document.querySelector('.timeline').innerText"), eval[string](b, "document.querySelector('.timeline').innerText"); shown != want {
		t.Errorf("a cold load shows\n%s\nwant\n%s", shown, want)
	}
	cold.visit(fmt.Sprintf("#/sessions/%s/replay?n=%d", id, last+100))
	cold.sees(".replay-head [role=status]", fmt.Sprintf("no event %d", last+100))
}

// Twenty thousand events are read in pages, and then scrubbed without asking for more
// than a state now and then.
func TestReplayOfTwentyThousandEvents(t *testing.T) {
	const last = 20_000
	_, b, _, id := long(t, last)
	b.visit(fmt.Sprintf("#/sessions/%s/replay?n=%d", id, last/2))
	b.until("the link opens in the middle", fmt.Sprintf("document.querySelector('.where b')?.textContent === 'event %d'", last/2))
	b.sees(".timeline", lineOf(last/2))
	b.until("all of it was read", fmt.Sprintf("document.querySelector('.where').textContent.includes('of %d events') && !document.querySelector('.where').textContent.includes('reading')", last))
	calls := "performance.getEntriesByType('resource').filter((e) => e.name.includes('/v1/sessions/')).length"
	b.run("performance.clearResourceTimings(); performance.setResourceTimingBufferSize(5000)")
	// Two hundred moves of the pointer, one each frame, far apart.
	longest := eval[float64](b, fmt.Sprintf(`(async () => {
  const s = document.querySelector('.scrub');
  let longest = 0;
  for (let i = 0; i < 200; i++) {
    const began = performance.now();
    s.value = String((i * 7919) %% %d);
    s.dispatchEvent(new Event('input', {bubbles: true}));
    await new Promise(requestAnimationFrame);
    await new Promise((done) => setTimeout(done));
    longest = Math.max(longest, performance.now() - began);
  }
  return longest;
})()`, last))
	t.Logf("the longest of 200 moves took %.0f ms", longest)
	if longest > 1_500 {
		t.Errorf("a move of the scrubber took %.0f ms", longest)
	}
	if n := eval[int](b, calls); n > 60 {
		t.Errorf("200 moves of the scrubber made %d calls", n)
	}
	b.scrub("12345")
	b.until("the state is that of where it came to rest", "/State as of event (\\d+)/.exec(document.querySelector('.moment h2').textContent)?.[1] === '12345' && !document.querySelector('.late')")
	b.sees(".timeline", lineOf(12345))
	if n := eval[int](b, nodes); n > mostNodes {
		t.Errorf("%d elements", n)
	}
}

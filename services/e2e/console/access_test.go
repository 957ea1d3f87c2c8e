package console_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// axe loads axe-core into the page as the browser's own tools do: the page's policy
// lets no script in, and stays as it is.
func (b *tab) axe() {
	b.t.Helper()
	source, err := os.ReadFile(filepath.Join("testdata", "axe", "axe.min.js"))
	if err != nil {
		b.t.Fatal(err)
	}
	b.run(string(source))
}

// violations gives what axe-core finds wrong in the page now, one line each.
func (b *tab) violations() string {
	b.t.Helper()
	return eval[string](b, `axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations.map((v) =>
  v.id + ' (' + v.impact + '): ' + v.help + '\n' + v.nodes.slice(0, 3).map((n) => '    ' + n.target.join(' ') + ' ' + n.html.slice(0, 200) + ' ' + (n.any[0]?.message ?? n.all[0]?.message ?? '')).join('\n')).join('\n'))`)
}

// everyPage gives the pages of the console by name: where each is, what to do there,
// and what is there then.
func everyPage(id string) []struct{ name, fragment, click, there string } {
	return []struct{ name, fragment, click, there string }{
		{"sessions", "#/sessions", "", "#sessions tbody tr"},
		{"filtered sessions", "#/sessions?phase=ended", "", ".empty"},
		{"create", "#/sessions", "New session", "dialog[open] option"},
		{"session", "#/sessions/" + id, "", ".question"},
		{"terminate", "#/sessions/" + id, "Terminate", "dialog[open]"},
		{"past", "#/sessions/" + id + "?n=4", "", ".notice.wait"},
		{"replay", "#/sessions/" + id + "/replay?n=6", "", ".fields dd"},
		{"compared", "#/sessions/" + id + "/replay?n=9&with=2", "", ".changes tbody tr"},
		{"approvals", "#/approvals", "", ".question"},
		{"audit", "#/audit?session=" + id, "", "#audit tbody tr"},
		{"audit data", "#/audit?session=" + id, "Data", "#audit pre"},
		{"nowhere", "#/nowhere", "", ".empty"},
	}
}

// Every page and dialog is clean by axe-core: in light and dark, wide and narrow.
func TestAxeIsCleanOnEveryPage(t *testing.T) {
	h, b := start(t)
	done := h.Create("alice", "touch other.txt")
	h.Approve("bob", h.AwaitQuestion(done.ID)) // so that the inbox has something settled
	id, _ := asked(t, h)
	signedOut := open(t, h.URL+"/")
	signedOut.until("the form is there", "document.querySelector('input[name=token]')")
	check := func(b *tab, name string) {
		t.Helper()
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			for _, width := range []int64{1280, 390} {
				b.size(width, 844)
				b.saveScreenshot(fmt.Sprintf("%s-%s-%d", strings.ReplaceAll(name, " ", "-"), scheme, width))
				if found := b.violations(); found != "" {
					t.Errorf("%s, %s, %d pixels wide:\n%s", name, scheme, width, found)
				}
				if over := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					t.Errorf("%s is %d pixels wider than %d", name, over, width)
				}
			}
		}
		b.size(1280, 800)
	}
	b.axe()
	signedOut.axe()
	check(signedOut, "login")
	for _, page := range everyPage(id) {
		b.visit(page.fragment)
		if page.click != "" {
			b.click("button", page.click)
		}
		b.until(page.name+" is drawn", "document.querySelector("+quote(page.there)+")")
		b.until("its buttons are armed", "![...document.querySelectorAll('.question button.danger')].some((e) => e.disabled)")
		check(b, page.name)
		if strings.HasPrefix(page.there, "dialog") {
			b.keys(kb.Escape)
			b.until("the dialog is closed", "!document.querySelector('dialog[open]')")
		}
	}
	// That axe-core looks at all: a page that is wrong is found so.
	b.run("document.querySelector('main').append(Object.assign(document.createElement('button')))")
	if found := b.violations(); !strings.Contains(found, "button-name") {
		t.Errorf("a button without a name isn't found: %q", found)
	}
}

// tree is the page's accessibility tree as "role name" lines, in order; what is
// ignored or only text is left out.
func (b *tab) tree() []string {
	b.t.Helper()
	var lines []string
	b.do("read the accessibility tree", func(ctx context.Context, s *chromedp.Target) (chromedp.Void, error) {
		r, err := cdp.Call(ctx, s, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		if err != nil {
			return chromedp.Void{}, err
		}
		for _, n := range r.Nodes {
			role := text(n.Role)
			if n.Ignored || role == "" || strings.HasSuffix(role, "Text") || strings.HasSuffix(role, "TextBox") || role == "generic" {
				continue
			}
			lines = append(lines, strings.TrimSpace(role+" "+text(n.Name)))
		}
		return chromedp.Void{}, nil
	})
	return lines
}

func text(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	var s string
	if json.Unmarshal([]byte(v.Value), &s) != nil {
		return ""
	}
	return s
}

// Landmarks, buttons, dialogs and what is said aloud have the roles and names that
// somebody needs who doesn't see the page.
func TestTheAccessibilityTree(t *testing.T) {
	h, b := start(t)
	id, _ := asked(t, h)
	everywhere := []string{"banner", "navigation Pages", "main", "link Skip to the page", "link Sessions", "link Audit", "status"}
	for _, page := range everyPage(id) {
		want := slices.Clone(everywhere)
		switch page.name {
		case "sessions":
			want = append(want, "heading Sessions", "button New session", "table Sessions", "columnheader Phase", "group Only these phases")
		case "create":
			want = []string{"dialog New session", "combobox Runtime", "textbox First message", "textbox Labels key=value, separated by commas", "button Create session", "button Cancel"}
		case "session":
			want = append(want, "heading "+id, "group About the session", "feed Timeline", "search", "searchbox Find in the timeline", "form Send a message", "textbox Message", "button Send",
				"button Suspend", "button Terminate…", "link Replay", "article Question: shell", "textbox Reason", "button Approve", "button Deny")
		case "terminate":
			want = []string{"dialog Terminate the session", "textbox Reason", "button Keep it", "button Terminate"}
		case "replay":
			want = append(want, "group Replay controls", "slider Moment", "button Play", "button One step back", "button One step forward", "button To the end",
				"button To the beginning", "combobox Speed", "button Compare from here", "button Copy link", "feed Replay", "heading State as of event 6")
		case "compared":
			want = append(want, "heading From event 2 to event 9", "table What changed", "columnheader Field", "rowheader phase", "button Stop comparing")
		case "approvals":
			want = append(want, "heading Approvals", "article Question: shell", "textbox Reason", "button Approve", "button Deny")
		case "audit":
			want = append(want, "heading Audit", "search Filter events", "textbox Session", "button Filter", "table Events", "columnheader Outcome", "button Data")
		}
		b.visit(page.fragment)
		if page.click != "" {
			b.click("button", page.click)
		}
		b.until(page.name+" is drawn", "document.querySelector("+quote(page.there)+")")
		b.until("its buttons are armed", "![...document.querySelectorAll('.question button.danger')].some((e) => e.disabled)")
		tree := b.tree()
		missing := slices.DeleteFunc(want, func(w string) bool { return slices.Contains(tree, w) })
		if len(missing) > 0 {
			t.Errorf("%s has no %q but:\n  %s", page.name, missing, strings.Join(tree, "\n  "))
		}
		for _, line := range tree {
			if slices.Contains([]string{"button", "link", "textbox", "combobox", "slider", "searchbox", "checkbox", "dialog", "table", "heading", "feed", "img"}, line) {
				t.Errorf("%s: a %s has no name", page.name, line)
			}
		}
		if strings.HasPrefix(page.there, "dialog") {
			b.keys(kb.Escape)
			b.until("the dialog is closed", "!document.querySelector('dialog[open]')")
		}
	}
}

// reach presses Tab until the focus is on the element that the expression finds, and
// fails the test where it never comes there or can't be seen there.
func (b *tab) reach(what, expression string) {
	b.t.Helper()
	b.until(what+" is there", expression)
	for range 120 {
		if eval[bool](b, "document.activeElement === ("+expression+")") {
			if outline := eval[string](b, "getComputedStyle(document.activeElement).outlineStyle"); outline == "none" {
				b.t.Errorf("the focus on %s can't be seen", what)
			}
			return
		}
		b.keys(kb.Tab)
	}
	b.saveScreenshot("unreached")
	b.t.Fatalf("120 presses of Tab don't come to %s; the focus is on %s", what, eval[string](b, "document.activeElement.outerHTML.slice(0, 200)"))
}

// one is the first element of a selector with a text, as an expression.
func one(selector, text string) string { return having(selector, text) + "[0]" }

// Everything works by the keyboard alone: nothing here touches the page but by keys.
func TestByKeyboardAlone(t *testing.T) {
	chromium(t)
	h := harness.Start(t, harness.SharedPostgres(t))
	b := open(t, h.URL+"/")
	b.until("the form has the focus", "document.activeElement?.name === 'token'")
	b.keys(h.Token("admin"))
	b.enter()
	b.until("the console is live", "document.querySelector('.conn.live')")

	b.reach("New session", one("button", "New session"))
	b.enter()
	b.until("the dialog has the focus", "document.querySelector('dialog')?.contains(document.activeElement)")
	b.keys(kb.Escape)
	b.until("the dialog is closed, and the focus back", "!document.querySelector('dialog') && document.activeElement === "+one("button", "New session"))
	b.enter()
	b.until("the runtimes are there", "document.querySelector('dialog option')")
	b.reach("the message", "document.querySelector('dialog textarea')")
	b.keys("touch by-keyboard.txt")
	b.reach("Create session", one("dialog button", "Create session"))
	b.enter()
	id := b.session()

	// Answer, with a reason.
	b.sees(".question", "touch by-keyboard.txt")
	b.reach("the reason", "document.querySelector('.question input')")
	b.keys("typed, not clicked")
	b.reach("Approve", one(".question button", "Approve"))
	b.enter()
	b.sees("[data-kind=call]", "completed")
	if a := question(t, h, id); a.Decision.Decision != api.AnswerApprove || a.Decision.Reason != "typed, not clicked" {
		t.Errorf("the answer in the log: %+v", a)
	}
	if lost := eval[bool](b, "document.activeElement === document.body"); lost {
		t.Error("the focus is lost with the question that was answered")
	}
	b.reach("the message to the agent", "document.querySelector('#message')")
	b.keys("echo by keys")
	b.enter()
	b.sees("[data-kind=agent]", "by keys\nexit 0")
	b.keys("touch denied.txt")
	b.enter()
	b.reach("Deny", one(".question button", "Deny"))
	b.keys(" ")
	b.sees("[data-kind=call]", "denied")

	// A dialog takes the focus and gives it back.
	b.reach("Terminate", one(".session-head button", "Terminate"))
	b.keys(" ")
	b.until("the dialog has the focus", "document.querySelector('dialog')?.contains(document.activeElement)")
	for range 8 {
		b.keys(kb.Tab)
	}
	b.until("Tab stays in the dialog", "document.querySelector('dialog').contains(document.activeElement) || document.activeElement === document.body")
	b.keys(kb.Escape)
	b.until("the focus is back", "!document.querySelector('dialog') && document.activeElement === "+one(".session-head button", "Terminate"))

	// The timeline scrolls, the replay is scrubbed, the pages are walked.
	b.reach("the timeline", "document.querySelector('.timeline')")
	b.toBeginning()
	b.reach("Replay", one(".session-head a", "Replay"))
	b.enter()
	b.until("the focus is on the page", "document.activeElement?.id === 'main' && document.querySelector('.scrub') && "+moment+" === 'event 1'")
	b.reach("the scrubber", "document.querySelector('.scrub')")
	b.keys(kb.ArrowRight + kb.ArrowRight)
	b.until("it stepped twice", place+" === 3")
	b.reach("Compare from here", one("button", "Compare from here"))
	b.enter()
	b.sees(".moment h2", "From event")
	b.reach("Approvals", one(".topbar a", "Approvals"))
	b.enter()
	b.sees("main", "Nothing waits for an answer")
	b.reach("the account", "document.querySelector('.menu summary')")
	b.enter()
	b.until("the menu is open", "document.querySelector('.menu').open")
	b.keys(kb.Escape)
	b.until("Escape closes it and leaves the focus", "!document.querySelector('.menu').open && document.activeElement === document.querySelector('.menu summary')")
	b.enter()
	b.reach("Sign out", one(".menu button", "Sign out"))
	b.enter()
	b.until("signed out", "document.querySelector('input[name=token]')")
}

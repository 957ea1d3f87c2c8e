package console_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

var reload = chromedp.Reload()

// A session's life by its buttons; each is there only where the move is legal.
func TestSuspendResumeTerminate(t *testing.T) {
	h, b := start(t)
	s := h.Create("alice", "")
	b.visit("#/sessions/" + s.ID)
	b.click(".session-head button", "Suspend")
	b.sees(".session-head .phase", "suspended")
	if n := eval[int](b, having(".session-head button", "Suspend")+".length"); n != 0 {
		t.Error("a suspended session can be suspended")
	}
	b.click(".session-head button", "Resume")
	b.sees(".session-head .phase", "ready")
	b.click(".session-head button", "Terminate")
	b.fill("dialog input[name=reason]", "done with it")
	b.click("dialog button", "Terminate")
	b.sees(".session-head .phase", "ended · terminated")
	b.sees("[data-kind=line]", "Terminated: done with it")
	b.until("nothing can be sent any more", "!document.querySelector('.composer')")

	b.visit("#/sessions?phase=ended")
	b.sees("#sessions .phase", "ended · terminated")
	b.visit("#/sessions?phase=ready")
	b.sees("main", "No session is in these phases")
}

// Signing in by a token, being refused, and signing out. An approver sees no more
// than its role allows.
func TestSigningInByToken(t *testing.T) {
	chromium(t)
	h, admin := start(t)
	h.Create("alice", "touch it.txt")
	b := open(t, h.URL+"/#/approvals")
	b.fill("input[name=token]", "not-a-token-of-anybody")
	b.enter()
	b.sees("[role=alert]", "isn’t valid")
	b.run("document.querySelector('input[name=token]').select()")
	b.keys(h.Token("bob"))
	b.enter()
	b.sees(".question", "touch it.txt") // the page that was asked for, after signing in
	if n := eval[int](b, having(".topbar a", "Audit")+".length"); n != 0 {
		t.Error("an approver is offered the audit log")
	}
	b.visit("#/sessions")
	b.until("the sessions are there", "document.querySelector('#sessions')")
	if n := eval[int](b, having("button", "New session")+".length"); n != 0 {
		t.Error("an approver is offered to create a session")
	}
	b.run("document.querySelector('.menu').open = true")
	b.click(".menu button", "Sign out")
	b.until("the form is back", "document.querySelector('input[name=token]')")
	admin.until("nobody else is signed out", "document.querySelector('.conn.live')")

	again := open(t, h.ConsoleURL) // the code was used by the first tab
	again.sees("[role=alert]", "used before")
}

// unlabelled lists the controls that a screen reader can't name.
const unlabelled = `[...document.querySelectorAll('main button, main a, main input, main select, main textarea, header button, header a, header summary')]
  .filter((e) => !e.getAttribute('aria-label') && !(e.labels && [...e.labels].some((l) => l.textContent.trim())) && !e.textContent.trim())
  .map((e) => e.outerHTML).join('\n')`

// Every page fits a narrow phone, in light and in dark, and can be used by keyboard.
func TestEveryPageFitsAPhone(t *testing.T) {
	h, b := start(t)
	s := h.Create("alice", "ls -la\ntouch "+strings.Repeat("unbroken", 60))
	pages := map[string]string{
		"#/sessions": "#sessions", "#/approvals": ".question", "#/audit": "#audit tbody tr",
		"#/sessions/" + s.ID: "[data-kind=call]", "#/sessions/" + s.ID + "/replay": ".fields dd", "#/nowhere": ".empty",
	}
	b.visit("#/approvals")
	b.sees(".question", "unbroken")
	b.visit("#/sessions/" + s.ID + "?n=1") // so that each page is one that is arrived at
	for fragment, there := range pages {
		name := strings.Trim(strings.NewReplacer("#", "", "/", "-", s.ID, "session").Replace(fragment), "-")
		b.visit(fragment)
		b.until(fragment+" is drawn", "document.querySelector("+quote(there)+")")
		backgrounds := map[string]string{}
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			for _, width := range []int64{360, 1280} {
				b.size(width, 800)
				if over := eval[int](b, "document.documentElement.scrollWidth - innerWidth"); over > 0 {
					t.Errorf("%s is %d pixels wider than %d", fragment, over, width)
				}
				b.saveScreenshot(name + "-" + scheme + map[int64]string{360: "-phone", 1280: ""}[width])
			}
			backgrounds[scheme] = eval[string](b, "getComputedStyle(document.body).backgroundColor")
		}
		if backgrounds["light"] == backgrounds["dark"] {
			t.Errorf("%s looks the same in light and dark: %s", fragment, backgrounds["light"])
		}
		if bare := eval[string](b, unlabelled); bare != "" {
			t.Errorf("%s has controls without a name:\n%s", fragment, bare)
		}
		if at := eval[string](b, "document.activeElement.id"); at != "main" {
			t.Errorf("%s: on arrival the focus is at %q", fragment, at)
		}
		b.do("reload", reload)
		b.until(fragment+" is drawn again", "document.querySelector("+quote(there)+")")
		b.keys(kb.Tab)
		if skip := eval[string](b, "document.activeElement.textContent"); skip != "Skip to the page" {
			t.Errorf("%s: the first Tab goes to %q", fragment, skip)
		}
		b.keys(kb.Tab)
		if width := eval[string](b, "getComputedStyle(document.activeElement).outlineStyle"); width != "solid" {
			t.Errorf("%s: the focus can't be seen", fragment)
		}
	}
}

package console_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

// markup is what an agent writes in the hope that somebody's browser obeys.
const markup = `<script>window.pwned=1</script><img src=x onerror="window.pwned=2"><svg onload="window.pwned=3"></svg>` +
	`<a href="javascript:window.pwned=4">click</a><iframe srcdoc="<script>parent.pwned=5</script>"></iframe>` +
	`<form action="http://127.0.0.1:9/"><button>Approve</button></form><base href="http://127.0.0.1:9/"><meta http-equiv=refresh content="0;url=data:text/html,x">` +
	`<style>*{display:none}</style><link rel=stylesheet href="http://127.0.0.1:9/x.css"> data:text/html,<script>alert(1)</script> ]]>--></textarea></title></pre>`

// dressed is text that isn't what it looks like: an override of direction, zero-width
// characters, letters of another alphabet, spaces that aren't, escapes of terminals,
// marks that pile up.
const dressed = "rm -rf \u202egpj.exe \u200b\u2060 p\u0430ypal \uff52\uff4d a\u00a0b \x1b[31mred\x1b[0m \x07 z\u0300\u0301\u0302\u0303\u0304\u0305\u0306 \ufeff\u2066x\u2069 \u00ad\U000e0041"

// hostile is a session whose agent has a run open, does what it is told, and may be
// spoken for.
func hostile(t *testing.T, h *harness.Holdfast) (id, run string, agent *apiclient.ClientWithResponses) {
	t.Helper()
	h.Policy(api.PolicySpec{Name: "hostile", Default: "ask", Rules: []api.PolicyRule{{Name: "anything in a shell", When: `tool == "shell"`, Then: "allow"}}})
	h.Runtime("hostile", func(s *api.RuntimeSpec) { s.Policy = "hostile" })
	s := h.CreateOf("alice", api.CreateSession{Runtime: "hostile", Message: "sleep 600", Labels: map[string]string{"team": "red"}})
	now := h.Await(s.ID, "its run is open", func(s *api.Session) bool { return s.Run != "" })
	h.AwaitFact(s.ID, "its agent works", func(f []harness.Fact) bool {
		return slices.ContainsFunc(f, func(f harness.Fact) bool { return f.Type == "call.started" })
	})
	return s.ID, now.Run, h.Agent(s.ID)
}

// propose asks, as the agent, and gives the question; empty where the server already
// refuses what is asked.
func propose(t *testing.T, h *harness.Holdfast, agent *apiclient.ClientWithResponses, run, call, tool string, args json.RawMessage) string {
	t.Helper()
	r, err := agent.ProposeCallWithResponse(h.Context(), api.ProposeCall{
		AgentCallID: call, RunID: run, Tool: tool, Args: args, Modes: []api.CallMode{api.CallModePark},
	})
	if refused, ok := errors.AsType[*api.Error](err); ok && refused.Problem.Status < 500 {
		return ""
	}
	if err != nil || r.StatusCode() != http.StatusAccepted {
		t.Fatalf("propose %s: %v %v", call, r, err)
	}
	return r.JSON202.Approval
}

// object is JSON of one member.
func object(t *testing.T, name string, value any) json.RawMessage {
	t.Helper()
	raw, err := json.Marshal(map[string]any{name: value})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// untouched fails the test where text became more than text: a script that ran, an
// element that the console doesn't make, a request to elsewhere. What breaks the
// Content-Security-Policy, and dialogs, fail it by themselves.
func (b *tab) untouched(where string) {
	b.t.Helper()
	if pwned := eval[string](b, "String(window.pwned)"); pwned != "undefined" {
		b.t.Errorf("%s: a script ran: %s", where, pwned)
	}
	const made = `[...document.querySelectorAll('#app img, #app iframe, #app script, #app style, #app link, #app base, #app meta, #app object, #app embed, #app form[action], #app [onerror], #app [onload], #app [srcdoc], #app svg:not([aria-hidden]), #app a')]
    .filter((e) => e.tagName !== 'A' || !e.getAttribute('href').startsWith('#')).map((e) => e.outerHTML).join('\n')`
	if elements := eval[string](b, made); elements != "" {
		b.t.Errorf("%s: text became elements:\n%s", where, elements)
	}
	const elsewhere = "performance.getEntriesByType('resource').map((e) => e.name).filter((n) => !n.startsWith(location.origin + '/')).join('\\n')"
	if asked := eval[string](b, elsewhere); asked != "" {
		b.t.Errorf("%s: requests to elsewhere:\n%s", where, asked)
	}
}

// Whatever an agent says, asks, reports or is called, is text in every page.
func TestWhatAgentsWriteIsText(t *testing.T) {
	h, b := start(t)
	id, run, agent := hostile(t, h)
	a := newAuthor(t, h)
	a.say(id, "r-said", 1, message("m-markup", markup)...)
	a.say(id, "r-said", 4, message("m-dressed", dressed)...)
	a.say(id, "r-said", 7,
		map[string]any{"type": "REASONING_MESSAGE_START", "messageId": "m-thought", "role": "reasoning"},
		map[string]any{"type": "REASONING_MESSAGE_CONTENT", "messageId": "m-thought", "delta": markup},
		map[string]any{"type": "STEP_STARTED", "stepName": markup},
		map[string]any{"type": "CUSTOM", "name": markup, "value": map[string]any{markup: dressed}},
		map[string]any{"type": markup, "toString": 1, "__proto__": map[string]any{"polluted": true}},
		map[string]any{"type": "TOOL_CALL_START", "toolCallId": "tc", "toolCallName": markup},
		map[string]any{"type": "TOOL_CALL_ARGS", "toolCallId": "tc", "delta": markup},
		map[string]any{"type": "TOOL_CALL_RESULT", "toolCallId": "tc", "messageId": "m-r", "content": markup},
	)
	question := propose(t, h, agent, run, "c-markup", "deploy", object(t, markup, dressed+markup))
	propose(t, h, agent, run, "c-name", markup, object(t, "x", 1))

	b.visit("#/sessions/" + id)
	b.sees("[data-kind=agent] .said", "<script>window.pwned=1</script>")
	for _, shown := range []string{"U+202E", "U+200B", "а U+0430", "ｒｍ U+FF52 U+FF4D", "U+00A0", "U+001B", "U+0007", "7 stacked marks", "U+FEFF", "U+2066", "U+E0041"} {
		b.sees("[data-kind=agent] .hidden-char", shown)
	}
	b.untouched("the session")
	for _, place := range []string{".item-line", "[data-kind=call] .tool", "[data-kind=call]"} {
		b.run("const t = document.querySelector('.timeline'); t.scrollTop = 0")
		b.sees(place, "window.pwned=1")
	}
	b.run("for (const d of document.querySelectorAll('.timeline details')) d.open = true")
	b.sees(".timeline details pre", "window.pwned=1")
	b.untouched("the session, unfolded")

	b.visit("#/approvals")
	b.sees(`.question[data-approval="`+question+`"] .arg-head`, "holds characters that can’t be seen and letters that look like others")
	b.sees(`.question[data-approval="`+question+`"] pre`, "<base href=")
	b.sees(`.question[data-approval="`+question+`"]`, "checked here") // what is marked is still what is hashed
	b.untouched("the inbox")
	b.saveScreenshot("hostile")
	b.click(`.question[data-approval="`+question+`"] button`, "Deny")
	b.sees(".question", "denied by admin")

	b.visit("#/audit?session=" + id)
	b.sees("#audit td", "call.proposed")
	b.run("for (const e of document.querySelectorAll('#audit button')) e.click()")
	b.sees("#audit pre", "window.pwned=1")
	b.untouched("the audit log")

	b.visit("#/sessions/" + id + "/replay?n=3")
	b.until("the replay is there", "document.querySelector('.fields')")
	b.scrub("document.querySelector('.scrub').max")
	b.sees("[data-kind=agent] .said", "window.pwned=1")
	b.untouched("the replay")
	if polluted := eval[string](b, "String(({}).polluted)"); polluted != "undefined" {
		t.Error("an event changed the prototype of all objects")
	}
}

// Enormous and deep things are shown as what they are, and the page answers meanwhile.
func TestEnormousThingsLeaveThePageResponsive(t *testing.T) {
	h, b := start(t)
	id, run, agent := hostile(t, h)
	a := newAuthor(t, h)
	const line = 250_000
	said := []map[string]any{{"type": "TEXT_MESSAGE_START", "messageId": "m-line", "role": "assistant"}}
	a.say(id, "r-said", 1, said...)
	for i := range 4 { // a line of a megabyte
		a.say(id, "r-said", uint64(2+i), map[string]any{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m-line", "delta": strings.Repeat("a", line)})
	}
	a.say(id, "r-said", 6, message("m-hidden", strings.Repeat("\u200b\u202e", 40_000))...)
	a.say(id, "r-said", 9, message("m-stacks", strings.Repeat("z"+strings.Repeat("\u0300\u0301", 10), 5_000))...)
	deep := json.RawMessage(strings.Repeat(`{"a":[`, 4_000) + strings.Repeat(`]}`, 4_000))
	a.say(id, "r-said", 12, map[string]any{"type": "CUSTOM", "name": "deep", "value": deep})
	asked := map[string]string{
		"deep":  propose(t, h, agent, run, "c-deep", "deploy", json.RawMessage(strings.Repeat(`{"a":`, 400)+`1`+strings.Repeat(`}`, 400))),
		"wide":  propose(t, h, agent, run, "c-wide", "deploy", wide(t, 5_000)),
		"large": propose(t, h, agent, run, "c-large", "deploy", object(t, "text", strings.Repeat("x", 200_000))),
	}
	b.visit("#/sessions/" + id)
	b.sees(".question", "deploy")
	b.run("document.querySelector('.timeline').focus()")
	b.toBeginning() // only what is near the view is drawn
	b.sees("[data-kind=agent]", "before this are not")
	b.run(`window.longest = 0; new PerformanceObserver((l) => { for (const e of l.getEntries()) window.longest = Math.max(window.longest, e.duration); }).observe({type: 'longtask'})`)
	for _, part := range []float64{0, 0.25, 0.5, 0.75, 1} {
		b.run(fmt.Sprintf("const t = document.querySelector('.timeline'); t.scrollTop = t.scrollHeight * %v", part))
		b.until("the page answers", "true")
		if n := eval[int](b, nodes); n > 2*mostNodes {
			t.Errorf("%d elements at %v of the timeline", n, part)
		}
	}
	b.untouched("the session")
	b.visit("#/approvals")
	for name, question := range asked {
		if question == "" {
			t.Logf("%s arguments are refused by the server already", name)
			continue
		}
		card := `.question[data-approval="` + question + `"]`
		b.sees(card, "checked here") // also the hash is made of all of it
		if eval[int](b, "document.querySelectorAll("+quote(card+" .rest")+").length") > 0 {
			if armed := eval[int](b, having(card+" button", "Approve")+".filter((e) => !e.disabled).length"); armed != 0 {
				t.Error("what was not drawn can be approved")
			}
			b.click(card+" .rest button", "Show all")
		}
		if n := eval[int](b, "document.querySelector("+quote(card+" pre")+").textContent.length"); name == "large" && n != 200_000 {
			t.Errorf("all of it is %d characters", n)
		}
		b.click(card+" button", "Approve")
		b.sees(card, "approved by admin")
	}
	if longest := eval[float64](b, "window.longest"); longest > 8_000 {
		t.Errorf("the page didn't answer for %.0f ms", longest)
	} else {
		t.Logf("the longest that the page didn't answer: %.0f ms", longest)
	}
}

// wide is an object with so many members.
func wide(t *testing.T, members int) json.RawMessage {
	t.Helper()
	all := map[string]int{}
	for i := range members {
		all[fmt.Sprintf("member-%d", i)] = i
	}
	raw, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

package console_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// start runs the program and opens the console, signed in by the code as the admin.
func start(t *testing.T) (*harness.Holdfast, *tab) {
	t.Helper()
	chromium(t) // before anything is started in vain
	h := harness.Start(t, harness.SharedPostgres(t))
	b := open(t, h.ConsoleURL)
	b.until("the console is live", "document.querySelector('.conn.live')")
	return h, b
}

// session gives the id of the session whose page is shown.
func (b *tab) session() string {
	b.t.Helper()
	b.until("a session's page is shown", "/^#.sessions.s-[a-z0-9]{20}/.test(location.hash)")
	return strings.Split(eval[string](b, "location.hash"), "/")[2]
}

// question gives how a session's first question stands, from the API.
func question(t *testing.T, h *harness.Holdfast, session string) api.Approval {
	t.Helper()
	var id string
	h.Follow("admin", session, func(f api.Frame) bool {
		a, ok := harness.ApprovalOf(f)
		id = a.ID
		return ok
	})
	r, err := h.Client("admin").GetApprovalWithResponse(context.Background(), id, &api.GetApprovalParams{})
	if err != nil || r.JSON200 == nil {
		t.Fatalf("get approval %s: %v", id, err)
	}
	return *r.JSON200
}

// From the link that dev prints to the audit log, by the console alone.
func TestFromLinkToAudit(t *testing.T) {
	h, b := start(t)
	if at := eval[string](b, "location.href"); strings.Contains(at, "code") {
		t.Errorf("the code stays in the address bar: %s", at)
	}
	b.sees("main", "No sessions yet")

	b.click("button", "New session")
	b.until("the runtimes are there", "document.querySelector('dialog option')")
	b.fill("dialog textarea", "ls\ntouch made.txt")
	b.fill("dialog input[name=labels]", "team=search")
	b.saveScreenshot("create")
	b.click("dialog button", "Create session")
	id := b.session()

	b.sees(".item-user", "touch made.txt")
	b.sees("[data-kind=call]", "exit 0")
	b.sees("[data-kind=agent]", "$ ls")
	b.sees(".session-head", "ready")
	b.sees(".question .arg pre", "touch made.txt")
	b.sees(".session-head", "1 question waiting")
	b.saveScreenshot("session")

	b.click(".topbar a", "Approvals")
	b.sees(".question", "touch made.txt")
	b.sees(".question", "checked here")
	shown := eval[string](b, "document.querySelector('.question').innerText")
	approval := question(t, h, id)
	for _, want := range []string{"shell", approval.ArgsHash, approval.Rule, approval.Isolation, "admin", "asked", "answer within", id} {
		if !strings.Contains(shown, want) {
			t.Errorf("the question doesn't say %q: %s", want, shown)
		}
	}
	b.fill(".question input", "looks right")
	b.saveScreenshot("question")
	b.click(".question button", "Approve")
	b.sees(".question", "approved by admin")
	if a := question(t, h, id); a.Decision.Reason != "looks right" {
		t.Errorf("the answer in the log: %+v", a.Decision)
	}

	b.visit("#/sessions/" + id)
	b.sees("[data-kind=agent]", "$ touch made.txt")
	b.sees("[data-kind=line]", "Run finished")

	b.visit("#/audit?session=" + id + "&type=call.approved")
	b.sees("#audit td", "user:admin")
	if n := eval[int](b, "document.querySelectorAll('#audit tbody tr').length"); n != 1 {
		t.Errorf("%d rows under the filter, want 1", n)
	}
	b.saveScreenshot("audit")
	b.click("#audit a", "")
	b.until("the event is found in the session", "document.querySelector('.item.found [data-call]')")
	b.sees(".session-head", "As it was at event")
}

// What an agent writes is shown as text, and what would hide is shown by its number.
func TestPromptsTellTheTruth(t *testing.T) {
	h, b := start(t)
	hidden := "rm -rf /tmp/x\u202egpj.exe # \u200b<img src=x onerror=alert(1)>"
	s := h.Create("admin", hidden+"\n"+"printf '"+strings.Repeat("long ", 2000)+"'")
	b.visit("#/approvals")
	b.sees(".question .hidden-char", "U+202E")
	b.sees(".question .hidden-char", "U+200B")
	b.sees(".question pre", "<img src=x onerror=alert(1)>")
	b.sees(".question", "checked here")
	if n := eval[int](b, "document.querySelectorAll('main img').length"); n != 0 {
		t.Errorf("text became %d images", n)
	}
	b.saveScreenshot("hidden")
	b.click(".question button", "Deny")
	b.sees(".question", "denied by admin")

	b.sees(".question pre", "printf 'long")
	b.sees(".question .arg-head", "kB")
	if whole := eval[string](b, having(".question pre", "printf 'long")+"[0].textContent"); strings.Count(whole, "long ") != 2000 {
		t.Errorf("a long argument is shown in part: %d of 2000", strings.Count(whole, "long "))
	}
	b.visit("#/sessions/" + s.ID)
	b.sees("[data-kind=agent]", "denied")
	b.sees("[data-kind=agent] .said", "<img src=x onerror=alert(1)>")
	if n := eval[int](b, "document.querySelectorAll('main img').length"); n != 0 {
		t.Errorf("output became %d images", n)
	}
}

// A question that somebody else settles goes by itself; where the page can't know
// yet, its answer is refused and it says by whom it was beaten.
func TestSomebodyElseAnswersFirst(t *testing.T) {
	h, b := start(t)
	deny := func(session, comment string) {
		t.Helper()
		a := question(t, h, session)
		r, err := h.Client("bob").DecideApprovalWithResponse(context.Background(), a.ID, &api.DecideApprovalParams{},
			api.DecideApproval{Decision: api.AnswerDeny, ArgsHash: a.ArgsHash, Comment: comment})
		if err != nil || r.StatusCode() != http.StatusCreated {
			t.Fatalf("deny: %v %v", r, err)
		}
	}
	b.visit("#/approvals")
	seen := h.Create("alice", "touch seen.txt")
	b.sees(".question", "touch seen.txt")
	deny(seen.ID, "not now")
	b.sees(".question", "denied by bob")
	b.sees(".question", "not now")

	unseen := h.Create("alice", "touch unseen.txt")
	b.sees(".question", "touch unseen.txt")
	b.run("testCutSockets()")
	b.sees(".banner", "Disconnected since")
	b.sees(".banner", "Showing state as of")
	deny(unseen.ID, "")
	b.saveScreenshot("stale")
	b.click(`.question[data-approval^="`+unseen.ID+`"] button`, "Approve")
	b.sees(".question [role=alert]", "bob already denied at")
	b.sees(`.question[data-approval^="`+unseen.ID+`"]`, "denied by bob")
}

// However often the connection is cut, the timeline holds each event once.
func TestReconnectWithoutGapOrRepeat(t *testing.T) {
	h, b := start(t)
	b.size(1280, 5000) // so high that all of it is in view, and so in the document
	s := h.Create("alice", "ls")
	b.visit("#/sessions/" + s.ID)
	b.sees("[data-kind=line]", "Run finished")
	for round := range 3 {
		b.run("testCutSockets()")
		b.sees(".banner", "Disconnected since")
		b.until("what is stale looks it", "getComputedStyle(document.querySelector('main .live-state')).opacity < 1")
		r, err := h.Client("alice").SendMessageWithResponse(context.Background(), s.ID, &api.SendMessageParams{},
			api.SendMessage{Content: fmt.Sprintf("echo round %d", round)})
		if err != nil || r.StatusCode() != http.StatusAccepted {
			t.Fatalf("send: %v", err)
		}
		h.Follow("alice", s.ID, finishes(round+2))
		b.run("testCut.sockets = false")
		b.run("document.querySelector('.banner button')?.click()") // unless it was faster by itself
		b.sees("[data-kind=agent]", fmt.Sprintf("round %d\nexit 0", round))
		b.until("the banner is gone", "!document.querySelector('.banner')")
	}
	b.until("all runs are finished", having("[data-kind=line]", "Run finished")+".length >= 4")
	for what, selector := range map[string]string{"messages": ".item-user", "calls": "[data-kind=call]", "outputs": "[data-kind=agent]"} {
		if n := eval[int](b, "document.querySelectorAll("+quote(selector)+").length"); n != 4 {
			t.Errorf("%d %s, want 4", n, what)
		}
	}
	for round := range 3 {
		text := fmt.Sprintf("$ echo round %d\nround %d\nexit 0\n", round, round)
		if n := eval[int](b, "document.querySelector('.timeline').textContent.split("+quote(text)+").length - 1"); n != 1 {
			t.Errorf("the output of round %d is there %d times", round, n)
		}
	}
}

// A reader who looks back is left in peace, and told what is new.
func TestLookingBackIsNotDisturbed(t *testing.T) {
	h, b := start(t)
	s := h.Create("alice", strings.TrimSpace(strings.Repeat("ls\n", 12)))
	b.visit("#/sessions/" + s.ID)
	b.sees("[data-kind=line]", "Run finished")
	const atEnd = "(() => { const t = document.querySelector('.timeline'); return t.scrollHeight - t.scrollTop - t.clientHeight < 3 })()"
	b.until("the timeline is at its end", atEnd)
	b.size(600, 500)
	b.until("it is there after the window changed", atEnd)

	b.run("document.querySelector('.timeline').scrollTop = 40")
	b.sees(".new-below", "To the end")
	r, err := h.Client("alice").SendMessageWithResponse(context.Background(), s.ID, &api.SendMessageParams{}, api.SendMessage{Content: "echo news"})
	if err != nil || r.StatusCode() != http.StatusAccepted {
		t.Fatalf("send: %v", err)
	}
	h.Follow("alice", s.ID, finishes(2))
	b.sees(".new-below", "below")
	if top := eval[int](b, "document.querySelector('.timeline').scrollTop"); top != 40 {
		t.Errorf("the reader was moved from 40 to %d", top)
	}
	b.click(".new-below", "")
	b.until("the timeline is at its end again", atEnd+" && !document.querySelector('.new-below')")
	b.sees("[data-kind=agent]", "news\nexit 0")
}

// The list of sessions moves by itself, and what waits is said aloud.
func TestSessionsAndQuestionsComeByThemselves(t *testing.T) {
	h, b := start(t)
	b.visit("#/sessions")
	b.sees("main", "No sessions yet")
	s := h.Create("alice", "touch it.txt")
	row := "#sessions tr:has(a[href*=" + quote(s.ID) + "])"
	b.sees(row, "ready")
	b.sees(row, "1 question")
	b.sees("[aria-live=polite]", "New question: may shell run in "+s.ID)
	b.until("the title says so too", "document.title.startsWith('(1)')")
	r, err := h.Client("alice").TerminateSessionWithResponse(context.Background(), s.ID, &api.TerminateSessionParams{}, api.TerminateSession{})
	if err != nil || r.StatusCode() != http.StatusAccepted {
		t.Fatalf("terminate: %v", err)
	}
	b.sees(row, "ended · terminated")
	b.until("nothing waits any more", "!document.querySelector('.topbar .badge') && !document.title.startsWith('(')")
}

// finishes is done with the n-th run that is finished.
func finishes(n int) func(api.Frame) bool {
	return func(f api.Frame) bool {
		if harness.EventOf(f).Type == "run.finished" {
			n--
		}
		return n == 0
	}
}

// What was typed arrives, once, whatever happens to the network and the page.
func TestATypedMessageIsNotLost(t *testing.T) {
	h, b := start(t)
	s := h.Create("alice", "ls")
	b.visit("#/sessions/" + s.ID)
	b.sees("[data-kind=line]", "Run finished")
	b.run("testCut.calls = true")
	b.fill("#message", "echo kept")
	b.enter()
	b.sees(".outgoing", "not sent yet")
	b.fill("#message", "a draft")
	b.do("reload", reload)
	b.sees("[data-kind=agent]", "kept\nexit 0")
	b.until("nothing is on its way any more", "!document.querySelector('.outgoing')")
	if draft := eval[string](b, "document.querySelector('#message').value"); draft != "a draft" {
		t.Errorf("the draft after a reload: %q", draft)
	}
	now, err := h.Client("alice").GetSessionWithResponse(context.Background(), s.ID, &api.GetSessionParams{})
	if err != nil || now.JSON200 == nil {
		t.Fatalf("get the session: %v", err)
	}
	r, err := h.Client("alice").ListMessagesWithResponse(context.Background(), s.ID, &api.ListMessagesParams{MinSeq: &now.JSON200.Seq})
	if err != nil || r.JSON200 == nil {
		t.Fatalf("list messages: %v", err)
	}
	sent := 0
	for _, m := range r.JSON200.Items {
		if m.Role == "user" && m.Content == "echo kept" {
			sent++
		}
	}
	if sent != 1 {
		t.Errorf("the message was sent %d times", sent)
	}
}

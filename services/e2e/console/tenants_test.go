package console_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/e2e/harness"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

// secret is in everything of the first tenant that people or agents write.
const secret = "tenant-a-confidential"

// mallory is everything in her own tenant, and nothing in the first.
const mallory = "hf_token_of_mallory_in_another_tenant"

// stranger adds mallory to the tokens of a running program.
func stranger(t *testing.T, h *harness.Holdfast) {
	t.Helper()
	file := dev.TokensFile(h.DataDir)
	entries, err := tokenfile.Read(file)
	if err != nil {
		t.Fatal(err)
	}
	roles := []api.Role{api.RoleAdmin, api.RoleDeveloper, api.RoleOperator, api.RoleApprover, api.RoleAuditor}
	entries = append(entries, tokenfile.Entry{Name: "mallory", Token: mallory, Roles: roles, Tenants: []string{"other"}})
	if err := tokenfile.Write(file, entries); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "mallory is known", func() bool {
		status, _ := ask(t, h, http.MethodGet, "/v1/me", "")
		return status == http.StatusOK
	})
}

// ask makes a request as mallory and gives the whole answer, headers too.
func ask(t *testing.T, h *harness.Holdfast, method, path, body string, headers ...string) (status int, said string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, h.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+mallory)
	req.Header.Set("Content-Type", "application/json")
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, fmt.Sprint(resp.Header, string(all))
}

// Nothing of one tenant is in anything that another can ask for: not in a list, a
// count, a stream, a page, nor in the words of a refusal, which are those for what
// never was.
func TestAnotherTenantSeesNothing(t *testing.T) {
	h, admin := start(t)
	stranger(t, h)
	s := h.CreateOf("alice", api.CreateSession{
		Runtime: "shell", Message: "echo " + secret + "\ntouch " + secret, Labels: map[string]string{"project": secret},
	})
	question := h.AwaitQuestion(s.ID)
	last := h.AwaitFact(s.ID, "the run waits", func(f []harness.Fact) bool { return f[len(f)-1].Type == "run.interrupted" })
	run := question.RunID
	never := "s-aaaaaaaaaaaaaaaaaaaa"

	t.Run("by what is asked for by name", func(t *testing.T) {
		for _, c := range []struct{ method, path, body string }{
			{"GET", "/v1/sessions/ID", ""},
			{"GET", "/v1/sessions/ID?asOf=3", ""},
			{"GET", "/v1/sessions/ID?asOf=2030-01-01T00:00:00Z", ""},
			{"GET", "/v1/sessions/ID/messages", ""},
			{"GET", "/v1/sessions/ID/runs", ""},
			{"GET", "/v1/sessions/ID/timeline", ""},
			{"GET", "/v1/sessions/ID/stream", ""},
			{"GET", "/v1/sessions/ID/replay?speed=0", ""},
			{"GET", "/v1/sessions/ID/invoke/health", ""},
			{"POST", "/v1/sessions/ID/messages", `{"content":"id"}`},
			{"POST", "/v1/sessions/ID/suspend", ""},
			{"POST", "/v1/sessions/ID/resume", ""},
			{"POST", "/v1/sessions/ID/terminate", ""},
			{"POST", "/v1/sessions/ID/extend", `{"idle":"1h"}`},
			{"POST", "/v1/sessions/ID/runs/" + run + "/cancel", ""},
			{"GET", "/v1/approvals/ID" + strings.TrimPrefix(question.ID, s.ID), ""},
			{"POST", "/v1/approvals/ID" + strings.TrimPrefix(question.ID, s.ID) + "/decisions", `{"decision":"approve","argsHash":"` + question.ArgsHash + `"}`},
		} {
			status, said := ask(t, h, c.method, strings.Replace(c.path, "ID", s.ID, 1), c.body)
			if status < 400 || strings.Contains(said, secret) {
				t.Errorf("%s %s is answered by %d: %s", c.method, c.path, status, said)
			}
			// The same words as for what never was: a refusal isn't a sign of life.
			otherStatus, other := ask(t, h, c.method, strings.Replace(c.path, "ID", never, 1), c.body)
			if status != otherStatus || plain(said, s.ID) != plain(other, never) {
				t.Errorf("%s %s tells another's from none:\n%d %s\n%d %s", c.method, c.path, status, said, otherStatus, other)
			}
		}
		if status, said := ask(t, h, "GET", "/v1/sessions", "", "Holdfast-Tenant: "+harness.Tenant); status != http.StatusForbidden || strings.Contains(said, s.ID) {
			t.Errorf("the other tenant by its name: %d %s", status, said)
		}
	})
	t.Run("by lists and counts", func(t *testing.T) {
		for _, path := range []string{
			"/v1/sessions", "/v1/sessions?label=project%3D" + secret, "/v1/approvals", "/v1/approvals?session=" + s.ID, "/v1/approvals?state=pending",
			"/v1/runtimes", "/v1/policies", "/v1/audit", "/v1/audit?session=" + s.ID, "/v1/audit?actor=user:alice", "/v1/parked", "/v1/me", "/metrics",
		} {
			status, said := ask(t, h, "GET", path, "")
			if strings.Contains(said, secret) || path != "/v1/approvals?session="+s.ID && path != "/v1/audit?session="+s.ID && strings.Contains(said, s.ID) {
				t.Errorf("%s is answered by %d with what isn't hers: %s", path, status, said)
			}
			if status == http.StatusOK && path != "/v1/me" && path != "/metrics" && !strings.Contains(said, `"items":[]`) {
				t.Errorf("%s isn't empty: %s", path, said)
			}
		}
	})
	t.Run("by the console", func(t *testing.T) {
		b := open(t, h.URL+"/#/sessions/"+s.ID)
		b.fill("input[name=token]", mallory)
		b.enter()
		for _, page := range []string{
			"#/sessions/" + s.ID, fmt.Sprintf("#/sessions/%s?n=%d", s.ID, len(last)), "#/sessions/" + s.ID + "/replay?n=3",
			"#/sessions/" + s.ID + "/replay?n=5&with=2", "#/sessions", "#/approvals", "#/audit", "#/audit?session=" + s.ID,
		} {
			b.visit(page)
			b.until("the page has said what there is", "document.querySelector('main .empty, main [role=alert]')")
			if said := eval[string](b, "document.documentElement.outerHTML"); strings.Contains(said, secret) || strings.Contains(said, "touch") {
				t.Errorf("%s shows what isn't hers:\n%s", page, eval[string](b, "document.body.innerText"))
			}
			if n := eval[int](b, "document.querySelectorAll('.badge, .question, .item, tbody tr, .fields').length"); n != 0 {
				t.Errorf("%s counts what isn't hers: %s", page, eval[string](b, "document.body.innerText"))
			}
			if title := eval[string](b, "document.title"); strings.Contains(title, "(") {
				t.Errorf("%s: the title counts: %s", page, title)
			}
		}
	})
	// Last, since she then has something of her own.
	t.Run("by streams", func(t *testing.T) { overhears(t, h, s.ID) })
	admin.visit("#/approvals")
	admin.sees(".question", "touch "+secret) // it is there, for whom it is meant
	if now := h.Session(s.ID); now.Waiting != 1 || now.Phase != api.SessionPhaseReady {
		t.Errorf("the stranger changed the session: %+v", now)
	}
}

// plain is an answer without what differs from request to request.
func plain(said, id string) string {
	_, body, _ := strings.Cut(said, "]{")
	return strings.ReplaceAll(body, id, "ID")
}

// overhears fails the test where mallory hears of a session over SSE or the
// WebSocket while things happen in it; that she hears of her own would show that the
// lines work.
func overhears(t *testing.T, h *harness.Holdfast, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.URL+"/v1/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+mallory)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	conn, _, err := websocket.Dial(ctx, strings.Replace(h.URL, "http", "ws", 1)+"/v1/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + mallory}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	wants := func(what map[string]any) string {
		raw, err := json.Marshal(what)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Write(ctx, websocket.MessageText, raw); err != nil {
			t.Fatal(err)
		}
		_, said, err := conn.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return string(said)
	}
	if said := wants(map[string]any{"type": "subscribe", "ref": "1", "session": id}); !strings.Contains(said, "not-found") || strings.Contains(said, secret) {
		t.Errorf("a subscription to another's session: %s", said)
	}
	if said := wants(map[string]any{"type": "subscribe", "ref": "2", "inbox": true}); !strings.Contains(said, "subscribed") {
		t.Errorf("a subscription to her inbox: %s", said)
	}
	// Something happens there, and is in everybody's views.
	h.Send("alice", id, "echo more "+secret)
	h.Runs(id)
	// And something of her own, after which she has heard of whatever came before: both
	// lines are in the log's order.
	runtime := `{"kind":"agent","adapter":{"protocol":"agui","entrypoint":"app","path":"/run","resume":"rerun"},"sandbox":{"command":["/bin/true"]},"workspace":{"path":"/workspace"},"policy":"own",
		"entrypoints":[{"name":"app","pathPrefix":"/","port":8000,"protocol":"HTTP","ready":"/health"}],
		"timeouts":{"claim":"1m","idle":"15m","max":"8h","suspendWhileWaiting":"2m"},"onIdle":"suspend","onLoss":"restart"}`
	if status, said := ask(t, h, http.MethodPut, "/v1/policies/own", `{"default":"ask","rules":[]}`); status != http.StatusCreated {
		t.Fatalf("her own policy: %d %s", status, said)
	}
	if status, said := ask(t, h, http.MethodPut, "/v1/runtimes/own", runtime); status != http.StatusCreated {
		t.Fatalf("her own runtime: %d %s", status, said)
	}
	status, said := ask(t, h, http.MethodPost, "/v1/sessions", `{"runtime":"own"}`)
	if status != http.StatusCreated {
		t.Fatalf("her own session: %d %s", status, said)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(resp.Body); s.Scan(); {
			select {
			case lines <- s.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	hears(t, "SSE", id, func() (string, bool) {
		select {
		case line, ok := <-lines:
			return line, ok
		case <-time.After(harness.Patience):
			return "", false
		}
	})
	hears(t, "the WebSocket", id, func() (string, bool) {
		_, said, err := conn.Read(ctx)
		return string(said), err == nil
	})
}

// hears reads a line until it tells of her own session, and fails the test where it
// told of another's before.
func hears(t *testing.T, line, id string, next func() (string, bool)) {
	t.Helper()
	for {
		said, ok := next()
		if !ok {
			t.Fatalf("%s ended without a word of her own session", line)
		}
		if strings.Contains(said, id) || strings.Contains(said, secret) {
			t.Fatalf("%s tells of another's session: %s", line, said)
		}
		if strings.Contains(said, "session.created") {
			return
		}
	}
}

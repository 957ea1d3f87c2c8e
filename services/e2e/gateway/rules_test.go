package gateway_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apispec"
)

const (
	someSession = "s-aaaaaaaaaaaaaaaaaaaa"
	someCall    = someSession + ".c-bbbbbbbbbbbbbbbbbbbb"
)

// pathOf fills in an operation's path with ids that are well formed and of nothing
// that exists.
func pathOf(op *apispec.Operation) string {
	id := someSession
	if strings.Contains(op.Path, "/approvals/") || strings.Contains(op.Path, "/calls/") {
		id = someCall
	}
	return strings.NewReplacer("{id}", id, "{name}", "unknown", "{run}", "r-unknown", "{path}", "health").Replace(op.Path)
}

// takesBody says whether an operation takes a JSON body, and gives the document's
// example of it.
func takesBody(op *apispec.Operation) (example map[string]any, ok bool) {
	body := apispec.Spec().Paths.Value(op.Path).GetOperation(op.Method).RequestBody
	if body == nil || body.Value.Content.Get("application/json") == nil || op.ID == "invokeSession" {
		return nil, false
	}
	raw, err := json.Marshal(body.Value.Content.Get("application/json").Schema.Value.Example)
	if err != nil || json.Unmarshal(raw, &example) != nil {
		panic("no example of " + op.ID)
	}
	return example, true
}

// TestRolesByTable holds every operation to the document's x-roles: who has one of
// them gets past the guard, everybody else gets 403, and nobody in particular 401.
func TestRolesByTable(t *testing.T) {
	t.Parallel()
	w := start(t)
	persons := map[api.Role]string{"developer": "alice", "approver": "bob", "operator": "olga", "auditor": "ada"}
	for _, op := range apispec.Operations() {
		if op.Agent() {
			for _, who := range []string{"admin", ""} {
				w.call(who, op.Method, pathOf(op), nil).problem(api.CodeNotFound) // not on this listener
			}
			if op.ID == "redeemBind" || op.ID == "renewToken" { // whose bearer is a Pod's, for an unsigned bind here
				example, _ := takesBody(op)
				w.ask("", op.Method, pathOf(op), example).problem(api.CodeUnauthenticated)
				w.ask(tokenOf("admin"), op.Method, pathOf(op), example).problem(api.CodeBindRefused)
				continue
			}
			w.ask("", op.Method, pathOf(op), nil).problem(api.CodeUnauthenticated)
			w.ask(tokenOf("admin"), op.Method, pathOf(op), nil).problem(api.CodeUnauthenticated)
			continue
		}
		if op.Public() || slices.Contains(op.Tags, "streams") {
			continue // no roles to hold to; streams are the hub's tests
		}
		t.Run(op.ID, func(t *testing.T) {
			w.call("", op.Method, pathOf(op), nil).problem(api.CodeUnauthenticated)
			w.call("", op.Method, pathOf(op), nil, "Authorization: Bearer "+strings.Repeat("x", 30)).problem(api.CodeUnauthenticated)
			w.call("", op.Method, pathOf(op), nil, "Authorization: Basic YWxpY2U6eA==").problem(api.CodeUnauthenticated)
			w.call("nobody", op.Method, pathOf(op), nil).problem(api.CodeForbidden)
			for role, who := range persons {
				got := w.call(who, op.Method, pathOf(op), nil)
				if refused := got.status == http.StatusForbidden; refused == op.Allows(role) {
					t.Errorf("%s: status %d, and x-roles is %v", role, got.status, op.Roles)
				}
			}
			if got := w.call("admin", op.Method, pathOf(op), nil); got.status == http.StatusForbidden {
				t.Error("who has every role is refused")
			}
		})
	}
}

// TestBadInputOfEveryKind sends every operation what doesn't fit the document:
// each is a typed problem, and nothing is appended.
func TestBadInputOfEveryKind(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.shell()
	s := w.create()
	w.ready(s.ID)
	token := w.sandboxToken(s.ID, 1, "pod-1")
	before := w.lastSeq()
	for _, op := range apispec.Operations() {
		if op.ID == "invokeSession" || slices.Contains(op.Tags, "streams") || slices.Contains(op.Tags, "system") {
			continue
		}
		send := func(body any, query string, headers ...string) answer {
			if op.Agent() {
				return w.ask(token, op.Method, pathOf(op)+query, body, headers...)
			}
			if op.Public() {
				return w.call("", op.Method, pathOf(op)+query, body, append(headers, "Origin: "+w.url)...)
			}
			return w.call("admin", op.Method, pathOf(op)+query, body, headers...)
		}
		t.Run(op.ID, func(t *testing.T) {
			if p := send(nil, "?unknown=1").problem(api.CodeInvalidRequest); !names(p, "query/unknown") {
				t.Errorf("unknown query parameter: %+v", p.Errors)
			}
			example, ok := takesBody(op)
			if !ok {
				return
			}
			for name, body := range map[string]string{
				"malformed": `{"a":`, "not an object": `[]`, "null": `null`, "two values": mustJSON(example) + `{}`,
				"trailing": mustJSON(example) + ` x`, "bad UTF-8": "{\"\xff\": 1}",
			} {
				if p := send(body, "").problem(api.CodeInvalidRequest); len(p.Errors) == 0 && name != "malformed" {
					t.Errorf("%s: no places: %+v", name, p)
				}
			}
			unknown := mapWith(example, "surprise", 1)
			if p := send(unknown, "").problem(api.CodeInvalidRequest); len(p.Errors) == 0 {
				t.Errorf("unknown field: %+v", p)
			}
			for field := range example {
				if p := send(mapWith(example, field, map[string]any{"not": []int{1}}), ""); p.status < 400 {
					t.Errorf("wrong type of %s: status %d", field, p.status)
				}
			}
			send(`{"pad":"`+strings.Repeat("x", tooLarge(op.ID))+`"}`, "").problem(api.CodePayloadTooLarge)
			send(mustJSON(example), "", "Content-Type: text/plain").problem(api.CodeUnsupportedMediaType)
			send(mustJSON(example), "", "Content-Type: ").problem(api.CodeUnsupportedMediaType)
			if slices.Contains([]string{"terminateSession"}, op.ID) {
				return // its body may be left out
			}
			send(nil, "").problem(api.CodeInvalidRequest)
		})
	}
	for _, bad := range []string{
		"/v1/sessions/S-UPPER", "/v1/sessions/s-short", "/v1/sessions/..%2f..", "/v1/sessions/ev.default.s.x", "/v1/runtimes/A%20b",
		"/v1/approvals/s-1", "/v1/sessions?limit=0", "/v1/sessions?limit=201", "/v1/sessions?phase=asleep", "/v1/sessions?label=novalue",
		"/v1/audit?from=yesterday", "/v1/sessions/" + s.ID + "?asOf=never", "/v1/sessions?limit=x", "/v1/runtimes/coder?revision=-1",
	} {
		w.call("admin", "GET", bad, nil).problem(api.CodeInvalidRequest)
	}
	w.call("admin", "GET", "/v1/sessions?cursor=bm90LW91cnM", nil).problem(api.CodeInvalidCursor)
	w.call("alice", "POST", "/v1/sessions", map[string]any{"runtime": "coder"}, "Idempotency-Key: "+strings.Repeat("k", 201)).problem(api.CodeInvalidRequest)
	w.call("alice", "POST", "/v1/sessions", map[string]any{"runtime": "none"}).problem(api.CodeRuntimeNotFound)
	w.call("alice", "POST", "/v1/sessions", map[string]any{"runtime": "coder", "idleTimeout": "99999999999h"}).problem(api.CodeInvalidRequest)
	if after := w.lastSeq(); after != before {
		t.Errorf("bad input moved the log from %d to %d", before, after)
	}
}

func TestPathsAndMethodsThatAreNone(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.call("", "GET", "/v2/sessions", nil).problem(api.CodeNotFound)
	w.call("", "GET", "/v1", nil).problem(api.CodeNotFound)
	w.call("", "PUT", "/", nil).problem(api.CodeNotFound)
	w.call("admin", "GET", "/v1/agent/session", nil).problem(api.CodeNotFound)
	wrong := w.call("admin", "PATCH", "/v1/sessions", nil)
	wrong.problem(api.CodeMethodNotAllowed)
	if allow := wrong.header.Get("Allow"); allow != "GET, POST" {
		t.Errorf("Allow: %q", allow)
	}
	w.call("admin", "GET", "/v1/sessions/"+someSession+"/suspend", nil).problem(api.CodeMethodNotAllowed)
	w.call("", "OPTIONS", "/v1/sessions", nil).problem(api.CodeMethodNotAllowed)
	w.ask("", "GET", "/v1/sessions", nil).problem(api.CodeNotFound)
	w.ask("", "GET", "/", nil).problem(api.CodeNotFound)
}

func names(p api.Problem, pointer string) bool {
	return slices.ContainsFunc(p.Errors, func(f api.FieldError) bool { return f.Pointer == pointer })
}

func mapWith(m map[string]any, key string, value any) map[string]any {
	out := maps.Clone(m)
	out[key] = value
	return out
}

func mustJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// tooLarge is how many bytes are more than an operation's body may have: those that
// carry a content take it whole (docs/limits.md).
func tooLarge(op string) int {
	if slices.Contains([]string{"createSession", "sendMessage", "proposeCall", "completeCall"}, op) {
		return 24 << 20
	}
	return 1 << 20
}

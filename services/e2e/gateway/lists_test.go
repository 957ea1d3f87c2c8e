package gateway_test

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apispec"
)

// While Postgres is down exactly lists, the past and audit are refused, in words.
func TestPostgresIsDown(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.shell()
	s := w.create()
	path := "/v1/sessions/" + s.ID
	for _, refused := range []string{
		"/v1/sessions", "/v1/runtimes", "/v1/policies", "/v1/approvals", "/v1/audit", path + "/messages", path + "/runs", path + "/timeline",
		path + "?asOf=1", "/v1/sessions?minSeq=1",
	} {
		got := w.call("admin", "GET", refused, nil)
		got.problem(api.CodeHistoryUnavailable)
		if got.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", refused)
		}
	}
	for _, works := range []string{path, path + "?minSeq=1", "/v1/runtimes/coder", "/v1/policies/coder", "/v1/me"} {
		w.call("admin", "GET", works, nil).want(200)
	}
	ready := decode[api.Readiness](w.call("", "GET", "/readyz", nil).want(503))
	for _, p := range ready.Parts {
		if want := !slices.Contains([]string{"postgres", "projector", "runner"}, p.Name); p.Ready != want {
			t.Errorf("part %s: %+v", p.Name, p)
		}
	}
}

// A read with minSeq of a write sees it.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	w := start(t, withPostgres)
	w.shell()
	for i := range 20 {
		made := w.call("alice", "POST", "/v1/sessions", map[string]any{"runtime": "coder", "labels": map[string]string{"i": strconv.Itoa(i)}}).want(201)
		seq := made.header.Get("Holdfast-Seq")
		list := decode[api.SessionList](w.call("ada", "GET", "/v1/sessions?limit=1&minSeq="+seq, nil).want(200))
		if len(list.Items) != 1 || list.Items[0].ID != decode[api.Session](made).ID {
			t.Fatalf("session %d is not in %+v", i, list.Items)
		}
	}
	begin := time.Now()
	w.call("ada", "GET", fmt.Sprintf("/v1/sessions?minSeq=%d", w.lastSeq()+1000), nil).problem(api.CodeProjectionBehind)
	if took := time.Since(begin); took < 4*time.Second || took > 8*time.Second {
		t.Errorf("waited %s for what doesn't come", took)
	}
}

func TestListsPageAndFilter(t *testing.T) {
	t.Parallel()
	w := start(t, withPostgres)
	w.shell()
	var last answer
	made := map[string]bool{}
	for i := range 7 {
		body := map[string]any{"runtime": "coder", "labels": map[string]string{"half": strconv.Itoa(i % 2), "team": "search"}}
		last = w.call("alice", "POST", "/v1/sessions", body).want(201)
		made[decode[api.Session](last).ID] = true
	}
	minSeq := "&minSeq=" + last.header.Get("Holdfast-Seq")
	next, pages := "", 0
	for {
		page := decode[api.SessionList](w.call("alice", "GET", "/v1/sessions?limit=3"+minSeq+next, nil).want(200))
		for _, s := range page.Items {
			if !made[s.ID] {
				t.Errorf("%s came twice, or from nowhere", s.ID)
			}
			delete(made, s.ID)
		}
		if pages++; page.Next == "" {
			break
		}
		next = "&cursor=" + page.Next
		// A cursor is good for its own list alone.
		w.call("alice", "GET", "/v1/sessions?limit=3&label=team%3Dsearch"+next, nil).problem(api.CodeInvalidCursor)
		w.call("admin", "GET", "/v1/audit?limit=3"+next, nil).problem(api.CodeInvalidCursor)
		w.call("trent", "GET", "/v1/sessions?limit=3"+next, nil, "Holdfast-Tenant: other").problem(api.CodeInvalidCursor)
	}
	if pages != 3 || len(made) != 0 {
		t.Errorf("%d pages, missing %v", pages, made)
	}
	for query, want := range map[string]int{
		"label=half%3D1": 3, "label=half%3D1&label=team%3Dsearch": 3, "label=half%3D1&label=half%3D0": 0, "phase=pending": 7,
		"phase=ready&phase=suspended": 0, "runtime=coder": 7, "runtime=other": 0, "owner=user:alice": 7, "owner=bob": 0,
	} {
		if got := decode[api.SessionList](w.call("alice", "GET", "/v1/sessions?"+query+minSeq, nil).want(200)); len(got.Items) != want {
			t.Errorf("%s: %d sessions, want %d", query, len(got.Items), want)
		}
	}
	if got := decode[api.SessionList](w.call("mallory", "GET", "/v1/sessions?limit=5", nil).want(200)); len(got.Items) != 0 {
		t.Errorf("another tenant's sessions: %+v", got.Items)
	}
	if got := decode[api.RuntimeList](w.call("alice", "GET", "/v1/runtimes?limit=5"+minSeq, nil).want(200)); len(got.Items) != 1 || got.Items[0].Name != "coder" {
		t.Errorf("runtimes: %+v", got.Items)
	}
	if got := decode[api.PolicyList](w.call("alice", "GET", "/v1/policies?limit=5"+minSeq, nil).want(200)); len(got.Items) != 1 || got.Items[0].Name != "coder" {
		t.Errorf("policies: %+v", got.Items)
	}
}

// The past, the conversation, its questions, the timeline and the audit of one
// session, each as the document has them.
func TestHistoryOfASession(t *testing.T) {
	t.Parallel()
	w := start(t, withPostgres)
	id, run, token := w.working()
	asked := decode[api.CallWaiting](w.ask(token, "POST", "/v1/agent/calls", shellCall(run, "c1", "make", "park")).want(202))
	w.call("alice", "POST", "/v1/approvals/"+asked.Call+"/decisions", api.DecideApproval{Decision: "approve", ArgsHash: asked.ArgsHash}).problem(api.CodeNotAnApprover)
	w.call("bob", "POST", "/v1/approvals/"+asked.Call+"/decisions", api.DecideApproval{Decision: "deny", ArgsHash: asked.ArgsHash, Comment: "no"}).want(201)
	minSeq := fmt.Sprintf("minSeq=%d", w.lastSeq())
	path := "/v1/sessions/" + id

	get := func(schema, path string) answer {
		t.Helper()
		got := w.call("admin", "GET", path, nil).want(200)
		if err := apispec.ValidateSchema(schema, got.body); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return got
	}
	if got := decode[api.MessageList](get("MessageList", path+"/messages?"+minSeq)); len(got.Items) != 1 || got.Items[0].Content != "ls" {
		t.Errorf("messages: %+v", got.Items)
	}
	if got := decode[api.RunList](get("RunList", path+"/runs?"+minSeq)); len(got.Items) != 1 || got.Items[0].ID != run {
		t.Errorf("runs: %+v", got.Items)
	}
	if got := decode[api.ApprovalList](get("ApprovalList", "/v1/approvals?state=denied&session="+id+"&"+minSeq)); len(got.Items) != 1 || got.Items[0].ID != asked.Call {
		t.Errorf("approvals: %+v", got.Items)
	}
	if got := decode[api.ApprovalList](get("ApprovalList", "/v1/approvals?state=pending&"+minSeq)); len(got.Items) != 0 {
		t.Errorf("pending: %+v", got.Items)
	}
	now := decode[api.Session](get("Session", path))
	for n := uint64(1); n <= now.N; n++ {
		if then := decode[api.Session](get("Session", fmt.Sprintf("%s?asOf=%d", path, n))); then.N != n {
			t.Errorf("as of %d it was at %d", n, then.N)
		}
	}
	w.call("admin", "GET", fmt.Sprintf("%s?asOf=%d", path, now.N+1), nil).problem(api.CodeNotFound)
	w.call("admin", "GET", path+"?asOf=2001-01-01T00:00:00Z", nil).problem(api.CodeNotFound)
	w.call("admin", "GET", path+"?asOf=1&minSeq=1", nil).problem(api.CodeInvalidRequest)
	if then := decode[api.Session](get("Session", path+"?asOf=2100-01-01T00:00:00Z")); then.N != now.N {
		t.Errorf("in the future it will be at %d", then.N)
	}

	var frames []api.Frame
	after := ""
	for {
		page := decode[api.FrameList](get("FrameList", path+"/timeline?limit=4&"+minSeq+after))
		frames = append(frames, page.Items...)
		if page.Next == "" {
			break
		}
		after = "&after=" + page.Next
	}
	for i, f := range frames {
		if f.N != uint64(i)+1 {
			t.Errorf("frame %d has n %d", i, f.N)
		}
	}
	if uint64(len(frames)) != now.N {
		t.Errorf("%d frames of %d events", len(frames), now.N)
	}
	w.call("admin", "GET", path+"/timeline?after=bm9uZQ", nil).problem(api.CodeInvalidCursor)

	audit := decode[api.AuditList](get("AuditList", "/v1/audit?limit=200&session="+id+"&"+minSeq))
	if uint64(len(audit.Items)) != now.N || audit.Items[0].N != now.N {
		t.Errorf("%d audit entries of %d events", len(audit.Items), now.N)
	}
	refused := decode[api.AuditList](get("AuditList", "/v1/audit?type=call.answer-refused&type=call.denied&"+minSeq))
	if len(refused.Items) != 2 || refused.Items[1].Type != "call.answer-refused" || refused.Items[1].Actor != "user:alice" || refused.Items[1].Outcome != "refused" {
		t.Errorf("refused and denied: %+v", refused.Items)
	}
	if got := decode[api.AuditList](get("AuditList", "/v1/audit?actor=user:bob&"+minSeq)); len(got.Items) == 0 || got.Items[0].Actor != "user:bob" {
		t.Errorf("what bob did: %+v", got.Items)
	}
	w.call("alice", "GET", "/v1/audit", nil).problem(api.CodeForbidden)
}

// Runtimes and policies are applied as JSON or YAML and come back as they went in.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	w := start(t)
	const yaml = `
name: shell
kind: agent
adapter: {protocol: agui, entrypoint: app, path: /run, resume: rerun}
sandbox:
  command: [/bin/agent, --serve]
  env: [{name: LOG, value: info}]
  resources: {limits: {cpu: "1", memory: 256Mi, pids: 64}}
workspace: {path: /workspace}
entrypoints: [{name: app, pathPrefix: /, port: 8000, protocol: HTTP, ready: /health}]
warmPool: {size: 1}
timeouts: {claim: 60s, idle: 15m, max: 8h, suspendWhileWaiting: 2m, drainGrace: 30s}
onIdle: suspend
onLoss: restart
policy: coder
redact: [/password]
`
	first := w.call("olga", "PUT", "/v1/runtimes/shell", yaml, "Content-Type: application/yaml").want(201)
	made := decode[api.Runtime](first)
	if err := apispec.ValidateSchema("Runtime", first.body); err != nil {
		t.Error(err)
	}
	if made.Revision != 1 || made.Spec.Adapter.Path != "/run" || made.Spec.Sandbox.Resources.Limits.Pids != 64 || made.By != "user:olga" || made.Seq == 0 {
		t.Errorf("made %+v", made)
	}
	again := decode[api.Runtime](w.call("olga", "PUT", "/v1/runtimes/shell", made.Spec).want(200))
	if again.Revision != 1 {
		t.Errorf("its own spec made revision %d", again.Revision)
	}
	changed := made.Spec
	changed.WarmPool.Size = 3
	if got := decode[api.Runtime](w.call("olga", "PUT", "/v1/runtimes/shell", changed).want(201)); got.Revision != 2 {
		t.Errorf("a change made revision %d", got.Revision)
	}
	if got := decode[api.Runtime](w.call("ada", "GET", "/v1/runtimes/shell?revision=1", nil).want(200)); got.Spec.WarmPool.Size != 1 || got.Seq != made.Seq {
		t.Errorf("revision 1: %+v", got)
	}
	w.call("ada", "GET", "/v1/runtimes/shell?revision=9", nil).problem(api.CodeRuntimeNotFound)
	w.call("olga", "PUT", "/v1/runtimes/shell", "kind: [", "Content-Type: application/yaml").problem(api.CodeInvalidRequest)
	if got := w.call("olga", "DELETE", "/v1/runtimes/shell", nil).want(http.StatusNoContent); got.header.Get("Holdfast-Seq") == "" {
		t.Error("removed without a sequence")
	}
	w.call("olga", "DELETE", "/v1/runtimes/shell", nil).problem(api.CodeRuntimeNotFound)
	w.call("ada", "GET", "/v1/runtimes/shell", nil).problem(api.CodeRuntimeNotFound)
	w.call("ada", "GET", "/v1/runtimes/shell?revision=2", nil).want(200)

	spec := api.PolicySpec{Default: "ask", Rules: []api.PolicyRule{{
		Name: "deploys", When: `tool == "deploy"`, Then: "ask",
		Ask: api.Ask{Approvers: []string{"group:sre"}, ExcludeRequester: true, Deadline: "never", ExecuteWithin: "1500ms", Risk: "high", Message: "Deploy?", Quorum: 1},
	}}}
	applied := w.call("admin", "PUT", "/v1/policies/deploys", spec).want(201)
	if err := apispec.ValidateSchema("Policy", applied.body); err != nil {
		t.Error(err)
	}
	if got := decode[api.Policy](applied); got.Spec.Rules[0].Ask.Deadline != "never" || got.Spec.Name != "deploys" {
		t.Errorf("applied %+v", got)
	}
	w.call("admin", "PUT", "/v1/policies/deploys", spec).want(200)
	spec.Rules[0].When = "tool =="
	if p := w.call("admin", "PUT", "/v1/policies/deploys", spec).problem(api.CodePolicyInvalid); !names(p, "/rules/0/when") {
		t.Errorf("places: %+v", p.Errors)
	}
	w.call("olga", "PUT", "/v1/policies/deploys", spec).problem(api.CodeForbidden)
	w.call("admin", "DELETE", "/v1/policies/deploys", nil).want(204)
	w.call("admin", "GET", "/v1/policies/deploys", nil).problem(api.CodePolicyNotFound)
}

package apispec

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/api"
)

const session = "s-k3v5d2m7q4x6z2b7c5aa"

func operation(t testing.TB, id string) *Operation {
	t.Helper()
	op, ok := ByID(id)
	if !ok {
		t.Fatalf("no operation %s", id)
	}
	return op
}

func request(method, target, contentType, body string) *http.Request {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

func TestValidate(t *testing.T) {
	id := map[string]string{"id": session}
	const text = "application/json"
	for _, test := range []struct {
		name, op string
		r        *http.Request
		path     map[string]string
		code     api.Code
		pointer  string
	}{
		{"fits", "createSession", request("POST", "/v1/sessions", text, `{"runtime":"coder"}`), nil, "", ""},
		{"charset", "createSession", request("POST", "/v1/sessions", text+"; charset=utf-8", `{"runtime":"coder"}`), nil, "", ""},
		{"missing field", "createSession", request("POST", "/v1/sessions", text, `{}`), nil, api.CodeInvalidRequest, "/runtime"},
		{"unknown field", "createSession", request("POST", "/v1/sessions", text, `{"runtime":"coder","owner":"user:eve"}`), nil, api.CodeInvalidRequest, "/owner"},
		{"unknown field inside", "applyRuntime", request("PUT", "/v1/runtimes/coder", text, `{"kind":"agent","sandbox":{"templateRef":{"name":"x"}}}`), map[string]string{"name": "coder"}, api.CodeInvalidRequest, "/sandbox/templateRef"},
		{"other case", "createSession", request("POST", "/v1/sessions", text, `{"Runtime":"coder"}`), nil, api.CodeInvalidRequest, ""},
		{"null body", "createSession", request("POST", "/v1/sessions", text, `null`), nil, api.CodeInvalidRequest, ""},
		{"bad name", "createSession", request("POST", "/v1/sessions", text, `{"runtime":"../x"}`), nil, api.CodeInvalidRequest, "/runtime"},
		{"bad duration", "createSession", request("POST", "/v1/sessions", text, `{"runtime":"coder","idleTimeout":"soon"}`), nil, api.CodeInvalidRequest, "/idleTimeout"},
		{"not JSON", "createSession", request("POST", "/v1/sessions", text, `{"runtime":`), nil, api.CodeInvalidRequest, ""},
		{"two values", "createSession", request("POST", "/v1/sessions", text, `{"runtime":"coder"}{}`), nil, api.CodeInvalidRequest, ""},
		{"no body", "createSession", request("POST", "/v1/sessions", text, ``), nil, api.CodeInvalidRequest, ""},
		{"form", "createSession", request("POST", "/v1/sessions", "application/x-www-form-urlencoded", `runtime=coder`), nil, api.CodeUnsupportedMediaType, ""},
		{"no type", "createSession", request("POST", "/v1/sessions", "", `{"runtime":"coder"}`), nil, api.CodeUnsupportedMediaType, ""},
		{"yaml where JSON is meant", "createSession", request("POST", "/v1/sessions", "application/yaml", `runtime: coder`), nil, api.CodeUnsupportedMediaType, ""},
		{"optional body left out", "terminateSession", request("POST", "/v1/sessions/x/terminate", "", ""), id, "", ""},
		{"nothing to extend", "extendSession", request("POST", "/v1/sessions/x/extend", text, `{}`), id, api.CodeInvalidRequest, ""},
		{"both logins", "login", request("POST", "/v1/login", text, `{"code":"0123456789abcdef","token":"0123456789abcdef"}`), nil, api.CodeInvalidRequest, ""},
		{"bad id", "getSession", request("GET", "/v1/sessions/x", "", ""), map[string]string{"id": "s-../../x"}, api.CodeInvalidRequest, "path/id"},
		{"filters", "listSessions", request("GET", "/v1/sessions?phase=ready&phase=ended&label=team%3Dsearch&limit=200", "", ""), nil, "", ""},
		{"bad filter", "listSessions", request("GET", "/v1/sessions?phase=ready&phase=happy", "", ""), nil, api.CodeInvalidRequest, "query/phase/1"},
		{"limit too large", "listSessions", request("GET", "/v1/sessions?limit=201", "", ""), nil, api.CodeInvalidRequest, "query/limit"},
		{"limit no number", "listSessions", request("GET", "/v1/sessions?limit=many", "", ""), nil, api.CodeInvalidRequest, "query/limit"},
		{"misspelt filter", "listAudit", request("GET", "/v1/audit?sesion="+session, "", ""), nil, api.CodeInvalidRequest, "query/sesion"},
		{"as of n", "getSession", request("GET", "/v1/sessions/x?asOf=12", "", ""), id, "", ""},
		{"as of time", "getSession", request("GET", "/v1/sessions/x?asOf=2026-01-02T15:04:05.123Z", "", ""), id, "", ""},
		{"as of nonsense", "getSession", request("GET", "/v1/sessions/x?asOf=yesterday", "", ""), id, api.CodeInvalidRequest, "query/asOf"},
		{"negative minSeq", "getSession", request("GET", "/v1/sessions/x?minSeq=-1", "", ""), id, api.CodeInvalidRequest, "query/minSeq"},
		{"quorum is not offered", "applyPolicy", request("PUT", "/v1/policies/p", text, `{"default":"ask","rules":[{"name":"r","when":"true","then":"ask","ask":{"quorum":2}}]}`), map[string]string{"name": "p"}, api.CodeInvalidRequest, "/rules/0/ask/quorum"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := operation(t, test.op).Validate(test.r, test.path)
			if api.CodeOf(err) != test.code || (err == nil) != (test.code == "") {
				t.Fatalf("got %v, want %q", err, test.code)
			}
			if test.pointer == "" {
				return
			}
			failure, _ := errors.AsType[*api.Error](err)
			for _, f := range failure.Problem.Errors {
				if f.Pointer == test.pointer {
					return
				}
			}
			t.Errorf("no error at %s: %+v", test.pointer, failure.Problem.Errors)
		})
	}
}

// TestValidateKeepsTheBody: its hash makes a create idempotent, and arguments
// are approved as they are.
func TestValidateKeepsTheBody(t *testing.T) {
	const body = `{ "runtime":"coder", "config": {"b":1.50,"a":12345678901234567890} }`
	r := request("POST", "/v1/sessions", "application/json", body)
	if err := operation(t, "createSession").Validate(r, nil); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r.Body)
	if err != nil || string(got) != body {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestValidateTurnsYAMLIntoJSON(t *testing.T) {
	r := request("PUT", "/v1/runtimes/coder", "application/yaml; charset=utf-8", "kind: agent\nsandbox:\n  command: [a, b]\n  resources: {limits: {cpu: \"1\", pids: 12}}\n")
	if err := operation(t, "applyRuntime").Validate(r, map[string]string{"name": "coder"}); err != nil {
		t.Fatal(err)
	}
	if got := r.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %s", got)
	}
	var spec api.RuntimeSpec
	if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
		t.Fatal(err)
	}
	if spec.Kind != api.RuntimeKindAgent || len(spec.Sandbox.Command) != 2 || spec.Sandbox.Resources.Limits.Pids != 12 {
		t.Errorf("got %+v", spec)
	}

	r = request("PUT", "/v1/runtimes/coder", "application/yaml", "kind: [agent\n")
	if err := operation(t, "applyRuntime").Validate(r, map[string]string{"name": "coder"}); api.CodeOf(err) != api.CodeInvalidRequest {
		t.Errorf("broken YAML: %v", err)
	}
}

func TestValidateOfTooLargeABody(t *testing.T) {
	r := request("POST", "/v1/sessions", "application/json", `{"runtime":"`+strings.Repeat("x", 100)+`"}`)
	r.Body = http.MaxBytesReader(httptest.NewRecorder(), r.Body, 50)
	if err := operation(t, "createSession").Validate(r, nil); api.CodeOf(err) != api.CodePayloadTooLarge {
		t.Errorf("got %v", err)
	}
}

// TestProblemsNeverHoldValues: a body may carry a secret in the wrong place.
func TestProblemsNeverHoldValues(t *testing.T) {
	const secret = "hunter2-hunter2"
	for _, body := range []string{
		`{"runtime":"` + secret + `!"}`, `{"runtime":{"` + "x" + `":"` + secret + `"}}`, `{"runtime":"c","idleTimeout":"` + secret + `"}`,
		`{"runtime":"c","parent":"` + secret + `"}`, `{"runtime":"c","message":["` + secret + `"]}`, secret,
	} {
		err := operation(t, "createSession").Validate(request("POST", "/v1/sessions", "application/json", body), nil)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestErrorsAreBounded(t *testing.T) {
	body := `{"runtime":"c","labels":{`
	labels := make([]string, 0, 400)
	for i := range 400 {
		labels = append(labels, `"k`+string(rune('a'+i%26))+strings.Repeat("z", i)+`":1`)
	}
	body += strings.Join(labels, ",") + "}}"
	err := operation(t, "createSession").Validate(request("POST", "/v1/sessions", "application/json", body), nil)
	failure, ok := errors.AsType[*api.Error](err)
	if !ok || len(failure.Problem.Errors) > maxFieldErrors {
		t.Errorf("got %d errors: %T", len(failure.Problem.Errors), err)
	}
}

// FuzzValidate: whatever comes, the answer is nil or an *api.Error, and a body
// that passed decodes into its type.
func FuzzValidate(f *testing.F) {
	f.Add("application/json", []byte(`{"kind":"agent","sandbox":{"command":["a"]}}`))
	f.Add("application/yaml", []byte("kind: agent\nsandbox: {command: [a]}\n"))
	f.Add("application/yaml", []byte("a: &a [*a]\n"))
	f.Add("application/yaml", []byte("? {x: 1}\n: 2\n"))
	f.Fuzz(func(t *testing.T, contentType string, body []byte) {
		r := request("PUT", "/v1/runtimes/coder", contentType, string(body))
		err := operation(t, "applyRuntime").Validate(r, map[string]string{"name": "coder"})
		if err != nil {
			if _, ok := errors.AsType[*api.Error](err); !ok {
				t.Fatalf("not an *api.Error: %v", err)
			}
			return
		}
		var spec api.RuntimeSpec
		if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
			t.Fatalf("passed, but: %v", err)
		}
	})
}

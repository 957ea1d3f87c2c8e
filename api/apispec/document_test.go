package apispec

import (
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/agentserver"
	"github.com/holdfast-io/holdfast/api/apiserver"
)

// handRouted are the tags whose operations no generated server has, because
// their bodies flow or they stand outside principals and tenants.
var handRouted = []string{"streams", "invoke", "system"}

// TestDocumentIsValid includes every example, of schemas and of bodies.
func TestDocumentIsValid(t *testing.T) {
	err := Spec().Validate(context.Background(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaDefaultsValidation(), openapi3.EnableMultiError())
	if err != nil {
		t.Fatal(err)
	}
}

func TestEveryOperationIsDescribed(t *testing.T) {
	if len(Operations()) < 35 {
		t.Fatalf("only %d operations: is the document whole?", len(Operations()))
	}
	seen := map[string]bool{}
	for _, op := range Operations() {
		t.Run(op.ID, func(t *testing.T) {
			o := op.route.Operation
			if o.OperationID == "" || seen[o.OperationID] {
				t.Errorf("%s %s: operationId %q is empty or not its own", op.Method, op.Path, o.OperationID)
			}
			seen[o.OperationID] = true
			if o.Summary == "" || o.Description == "" || len(o.Tags) != 1 {
				t.Error("needs a summary, a description and one tag")
			}
			checkSecurity(t, op)
			checkExamples(t, op)
			checkProblems(t, op)
		})
	}
}

// checkSecurity holds x-roles and security to the same story.
func checkSecurity(t *testing.T, op *Operation) {
	t.Helper()
	security := op.route.Operation.Security
	if security == nil {
		security = &op.route.Spec.Security
	}
	wants := func(scheme string) bool {
		return slices.ContainsFunc(*security, func(r openapi3.SecurityRequirement) bool { _, ok := r[scheme]; return ok })
	}
	if op.Public() != (len(*security) == 0) {
		t.Errorf("x-roles %v, but security %v", op.Roles, *security)
	}
	if op.Agent() != wants("agent") || op.Agent() != strings.HasPrefix(op.Path, "/v1/agent/") {
		t.Errorf("x-roles %v, but security %v at %s", op.Roles, *security, op.Path)
	}
	if (op.Agent() || op.Public()) && len(op.Roles) != 1 {
		t.Errorf("x-roles %v mixes people with others", op.Roles)
	}
	if op.ID == "invokeSession" && wants("cookie") {
		t.Error("an invocation must not take a cookie: the page behind it is the agent's")
	}
}

// checkExamples wants an example of what is sent and of what comes back; that
// they fit is TestDocumentIsValid's.
func checkExamples(t *testing.T, op *Operation) {
	t.Helper()
	has := func(content openapi3.Content) bool {
		for _, media := range content {
			if media.Example == nil && len(media.Examples) == 0 && (media.Schema == nil || media.Schema.Value.Example == nil) {
				return false
			}
		}
		return true
	}
	if body := op.route.Operation.RequestBody; body != nil && !has(body.Value.Content) {
		t.Error("the body has no example")
	}
	for status, response := range op.route.Operation.Responses.Map() {
		if !has(response.Value.Content) {
			t.Errorf("answer %s has no example", status)
		}
	}
}

// checkProblems wants problem+json for every refusal, and the refusals that
// follow from what the operation takes.
func checkProblems(t *testing.T, op *Operation) {
	t.Helper()
	responses := op.route.Operation.Responses
	for status, response := range responses.Map() {
		if status < "400" || (op.ID == "readyz" && status == "503") {
			continue
		}
		media := response.Value.Content.Get(api.ProblemContentType)
		if media == nil || media.Schema.Ref != "#/components/schemas/Problem" {
			t.Errorf("answer %s is no problem", status)
		}
	}
	needs := map[string]bool{
		"401": !op.Public(),
		"403": !op.Public() && !op.Agent(),
		"400": len(op.route.Operation.Parameters)+len(op.route.PathItem.Parameters) > 0 || op.route.Operation.RequestBody != nil,
		"415": op.route.Operation.RequestBody != nil && op.ID != "invokeSession",
		"404": strings.Contains(op.Path, "{") && op.Method == http.MethodGet,
	}
	for status, needed := range needs {
		if needed && responses.Value(status) == nil {
			t.Errorf("answer %s is not described", status)
		}
	}
}

// TestRequestsAreBounded walks every request body and parameter: what comes
// from outside has a greatest length, and objects take nothing unknown.
func TestRequestsAreBounded(t *testing.T) {
	for _, op := range Operations() {
		if slices.ContainsFunc(op.Tags, func(tag string) bool { return tag == "invoke" }) {
			continue // its body is the agent's business
		}
		if body := op.route.Operation.RequestBody; body != nil {
			for _, media := range body.Value.Content {
				checkBounded(t, op.ID, media.Schema.Value)
			}
		}
		for _, p := range append(slices.Clone(op.route.PathItem.Parameters), op.route.Operation.Parameters...) {
			checkBounded(t, op.ID+" "+p.Value.Name, p.Value.Schema.Value)
		}
	}
}

func checkBounded(t *testing.T, at string, s *openapi3.Schema) {
	t.Helper()
	raw := s.Extensions["x-go-type"] != nil // free JSON, bounded by the body's own limit
	switch {
	case s.Type.Is("string"):
		if s.MaxLength == nil && len(s.Enum) == 0 && s.Format != "date-time" {
			t.Errorf("%s: a string without maxLength", at)
		}
	case s.Type.Is("array"):
		if s.MaxItems == nil {
			t.Errorf("%s: an array without maxItems", at)
		}
		checkBounded(t, at+"[]", s.Items.Value)
	case s.Type.Is("object") && !raw:
		closed := s.AdditionalProperties.Has != nil && !*s.AdditionalProperties.Has
		if !closed && s.MaxProps == nil {
			t.Errorf("%s: an object that takes anything", at)
		}
		for name, property := range s.Properties {
			checkBounded(t, at+"."+name, property.Value)
		}
		if entry := s.AdditionalProperties.Schema; entry != nil {
			checkBounded(t, at+".*", entry.Value)
		}
	}
}

func TestCodesAreThoseOfTheDocument(t *testing.T) {
	schema := Spec().Components.Schemas["ProblemCode"].Value
	table, ok := schema.Extensions["x-problems"].(map[string]any)
	if !ok {
		t.Fatal("x-problems is missing")
	}
	enum := make([]string, 0, len(schema.Enum))
	for _, code := range schema.Enum {
		enum = append(enum, code.(string))
	}
	slices.Sort(enum)
	if want := slices.Sorted(maps.Keys(table)); !slices.Equal(enum, want) {
		t.Errorf("enum and x-problems differ:\n%v\n%v", enum, want)
	}
	known := make([]string, 0, len(table))
	for _, code := range api.Codes() {
		known = append(known, string(code))
	}
	if !slices.Equal(enum, known) {
		t.Errorf("the document's codes and Go's differ:\n%v\n%v", enum, known)
	}
	for name, entry := range table {
		row, code := entry.(map[string]any), api.Code(name)
		if row["status"] != float64(code.Status()) || row["title"] != code.Title() {
			t.Errorf("%s: the document says %v %q, Go %d %q", name, row["status"], row["title"], code.Status(), code.Title())
		}
		if row["meaning"] == "" {
			t.Errorf("%s has no meaning", name)
		}
	}
}

// TestServersHaveEveryOperation: what is neither generated nor routed by hand
// would be described and not there.
func TestServersHaveEveryOperation(t *testing.T) {
	methods := func(of reflect.Type) map[string]bool {
		names := map[string]bool{}
		for m := range of.Methods() {
			names[m.Name] = true
		}
		return names
	}
	public := methods(reflect.TypeFor[apiserver.StrictServerInterface]())
	agent := methods(reflect.TypeFor[agentserver.StrictServerInterface]())
	for _, op := range Operations() {
		name := strings.ToUpper(op.ID[:1]) + op.ID[1:]
		byHand := slices.Contains(handRouted, op.Tags[0])
		if public[name] != (!byHand && !op.Agent()) {
			t.Errorf("%s in the public server: %v", op.ID, public[name])
		}
		if agent[name] != op.Agent() {
			t.Errorf("%s in the agents' server: %v", op.ID, agent[name])
		}
		delete(public, name)
		delete(agent, name)
	}
	if len(public)+len(agent) > 0 {
		t.Errorf("methods without an operation: %v %v", public, agent)
	}
}

func TestRolesOfImportantCalls(t *testing.T) {
	for _, test := range []struct {
		id   string
		who  []api.Role
		want bool
	}{
		{"applyPolicy", []api.Role{api.RoleDeveloper, api.RoleOperator, api.RoleApprover, api.RoleAuditor}, false},
		{"applyPolicy", []api.Role{api.RoleAdmin}, true},
		{"createSession", []api.Role{api.RoleAuditor, api.RoleApprover}, false},
		{"createSession", []api.Role{api.RoleDeveloper}, true},
		{"applyRuntime", []api.Role{api.RoleDeveloper}, false},
		{"listAudit", []api.Role{api.RoleDeveloper, api.RoleOperator, api.RoleApprover}, false},
		{"decideApproval", []api.Role{RoleAgent}, false},
		{"proposeCall", []api.Role{api.RoleAdmin}, false},
		{"proposeCall", []api.Role{RoleAgent}, true},
		{"getMe", nil, false},
		{"healthz", nil, true},
	} {
		op, ok := ByID(test.id)
		if !ok {
			t.Errorf("no operation %s", test.id)
			continue
		}
		if got := op.Allows(test.who...); got != test.want {
			t.Errorf("%s allows %v: %v", test.id, test.who, got)
		}
	}
}

func TestByRoute(t *testing.T) {
	op, ok := ByRoute("GET", "/v1/sessions/{id}")
	if !ok || op.ID != "getSession" {
		t.Fatalf("got %v, %v", op, ok)
	}
	if head, ok := ByRoute("HEAD", "/v1/sessions/{id}"); !ok || head != op {
		t.Error("HEAD is not answered by GET's operation")
	}
	if _, ok := ByRoute("PATCH", "/v1/sessions/{id}"); ok {
		t.Error("found an operation that is not there")
	}
}

func TestParseRefusesAnOperationWithoutRoles(t *testing.T) {
	for name, roles := range map[string]string{"missing": "", "empty": "x-roles: []", "misspelt": "x-roles: [amdin]"} {
		doc := "openapi: 3.0.3\ninfo: {title: t, version: v}\npaths:\n  /x:\n    get:\n      operationId: x\n      responses: {'200': {description: d}}\n      " + roles + "\n"
		if _, err := parse([]byte(doc)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

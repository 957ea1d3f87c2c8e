package apispec

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/routers"

	"github.com/holdfast-io/holdfast/api"
)

// Two words of x-roles that are no roles of a person.
const (
	// RoleAgent is the token of a session, on the agents' listener.
	RoleAgent api.Role = "agent"
	// RoleAnyone needs no principal at all.
	RoleAnyone api.Role = "anyone"
)

// rolesExtension is where an operation says who may call it.
const rolesExtension = "x-roles"

// Operation is one call of the API.
type Operation struct {
	// ID is the operationId, e.g. "createSession".
	ID string
	// Method is the HTTP method, in capitals. For "invokeSession" the document's
	// POST stands for every method.
	Method string
	// Path is the template, e.g. "/v1/sessions/{id}": a chi pattern as well.
	Path string
	// Tags say which part of the API it is of; see the document's head.
	Tags []string
	// Roles may call it: of people, or RoleAgent, or RoleAnyone.
	Roles []api.Role

	route *routers.Route
}

// Public says whether the call needs no principal.
func (o *Operation) Public() bool { return slices.Contains(o.Roles, RoleAnyone) }

// Agent says whether the call belongs to the agents' listener.
func (o *Operation) Agent() bool { return slices.Contains(o.Roles, RoleAgent) }

// Allows says whether one of the roles may call it. A public call allows
// everybody, also nobody in particular.
func (o *Operation) Allows(roles ...api.Role) bool {
	return o.Public() || slices.ContainsFunc(roles, func(r api.Role) bool { return slices.Contains(o.Roles, r) })
}

// document is everything that is derived from the embedded bytes.
type document struct {
	spec       *openapi3.T
	operations []*Operation
	byID       map[string]*Operation
	byRoute    map[string]*Operation
}

// parsed reads the document once. It can only fail in a build whose own tests
// fail, hence the panic: there is nothing that a caller could do.
var parsed = sync.OnceValue(func() *document {
	doc, err := parse(api.OpenAPI)
	if err != nil {
		panic(fmt.Sprintf("apispec: embedded openapi.yaml: %v", err))
	}
	return doc
})

// parse loads and validates a document and collects its operations, by path
// and method.
func parse(data []byte) (*document, error) {
	spec, err := openapi3.NewLoader().LoadFromData(data)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if err := spec.Validate(context.Background(), openapi3.EnableSchemaPatternValidation()); err != nil {
		return nil, fmt.Errorf("validate: %w", err)
	}
	doc := &document{spec: spec, byID: map[string]*Operation{}, byRoute: map[string]*Operation{}}
	for _, path := range spec.Paths.InMatchingOrder() {
		item := spec.Paths.Value(path)
		for method, operation := range item.Operations() {
			roles, err := rolesOf(operation)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			op := &Operation{
				ID: operation.OperationID, Method: method, Path: path, Tags: operation.Tags, Roles: roles,
				route: &routers.Route{Spec: spec, Path: path, PathItem: item, Method: method, Operation: operation},
			}
			doc.operations = append(doc.operations, op)
			doc.byID[op.ID] = op
			doc.byRoute[method+" "+path] = op
		}
	}
	slices.SortFunc(doc.operations, func(a, b *Operation) int {
		if a.Path != b.Path {
			return strings.Compare(a.Path, b.Path)
		}
		return strings.Compare(a.Method, b.Method)
	})
	return doc, nil
}

// rolesOf reads x-roles, which every operation must have: a call that forgot
// to say who may make it would be open to all or to none.
func rolesOf(operation *openapi3.Operation) ([]api.Role, error) {
	list, ok := operation.Extensions[rolesExtension].([]any)
	if !ok || len(list) == 0 {
		return nil, fmt.Errorf("%s is missing", rolesExtension)
	}
	roles := make([]api.Role, 0, len(list))
	for _, entry := range list {
		word, _ := entry.(string)
		role := api.Role(word)
		if !role.Valid() && role != RoleAgent && role != RoleAnyone {
			return nil, fmt.Errorf("%s: %v is no role", rolesExtension, entry)
		}
		roles = append(roles, role)
	}
	return roles, nil
}

// Spec is the whole document, parsed. It is shared: don't change it.
func Spec() *openapi3.T { return parsed().spec }

// Operations are all calls, by path and method. The slice is the caller's, the
// operations are shared.
func Operations() []*Operation { return slices.Clone(parsed().operations) }

// ByID finds an operation by its operationId.
func ByID(id string) (*Operation, bool) { op, ok := parsed().byID[id]; return op, ok }

// ByRoute finds an operation by method and path template, which is what chi's
// RoutePattern gives. HEAD is answered by GET's.
func ByRoute(method, pattern string) (*Operation, bool) {
	if method == http.MethodHead {
		method = http.MethodGet
	}
	op, ok := parsed().byRoute[method+" "+pattern]
	return op, ok
}

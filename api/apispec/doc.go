// Package apispec is the parsed openapi.yaml: what the gateway asks about an
// operation before it lets a request through (who may call it, and does the
// request fit), so that neither is written down twice.
//
//	op, ok := apispec.ByRoute(r.Method, chi.RouteContext(r.Context()).RoutePattern())
//	if !op.Allows(principal.Roles...) { … api.Err(api.CodeForbidden) … }
//	if err := op.Validate(r, pathParams); err != nil { … err is an *api.Error … }
package apispec

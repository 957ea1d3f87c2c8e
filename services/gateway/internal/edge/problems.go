package edge

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// Problems writes errors as answers.
type Problems struct{ Logger *slog.Logger }

// Write answers with the problem that err is. Causes go to the log where the
// fault is ours, and nowhere else.
func (p Problems) Write(w http.ResponseWriter, r *http.Request, err error) {
	prob := problem.From(err)
	if prob.Status() >= http.StatusInternalServerError && !errors.Is(r.Context().Err(), context.Canceled) {
		p.Logger.WarnContext(r.Context(), "request failed", "code", prob.Code, "err", err)
	}
	if prob.Code == api.CodeUnauthenticated {
		w.Header().Set("WWW-Authenticate", `Bearer realm="holdfast"`)
	}
	if err := prob.API().Write(w); err != nil {
		p.Logger.DebugContext(r.Context(), "answer not delivered", "err", err)
	}
}

// NotFound answers for paths that no operation has.
func (p Problems) NotFound(w http.ResponseWriter, r *http.Request) {
	p.Write(w, r, problem.New(api.CodeNotFound, "There is no such call."))
}

// MethodNotAllowed answers where the path is known and the method is not.
func (p Problems) MethodNotAllowed(w http.ResponseWriter, r *http.Request) {
	allowed := allowedMethods(r)
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	p.Write(w, r, problem.Newf(api.CodeMethodNotAllowed, "This takes %s.", strings.Join(allowed, ", ")))
}

// allowedMethods asks the router for each method: chi knows, but doesn't tell.
func allowedMethods(r *http.Request) []string {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	routes := chi.RouteContext(r.Context()).Routes
	return slices.DeleteFunc([]string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	}, func(method string) bool { return !routes.Match(chi.NewRouteContext(), method, path) })
}

package edge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apispec"
	"github.com/holdfast-io/holdfast/services/internal/problem"
	"github.com/holdfast-io/holdfast/services/internal/verbs"
)

const (
	// MaxBodyBytes bounds a request's body, but for calls into a sandbox.
	MaxBodyBytes = 1 << 20
	// MaxContentBodyBytes bounds a body that carries a content: more than the content
	// itself may have, so that one that is too large is refused as what it is.
	MaxContentBodyBytes = verbs.MaxContentBytes + 8<<20
	// bodyTimeout is how long a client may take to send its body.
	bodyTimeout = 30 * time.Second
)

// withContent are the operations whose bodies carry a content.
var withContent = map[string]bool{"createSession": true, "sendMessage": true, "proposeCall": true, "completeCall": true}

func bodyLimit(op *apispec.Operation) int64 {
	if withContent[op.ID] {
		return MaxContentBodyBytes
	}
	return MaxBodyBytes
}

// Admit says who makes a request, as a context for its operation, or why it is
// refused.
type Admit func(op *apispec.Operation, r *http.Request) (context.Context, error)

// Guard checks everything that the document says of the operation that a request
// was routed to. It has to run after routing (chi's With), so that the pattern is
// known.
func (p Problems) Guard(admit Admit) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op, ok := apispec.ByRoute(r.Method, chi.RouteContext(r.Context()).RoutePattern())
			if !ok {
				// A route without an operation would have no roles: nobody may call it.
				p.Write(w, r, problem.New(api.CodeNotFound, "There is no such call."))
				return
			}
			p.pass(w, r, op, admit, next) //nolint:contextcheck // Admit makes it from the request's own
		})
	}
}

// GuardAs is Guard for a route that the document describes under another method
// or pattern, by the operation's id. Its body is neither bounded nor looked at.
func (p Problems) GuardAs(id string, admit Admit, next http.Handler) http.Handler {
	op, ok := apispec.ByID(id)
	if !ok {
		panic("edge: no operation " + id) // a misspelt constant: no request can be served
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, err := admit(op, r)
		if err != nil {
			p.Write(w, r, err)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx)) //nolint:contextcheck // Admit makes it from the request's own
	})
}

func (p Problems) pass(w http.ResponseWriter, r *http.Request, op *apispec.Operation, admit Admit, next http.Handler) {
	ctx, err := admit(op, r)
	if err == nil {
		r = r.WithContext(ctx)
		err = readBody(w, r, bodyLimit(op))
	}
	if err == nil {
		err = op.Validate(r, pathParams(r))
	}
	if err == nil {
		err = wellFormed(r)
	}
	if err != nil {
		p.Write(w, r, err)
		return
	}
	next.ServeHTTP(w, r)
}

// readBody reads the whole body, bounded in bytes and in time, so that what
// follows waits for nobody.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return problem.Wrap(api.CodeInvalidRequest, "The body could not be read.", err)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return problem.Newf(api.CodePayloadTooLarge, "The body is larger than %d bytes.", tooLarge.Limit)
	case err != nil:
		return problem.Wrap(api.CodeInvalidRequest, "The body could not be read.", err)
	}
	if err := control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return problem.Wrap(api.CodeInvalidRequest, "The body could not be read.", err)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(body) == 0 {
		r.Body = http.NoBody
	}
	return nil
}

// wellFormed refuses a JSON body with something behind its value, which a decoder
// of one value would pass over.
func wellFormed(r *http.Request) error {
	if !isJSON(r) || r.ContentLength == 0 || r.Body == nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return problem.Wrap(api.CodeInvalidRequest, "The body could not be read.", err)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !json.Valid(body) {
		p := problem.New(api.CodeInvalidRequest, "The body is not one JSON value.")
		return p.At("", "something follows the value")
	}
	return nil
}

// isJSON says whether the request's body calls itself JSON; Validate has checked
// that it calls itself something.
func isJSON(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == "application/json"
}

// pathParams are the parts of the path by name, decoded. chi matches the path as
// it was sent, where that differs.
func pathParams(r *http.Request) map[string]string {
	params := map[string]string{}
	route := chi.RouteContext(r.Context()).URLParams
	for i, name := range route.Keys {
		value := route.Values[i]
		if decoded, err := url.PathUnescape(value); err == nil && r.URL.RawPath != "" {
			value = decoded
		}
		params[name] = value
	}
	return params
}

package apispec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"

	"github.com/holdfast-io/holdfast/api"
)

// maxFieldErrors bounds a problem's errors: enough to see what is wrong, not
// an answer many times the size of the request.
const maxFieldErrors = 20

// The two types that a body can have where a document is applied.
const (
	mediaJSON = "application/json"
	mediaYAML = "application/yaml"
)

// Validate checks a request against the document: parameters, unknown query
// parameters, the body's type and the body. Who may call is not its business.
//
// pathParams are the decoded parts of the path by name. The body must already
// be bounded (http.MaxBytesReader); it is read whole and put back. A body in
// YAML is put back as JSON, with its Content-Type: YAML ends here.
//
// The error is an *api.Error: invalid-request with the places that are wrong,
// unsupported-media-type, or payload-too-large. Values never stand in it.
func (o *Operation) Validate(r *http.Request, pathParams map[string]string) error {
	if err := o.validateBodyType(r); err != nil {
		return err
	}
	fields := o.unknownQuery(r)
	err := openapi3filter.ValidateRequest(r.Context(), &openapi3filter.RequestValidationInput{
		Request: r, PathParams: pathParams, Route: o.route,
		Options: &openapi3filter.Options{
			MultiError:          true,
			SkipSettingDefaults: true, // a body must stay as it was sent: its hash and its exact arguments count
			KeepValidatedValue:  isYAML(r),
			AuthenticationFunc:  openapi3filter.NoopAuthenticationFunc,
		},
	})
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return api.Errf(api.CodePayloadTooLarge, "The body is larger than %d bytes.", tooLarge.Limit)
	}
	fields = append(fields, fieldErrors(err)...)
	if len(fields) == 0 {
		fields, err = oneValue(r)
		if err != nil {
			return err
		}
	}
	if len(fields) > 0 {
		problem := api.Err(api.CodeInvalidRequest)
		problem.Problem.Detail = "The request doesn't fit " + o.ID + "."
		problem.Problem.Errors = fields[:min(len(fields), maxFieldErrors)]
		return problem
	}
	return toJSON(r)
}

// validateBodyType refuses a body of a type that the operation doesn't take,
// also one that doesn't say its type.
func (o *Operation) validateBodyType(r *http.Request) error {
	ref := o.route.Operation.RequestBody
	if ref == nil || r.Body == nil || r.Body == http.NoBody || r.ContentLength == 0 {
		return nil
	}
	content := ref.Value.Content
	if content.Get(r.Header.Get("Content-Type")) != nil {
		return nil
	}
	return api.Errf(api.CodeUnsupportedMediaType, "This takes %s.", strings.Join(slices.Sorted(maps.Keys(content)), " or "))
}

// unknownQuery names query parameters that the operation doesn't have: a
// misspelt filter must not silently mean "everything".
func (o *Operation) unknownQuery(r *http.Request) []api.FieldError {
	var fields []api.FieldError
	for _, name := range slices.Sorted(maps.Keys(r.URL.Query())) {
		if o.route.Operation.Parameters.GetByInAndName(openapi3.ParameterInQuery, name) == nil {
			fields = append(fields, api.FieldError{Pointer: "query/" + bounded(name, 64), Detail: "no such parameter"})
		}
	}
	return fields
}

// fieldErrors flattens what the filter found into places and reasons.
func fieldErrors(err error) []api.FieldError {
	if err == nil {
		return nil
	}
	//nolint:errorlint // the tree is walked by hand: errors.As would stop at the first of many
	switch e := err.(type) {
	case openapi3.MultiError:
		var fields []api.FieldError
		for _, one := range e {
			fields = append(fields, fieldErrors(one)...)
		}
		return fields
	case *openapi3filter.RequestError:
		return requestErrors(e)
	default:
		return []api.FieldError{{Pointer: "", Detail: "can't be read"}}
	}
}

// requestErrors are the places of one parameter or of the body.
func requestErrors(e *openapi3filter.RequestError) []api.FieldError {
	base := ""
	if e.Parameter != nil {
		base = e.Parameter.In + "/" + e.Parameter.Name
	}
	fields := schemaFields(base, e.Err)
	if len(fields) > 0 {
		return fields
	}
	detail := "can't be read"
	if errors.Is(e.Err, openapi3filter.ErrInvalidRequired) {
		detail = "is required"
	} else if e.Parameter == nil {
		detail = "the body isn't well formed"
	}
	return []api.FieldError{{Pointer: base, Detail: detail}}
}

// oneValue refuses a JSON body with something behind its first value. The
// filter and most decoders read no further, so what the sender meant by it
// would be lost without a word.
func oneValue(r *http.Request) ([]api.FieldError, error) {
	if r.GetBody == nil || r.ContentLength == 0 || isYAML(r) {
		return nil, nil
	}
	again, err := r.GetBody()
	if err != nil {
		return nil, fmt.Errorf("read the body again: %w", err)
	}
	defer again.Close()
	body, err := io.ReadAll(again)
	if err != nil {
		return nil, fmt.Errorf("read the body again: %w", err)
	}
	if len(body) > 0 && !json.Valid(body) {
		return []api.FieldError{{Pointer: "", Detail: "the body isn't one value of JSON"}}, nil
	}
	return nil, nil
}

// pointerEscaper escapes a token of a JSON pointer (RFC 6901).
var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// unsupported is what the filter says, at the object, of a field that it has no place for.
var unsupported = regexp.MustCompile(`^property "(.*)" is unsupported$`)

// schemaFields are the places in a tree of schema errors, as JSON pointers
// behind base. There are at most maxFieldErrors.
func schemaFields(base string, err error) []api.FieldError {
	var fields []api.FieldError
	collectSchemaErrors(err, func(s *openapi3.SchemaError) {
		var pointer strings.Builder
		pointer.WriteString(base)
		for _, part := range s.JSONPointer() {
			pointer.WriteString("/" + pointerEscaper.Replace(part))
		}
		detail := s.Reason
		if unknown := unsupported.FindStringSubmatch(detail); unknown != nil {
			pointer.WriteString("/" + pointerEscaper.Replace(unknown[1]))
			detail = "there is no such field"
		}
		fields = append(fields, api.FieldError{Pointer: bounded(pointer.String(), 500), Detail: bounded(detail, 500)})
	})
	return fields[:min(len(fields), maxFieldErrors)]
}

// collectSchemaErrors visits each schema error in a tree of them.
func collectSchemaErrors(err error, visit func(*openapi3.SchemaError)) {
	//nolint:errorlint // as in fieldErrors
	switch e := err.(type) {
	case openapi3.MultiError:
		for _, one := range e {
			collectSchemaErrors(one, visit)
		}
	case *openapi3.SchemaError:
		visit(e)
	}
}

// validated is what the filter puts in a body's place when asked to keep what
// it decoded.
type validated interface{ ValidatedValue() any }

// toJSON replaces a YAML body by the JSON of what was validated.
func toJSON(r *http.Request) error {
	if !isYAML(r) {
		return nil
	}
	kept, ok := r.Body.(validated)
	if !ok {
		return api.Err(api.CodeInvalidRequest)
	}
	body, err := json.Marshal(kept.ValidatedValue())
	if err != nil {
		return api.Errf(api.CodeInvalidRequest, "The YAML has no equal in JSON.")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.GetBody = nil
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Type", mediaJSON)
	return nil
}

// isYAML says whether the request's body calls itself YAML.
func isYAML(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == mediaYAML
}

// bounded cuts text that a client chose the length of.
func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// dataSchemas names the schema of a frame's data by its kind.
var dataSchemas = map[api.FrameKind]string{
	api.FrameKindAgui:    "AguiEvents",
	api.FrameKindEvent:   "Event",
	api.FrameKindPrompt:  "Approval",
	api.FrameKindControl: "Control",
}

// ValidateFrame checks the JSON of a frame, and of its data by its kind,
// against the document. It is for tests of those who write frames.
func ValidateFrame(frame []byte) error {
	if err := ValidateSchema("Frame", frame); err != nil {
		return err
	}
	var f api.Frame
	if err := json.Unmarshal(frame, &f); err != nil {
		return fmt.Errorf("frame: %w", err)
	}
	return ValidateSchema(dataSchemas[f.Kind], f.Data)
}

// ValidateSchema checks JSON against the schema of that name.
func ValidateSchema(name string, data []byte) error {
	ref, ok := Spec().Components.Schemas[name]
	if !ok {
		return fmt.Errorf("no schema %q", name)
	}
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := ref.Value.VisitJSON(value, openapi3.MultiErrors(), openapi3.EnableFormatValidation()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

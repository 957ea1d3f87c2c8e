// Package apiclient is the client of the whole API, generated from
// openapi.yaml, with what every caller needs around it: the token, the tenant,
// problems as Go errors, and the frames of a stream.
//
//	client, err := apiclient.New(apiclient.Config{URL: url, Token: token})
//	answer, err := client.GetSessionWithResponse(ctx, id, nil)
//	if errors.Is(err, api.Err(api.CodeNotFound)) { … }
//	session := answer.JSON200
//
// For a stream call the method without "WithResponse" and read its body with
// [Frames].
package apiclient

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/api"
)

// HeaderTenant names the tenant where a principal has several.
const HeaderTenant = "Holdfast-Tenant"

// maxProblemBytes bounds what is read of an error's body.
const maxProblemBytes = 256 << 10

// Config says which server to talk to, and as whom.
type Config struct {
	// URL is the server's, e.g. "http://127.0.0.1:7070"; http or https.
	URL string
	// Token is the bearer token; empty sends none.
	Token string
	// Tenant goes into Holdfast-Tenant; empty leaves it to the principal.
	Tenant string
	// HTTP is the client underneath; nil means one without a timeout, because
	// streams live for long: bound calls by their context.
	HTTP *http.Client
}

// New makes a client. It does not connect. Its methods return *[api.Error] for
// every answer of 400 and above that is not JSON of the call's own, so a nil
// error means that the call was done.
func New(cfg Config) (*ClientWithResponses, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("server's URL: %w", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, fmt.Errorf("server's URL %q is not http://host or https://host", cfg.URL)
	}
	underneath := cfg.HTTP
	if underneath == nil {
		underneath = &http.Client{}
	}
	return NewClientWithResponses(cfg.URL, WithHTTPClient(&doer{cfg: cfg, http: underneath}))
}

// doer adds who we are to a request and makes errors of refusals.
type doer struct {
	cfg  Config
	http *http.Client
}

// Do is the generated client's way out.
func (d *doer) Do(req *http.Request) (*http.Response, error) {
	if d.cfg.Token != "" {
		req.Header.Set("Authorization", "Bearer "+d.cfg.Token)
	}
	if d.cfg.Tenant != "" {
		req.Header.Set(HeaderTenant, d.cfg.Tenant)
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < http.StatusBadRequest {
		return resp, nil
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		media = "" // no type, or one that can't be read, is not ours
	}
	if media == "application/json" {
		return resp, nil // e.g. readyz, whose 503 is an answer
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxProblemBytes))
	if err != nil {
		return nil, fmt.Errorf("read the %s: %w", resp.Status, err)
	}
	return nil, problemOf(resp, media, body)
}

// problemOf is the error in an answer. What is no problem of ours, a proxy's
// page for one, keeps its status and says so.
func problemOf(resp *http.Response, media string, body []byte) *api.Error {
	failure := &api.Error{}
	if media != api.ProblemContentType || json.Unmarshal(body, &failure.Problem) != nil || failure.Problem.Code == "" {
		failure.Problem = api.Problem{
			Type: "about:blank", Title: http.StatusText(resp.StatusCode), Status: resp.StatusCode,
			Code: codeOfStatus(resp.StatusCode), Detail: "The answer is no problem of Holdfast's; something in between may have given it.",
		}
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 {
		failure.RetryAfter = time.Duration(seconds) * time.Second
	}
	return failure
}

// codeOfStatus is the nearest code for an answer that names none.
func codeOfStatus(status int) api.Code {
	switch status {
	case http.StatusUnauthorized:
		return api.CodeUnauthenticated
	case http.StatusForbidden:
		return api.CodeForbidden
	case http.StatusNotFound:
		return api.CodeNotFound
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return api.CodeNotReady
	default:
		return api.CodeInternal
	}
}

// Frames are the frames of an SSE body, as they come; heartbeat comments are
// skipped. It closes the body. An error ends it: io.ErrUnexpectedEOF is a
// stream that was cut, to be resumed after the last frame's cursor; the end of
// the stream between two frames is no error.
func Frames(body io.ReadCloser) iter.Seq2[api.Frame, error] {
	return func(yield func(api.Frame, error) bool) {
		defer body.Close()
		reader := api.NewSSEReader(body, 0)
		for {
			event, err := reader.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(api.Frame{}, err)
				return
			}
			if event.IsComment {
				continue
			}
			var frame api.Frame
			if err := json.Unmarshal(event.Data, &frame); err != nil {
				yield(api.Frame{}, fmt.Errorf("frame %.64q: %w", event.ID, err))
				return
			}
			if !yield(frame, nil) {
				return
			}
		}
	}
}

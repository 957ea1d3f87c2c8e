package sandboxapi

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	// MaxSpoolLineBytes bounds one line of a spool: an event of 16 MiB and its frame.
	MaxSpoolLineBytes = 16<<20 + 64<<10
	// SpoolHeartbeat is how often a quiet spool sends a blank line.
	SpoolHeartbeat = 15 * time.Second
	// MaxReadyWait bounds ?wait= of [PathReady].
	MaxReadyWait = 60 * time.Second
	// maxAnswerBytes bounds small JSON answers.
	maxAnswerBytes = 1 << 20
)

// ErrSpoolSilent ends [Client.Spool] when not even heartbeats come any more.
var ErrSpoolSilent = errors.New("the spool went silent")

// Client calls the sandboxd of one sandbox for one session. It is safe for
// concurrent use. Errors that sandboxd answered with are a [*Problem]; all
// others mean that it wasn't reached, or was cut off.
type Client struct {
	tr         *http.Transport
	base       *url.URL
	session    string
	generation string
}

// NewClient is NewClientAt for a sandboxd that is reached directly.
func NewClient(endpoint, session string, generation uint64) (*Client, error) {
	return NewClientAt(Endpoint{URL: endpoint}, session, generation)
}

// NewClientAt makes a client for a sandbox. Session and generation go with every
// call; they may be empty for a sandbox that is not bound yet, where only Health,
// WaitReady and Bind answer.
func NewClientAt(at Endpoint, session string, generation uint64) (*Client, error) {
	tr, base, err := at.transport()
	if err != nil {
		return nil, err
	}
	return &Client{tr: tr, base: base, session: session, generation: strconv.FormatUint(generation, 10)}, nil
}

// Close drops idle connections. Calls in flight go on.
func (c *Client) Close() { c.tr.CloseIdleConnections() }

// Health asks how the sandbox is.
func (c *Client) Health(ctx context.Context) (Health, error) {
	var h Health
	_, err := c.call(ctx, http.MethodGet, PathHealth, nil, &h)
	return h, err
}

// WaitReady waits until the entrypoint answers, as long as ctx allows. A
// failed entrypoint is a [*Problem] with [CodeEntrypointFailed].
func (c *Client) WaitReady(ctx context.Context) (Health, error) {
	path := fmt.Sprintf("%s?wait=%d", PathReady, int(MaxReadyWait/time.Second))
	for {
		var h Health
		_, err := c.call(ctx, http.MethodGet, path, nil, &h)
		var p *Problem
		if errors.As(err, &p) && p.Code == CodeNotReady {
			continue
		}
		return h, err
	}
}

// Bind hands over a signed bind. Repeating it is safe.
func (c *Client) Bind(ctx context.Context, bind string) (Health, error) {
	var h Health
	_, err := c.call(ctx, http.MethodPost, PathBind, BindRequest{Bind: bind}, &h)
	return h, err
}

// StartRun starts a turn. started is false when sandboxd knew the run already,
// be it open or finished. Another open run is a [*Problem] with [CodeRunOpen].
func (c *Client) StartRun(ctx context.Context, req RunRequest) (started bool, err error) {
	status, err := c.call(ctx, http.MethodPost, PathRuns, req, nil)
	return status == http.StatusAccepted, err
}

// CancelRun asks for the end of a run; its spool then ends with outcome
// "cancelled", or as it did if it was over already.
func (c *Client) CancelRun(ctx context.Context, run string) error {
	_, err := c.call(ctx, http.MethodPost, PathRuns+"/"+url.PathEscape(run)+"/cancel", nil, nil)
	return err
}

// Spool reads a run's events with K ≥ from, then follows live until the line
// with End. It yields at most one error, as the last thing: the stream was cut
// (call again from the last K + 1), or a [*Problem].
func (c *Client) Spool(ctx context.Context, run string, from uint64) iter.Seq2[SpoolLine, error] {
	return func(yield func(SpoolLine, error) bool) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		path := fmt.Sprintf("%s/%s/spool?from=%d", PathRuns, url.PathEscape(run), from)
		resp, err := c.do(ctx, http.MethodGet, path, nil)
		if err != nil {
			yield(SpoolLine{}, err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		watchdog := time.AfterFunc(3*SpoolHeartbeat, func() { cancel(ErrSpoolSilent) })
		defer watchdog.Stop()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(make([]byte, 0, 64<<10), MaxSpoolLineBytes)
		for lines.Scan() {
			watchdog.Reset(3 * SpoolHeartbeat)
			if len(lines.Bytes()) == 0 {
				continue
			}
			var line SpoolLine
			if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
				yield(SpoolLine{}, fmt.Errorf("read spool: %w", err))
				return
			}
			if !yield(line, nil) || line.End {
				return
			}
		}
		yield(SpoolLine{}, fmt.Errorf("read spool: %w", cutReason(ctx, lines.Err())))
	}
}

// cutReason says why a stream ended that should have gone on.
func cutReason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// InvokeTransport carries requests to the entrypoint: a request for /x?y
// arrives there as /x?y. It fits a reverse proxy's Transport, with streaming
// and WebSocket upgrades. The request's scheme and host don't matter.
func (c *Client) InvokeTransport() http.RoundTripper { return invokeTransport{c} }

type invokeTransport struct{ c *Client }

// RoundTrip implements [http.RoundTripper].
func (t invokeTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host = t.c.base.Scheme, t.c.base.Host
	if req.URL.RawPath != "" {
		out.URL.RawPath = PathInvoke + req.URL.RawPath
	}
	out.URL.Path = PathInvoke + req.URL.Path
	t.c.identify(out.Header)
	return t.c.tr.RoundTrip(out)
}

func (c *Client) identify(h http.Header) {
	if c.session == "" {
		return
	}
	h.Set(HeaderSession, c.session)
	h.Set(HeaderGeneration, c.generation)
}

// call makes a request with a small JSON answer, decoded into out if that is set.
func (c *Client) call(ctx context.Context, method, path string, in, out any) (int, error) {
	var body io.Reader
	if in != nil {
		var raw bytes.Buffer
		encode := json.NewEncoder(&raw)
		encode.SetEscapeHTML(false) // a run's input may be near sandboxd's bound as it is
		if err := encode.Encode(in); err != nil {
			return 0, fmt.Errorf("encode request: %w", err)
		}
		body = &raw
	}
	resp, err := c.do(ctx, method, path, body)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return resp.StatusCode, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if out == nil {
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return resp.StatusCode, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return resp.StatusCode, nil
}

// do makes a request and turns every status but 2xx into an error.
func (c *Client) do(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, body)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	c.identify(req.Header)
	resp, err := c.tr.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	p := NewProblem(resp.StatusCode, CodeInternal, "")
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil || json.Unmarshal(raw, p) != nil {
		p.Detail = fmt.Sprintf("%s %s answered %s", method, path, resp.Status)
	}
	return nil, p
}

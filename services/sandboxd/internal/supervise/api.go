package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/drive"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/entrypoint"
)

const (
	maxBindBody = 64 << 10
	// maxRunBody bounds a RunAgentInput: the whole history of a session goes in it.
	maxRunBody = 64 << 20
	// invokeReadyWait is how long an invocation waits for an entrypoint that is
	// being started again.
	invokeReadyWait = 10 * time.Second
)

// api is the HTTP API of one sandbox, whose entry and runs are nil where the runtime
// has none.
type api struct {
	*Sandbox

	// strangers says that nothing is known of who asks.
	strangers bool
}

// threshold is what is answered to anybody; refuse answers the rest.
func (a *api) threshold(refuse http.HandlerFunc) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+sandboxapi.PathHealth, a.getHealth)
	mux.HandleFunc("GET "+sandboxapi.PathReady, a.getReady)
	mux.HandleFunc("POST "+sandboxapi.PathBind, a.postBind)
	mux.HandleFunc("/", refuse)
	return mux
}

func (a *api) handler() http.Handler {
	mux := a.threshold(a.bound(func(w http.ResponseWriter, _ *http.Request) {
		sandboxapi.NewProblem(http.StatusNotFound, sandboxapi.CodeNotFound, "").Write(w)
	}))
	mux.HandleFunc("POST "+sandboxapi.PathRuns, a.bound(a.postRun))
	mux.HandleFunc("GET "+sandboxapi.PathRuns+"/{run}/spool", a.bound(a.getSpool))
	mux.HandleFunc("POST "+sandboxapi.PathRuns+"/{run}/cancel", a.bound(a.postCancel))
	invoke := a.bound(a.invoke)
	// Invocations bypass the mux, which would redirect paths that it finds unclean.
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, sandboxapi.PathInvoke+"/") {
			invoke(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// bound lets only the bound session in: an address may have been another's.
func (a *api) bound(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g := a.binding.Grant()
		switch {
		case g == nil:
			sandboxapi.NewProblem(http.StatusMisdirectedRequest, sandboxapi.CodeNotBound,
				"this sandbox belongs to no session yet").Write(w)
		case r.Header.Get(sandboxapi.HeaderSession) != g.Session,
			r.Header.Get(sandboxapi.HeaderGeneration) != strconv.FormatUint(g.Generation, 10):
			sandboxapi.NewProblem(http.StatusMisdirectedRequest, sandboxapi.CodeOtherSession,
				"this sandbox belongs to another session or generation").Write(w)
		default:
			next(w, r)
		}
	}
}

func (a *api) health() sandboxapi.Health {
	h := sandboxapi.Health{PodUID: a.cfg.PodUID, Process: a.cfg.Process, Isolation: a.cfg.Isolation, Entrypoint: sandboxapi.EntrypointNone}
	if g := a.binding.Grant(); g != nil {
		h.Bound, h.Session, h.Generation = true, g.Session, g.Generation
	}
	if a.entry != nil {
		s, _ := a.entry.Status()
		h.Entrypoint, h.Restarts, h.Reason = s.State, s.Restarts, s.Reason
		if s.State == sandboxapi.EntrypointFailed && s.Said != "" {
			h.Reason += "; the last that it said:\n" + s.Said
		}
	}
	if a.runs != nil {
		h.OpenRun = a.runs.OpenRun()
	}
	return h
}

// shown is the health as whoever asks may see it: whose the sandbox is, and what its
// agent said, is nothing to strangers.
func (a *api) shown() sandboxapi.Health {
	h := a.health()
	if a.strangers {
		h.Session, h.Generation, h.OpenRun, h.Reason = "", 0, "", ""
	}
	return h
}

func (a *api) getHealth(w http.ResponseWriter, _ *http.Request) {
	answerJSON(w, http.StatusOK, a.shown())
}

func (a *api) getReady(w http.ResponseWriter, r *http.Request) {
	wait, err := strconv.ParseUint(r.URL.Query().Get("wait"), 10, 16)
	if r.URL.Query().Get("wait") != "" && err != nil {
		sandboxapi.NewProblem(http.StatusUnprocessableEntity, sandboxapi.CodeInvalid, "wait: want seconds").Write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(time.Duration(wait)*time.Second, sandboxapi.MaxReadyWait))
	defer cancel()
	if a.entry == nil {
		answerJSON(w, http.StatusOK, a.shown())
		return
	}
	switch _, err := a.entry.WaitReady(ctx); {
	case err == nil:
		answerJSON(w, http.StatusOK, a.shown())
	case errors.Is(err, entrypoint.ErrFailed):
		sandboxapi.NewProblem(http.StatusServiceUnavailable, sandboxapi.CodeEntrypointFailed, err.Error()).Write(w)
	case errors.Is(err, entrypoint.ErrStopped):
		sandboxapi.NewProblem(http.StatusServiceUnavailable, sandboxapi.CodeStopping, err.Error()).Write(w)
	default:
		sandboxapi.NewProblem(http.StatusServiceUnavailable, sandboxapi.CodeNotReady, a.shown().Reason).Write(w)
	}
}

func (a *api) postBind(w http.ResponseWriter, r *http.Request) {
	var req sandboxapi.BindRequest
	if !read(w, r, maxBindBody, &req) {
		return
	}
	if req.Bind == "" {
		sandboxapi.NewProblem(http.StatusUnprocessableEntity, sandboxapi.CodeInvalid, "bind is empty").Write(w)
		return
	}
	switch err := a.binding.Bind(r.Context(), req.Bind); {
	case err == nil:
		answerJSON(w, http.StatusOK, a.health())
	case errors.Is(err, errBoundToAnother):
		sandboxapi.NewProblem(http.StatusConflict, sandboxapi.CodeBoundToAnother, err.Error()).Write(w)
	case errors.Is(err, ErrRefused):
		sandboxapi.NewProblem(http.StatusForbidden, sandboxapi.CodeBindRefused, err.Error()).Write(w)
	default:
		sandboxapi.NewProblem(http.StatusServiceUnavailable, sandboxapi.CodeUpstreamDown, err.Error()).Write(w)
	}
}

func (a *api) postRun(w http.ResponseWriter, r *http.Request) {
	if a.runs == nil {
		sandboxapi.NewProblem(http.StatusConflict, sandboxapi.CodeNoAdapter, "this runtime has no agent to drive").Write(w)
		return
	}
	var req sandboxapi.RunRequest
	if !read(w, r, maxRunBody, &req) {
		return
	}
	started, err := a.runs.Start(req) //nolint:contextcheck // the run outlives the request that starts it
	switch {
	case err != nil:
		a.runProblem(err).Write(w)
	case started:
		answerJSON(w, http.StatusAccepted, a.health())
	default:
		answerJSON(w, http.StatusOK, a.health())
	}
}

func (a *api) postCancel(w http.ResponseWriter, r *http.Request) {
	if a.runs == nil {
		a.runProblem(drive.ErrUnknown).Write(w)
		return
	}
	if err := a.runs.Cancel(r.PathValue("run")); err != nil {
		a.runProblem(err).Write(w)
		return
	}
	answerJSON(w, http.StatusAccepted, a.health())
}

func (a *api) getSpool(w http.ResponseWriter, r *http.Request) {
	if a.runs == nil {
		a.runProblem(drive.ErrUnknown).Write(w)
		return
	}
	from, err := strconv.ParseUint(r.URL.Query().Get("from"), 10, 63)
	if r.URL.Query().Get("from") != "" && err != nil {
		sandboxapi.NewProblem(http.StatusUnprocessableEntity, sandboxapi.CodeInvalid, "from: want a k").Write(w)
		return
	}
	s, err := a.runs.Spool(r.PathValue("run"))
	if err != nil {
		a.runProblem(err).Write(w)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	if err := flush.Flush(); err != nil {
		panic(http.ErrAbortHandler)
	}
	err = s.Follow(r.Context(), from, sandboxapi.SpoolHeartbeat, func(p []byte) error {
		if _, err := w.Write(p); err != nil {
			return err
		}
		return flush.Flush()
	})
	if err != nil {
		// The status is out; only a cut tells the reader that more was to come.
		panic(http.ErrAbortHandler)
	}
}

// runProblem gives the driver's errors their status.
func (a *api) runProblem(err error) *sandboxapi.Problem {
	for _, known := range []struct {
		is     error
		status int
		code   string
	}{
		{drive.ErrInvalid, http.StatusUnprocessableEntity, sandboxapi.CodeInvalid},
		{drive.ErrBusy, http.StatusConflict, sandboxapi.CodeRunOpen},
		{drive.ErrUnknown, http.StatusNotFound, sandboxapi.CodeNotFound},
		{drive.ErrGone, http.StatusGone, sandboxapi.CodeSpoolGone},
		{drive.ErrStopping, http.StatusServiceUnavailable, sandboxapi.CodeStopping},
	} {
		if errors.Is(err, known.is) {
			return sandboxapi.NewProblem(known.status, known.code, err.Error())
		}
	}
	return sandboxapi.NewProblem(http.StatusInternalServerError, sandboxapi.CodeInternal, err.Error())
}

// invoke passes a request on to the entrypoint, upgrades and streams included.
func (a *api) invoke(w http.ResponseWriter, r *http.Request) {
	if a.entry == nil {
		sandboxapi.NewProblem(http.StatusNotFound, sandboxapi.CodeNoEntrypoint, "this runtime serves nothing").Write(w)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), invokeReadyWait)
	inc, err := a.entry.WaitReady(ctx)
	cancel()
	if err != nil {
		sandboxapi.NewProblem(http.StatusServiceUnavailable, sandboxapi.CodeNotReady,
			fmt.Sprintf("the entrypoint isn't ready: %v", err)).Write(w)
		return
	}
	if inc.URL.Host == "" {
		sandboxapi.NewProblem(http.StatusNotFound, sandboxapi.CodeNoEntrypoint, "this agent serves nothing").Write(w)
		return
	}
	proxy := &httputil.ReverseProxy{
		Transport:     invokeTransport,
		ErrorLog:      slog.NewLogLogger(a.cfg.Log.Handler(), slog.LevelDebug), // as often as the agent likes
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.Host = inc.URL.Scheme, inc.URL.Host, inc.URL.Host
			p.Out.URL.Path = strings.TrimPrefix(p.In.URL.Path, sandboxapi.PathInvoke)
			p.Out.URL.RawPath = strings.TrimPrefix(p.In.URL.RawPath, sandboxapi.PathInvoke)
			p.Out.URL.RawQuery = p.In.URL.RawQuery
			stripClaims(p.Out.Header)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			sandboxapi.NewProblem(http.StatusBadGateway, sandboxapi.CodeEntrypointFailed, err.Error()).Write(w)
		},
	}
	proxy.ServeHTTP(w, r)
}

// invokeTransport keeps no connections: the entrypoint may be another process
// by the next request.
var invokeTransport = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

// read decodes a bounded JSON body, or answers with what is wrong with it.
func read(w http.ResponseWriter, r *http.Request, limit int64, into any) bool {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		sandboxapi.NewProblem(http.StatusRequestEntityTooLarge, sandboxapi.CodeTooLarge, err.Error()).Write(w)
		return false
	case err != nil:
		panic(http.ErrAbortHandler) // the client is gone
	}
	if err := json.Unmarshal(raw, into); err != nil {
		sandboxapi.NewProblem(http.StatusUnprocessableEntity, sandboxapi.CodeInvalid, err.Error()).Write(w)
		return false
	}
	return true
}

// answerJSON answers with what JSON can always hold.
func answerJSON(w http.ResponseWriter, status int, body any) {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// The client may be gone; there is nobody left to tell.
	_, _ = w.Write(raw)
}

package supervise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/drive"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/throttle"
)

const (
	// maxBatch bounds what an agent pushes at once, in bytes, and maxEvents in events; an
	// event is bounded by its run. Sandboxd has to hold all of it, and each of many small
	// events takes several times its size.
	maxBatch  = 24 << 20
	maxEvents = 10_000
	// batchTimeout is how long a batch may take to arrive: others wait for it.
	batchTimeout = 30 * time.Second
	// maxWait bounds a long poll, defaultWait is its length where none is asked for.
	maxWait     = 60 * time.Second
	defaultWait = 30 * time.Second
)

// inbox is what sandboxd itself answers to an agent of the adapter push; all the rest
// goes to Holdfast. What an agent pushes is spooled here, where its numbers are given,
// like what agents of other adapters say: so that it is told once, whoever asks again.
//
//	GET  /v1/agent/input?wait=       the RunAgentInput of the open run, or 204
//	POST /v1/agent/events            {runId, k, events}: events of that run from number k on
//	GET  /v1/agent/runs/{run}?wait=  whether a run is still wanted: {"open": true}
type inbox struct {
	push     *drive.Push
	throttle *throttle.Throttle
	// pushing is the one batch that is being read. They have an order anyway, and sandboxd
	// isn't bounded by the agent's limits everywhere: what an agent may have it hold at
	// once has to be little.
	pushing chan struct{}
}

func newInbox(push *drive.Push, relay *relay) http.Handler {
	i := &inbox{push: push, throttle: relay.throttle, pushing: make(chan struct{}, 1)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+agentPrefix+"input", i.bounded(i.getInput))
	mux.HandleFunc("POST "+agentPrefix+"events", i.bounded(i.postEvents))
	mux.HandleFunc("GET "+agentPrefix+"runs/{run}", i.bounded(i.getRun))
	mux.Handle("/", relay)
	return mux
}

// bounded has what is answered here count among what an agent may ask at all.
func (i *inbox) bounded(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		leave, ok := i.throttle.Enter(w)
		if !ok {
			return
		}
		defer leave()
		next(w, r)
	}
}

// waiting reads how long a request is to wait, by its ?wait=; where that is no time, it
// has answered so.
func waiting(w http.ResponseWriter, r *http.Request) (time.Duration, bool) {
	wait := defaultWait
	if asked := r.URL.Query().Get("wait"); asked != "" {
		seconds, err := strconv.ParseUint(asked, 10, 16)
		if err != nil {
			sandboxapi.NewProblem(http.StatusUnprocessableEntity, sandboxapi.CodeInvalid, "wait: want seconds").Write(w)
			return 0, false
		}
		wait = min(time.Duration(seconds)*time.Second, maxWait)
	}
	return wait, true
}

func (i *inbox) getInput(w http.ResponseWriter, r *http.Request) {
	wait, ok := waiting(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	input := i.push.Input(ctx)
	if input == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(input) // an agent that is gone asks again
}

func (i *inbox) getRun(w http.ResponseWriter, r *http.Request) {
	wait, ok := waiting(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	answerJSON(w, http.StatusOK, map[string]bool{"open": i.push.Await(ctx, r.PathValue("run"))})
}

// batch is what an agent pushes, and taken what it is answered.
type (
	batch struct {
		RunID  string `json:"runId"`
		K      uint64 `json:"k"`
		Events some   `json:"events"`
	}
	taken struct {
		LastK uint64 `json:"lastK"`
	}
)

// some are at most maxEvents events.
type some []json.RawMessage

var errTooMany = fmt.Errorf("events: at most %d in a batch", maxEvents)

// UnmarshalJSON counts while it reads, since what is too much is not to be held first.
func (s *some) UnmarshalJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	if opening, err := d.Token(); err != nil || opening != json.Delim('[') {
		return errors.Join(errors.New("events: want an array"), err)
	}
	for d.More() {
		if len(*s) == maxEvents {
			return errTooMany
		}
		var event json.RawMessage
		if err := d.Decode(&event); err != nil {
			return err
		}
		*s = append(*s, event)
	}
	return nil
}

func (i *inbox) postEvents(w http.ResponseWriter, r *http.Request) {
	select {
	case i.pushing <- struct{}{}:
		defer func() { <-i.pushing }()
	case <-r.Context().Done():
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(batchTimeout)) // the server's can
	var b batch
	if !read(w, r, maxBatch, &b) {
		return
	}
	if b.RunID == "" || b.K == 0 || len(b.Events) == 0 {
		sandboxapi.NewProblem(http.StatusUnprocessableEntity, sandboxapi.CodeInvalid,
			"want runId, k (the number of the first event in its run, from 1) and events").Write(w)
		return
	}
	last, err := i.push.Events(b.RunID, b.K, b.Events)
	switch {
	case err == nil:
		answerJSON(w, http.StatusAccepted, taken{LastK: last})
	case errors.Is(err, drive.ErrRunOver):
		sandboxapi.NewProblem(http.StatusConflict, sandboxapi.CodeRunOver, err.Error()).Write(w)
	case errors.Is(err, drive.ErrGap):
		sandboxapi.NewProblem(http.StatusConflict, sandboxapi.CodeGap, err.Error()).Write(w)
	default: // the run failed; the reason is the agent's own to read
		sandboxapi.NewProblem(http.StatusUnprocessableEntity, sandboxapi.CodeRunFailed, err.Error()).Write(w)
	}
}

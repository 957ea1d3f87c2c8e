package problem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

func TestFrom(t *testing.T) {
	t.Parallel()
	_, tooLarge := events.Envelope{
		Command: "c", Service: "session", Actor: events.Actor{Kind: "person", ID: "a"}, N: 1, Time: time.Now(),
		Events: []events.Record{{Type: "x", V: 1, Data: json.RawMessage(`"` + strings.Repeat("x", events.MaxEnvelopeBytes) + `"`)}},
	}.Encode()
	_, badTenant := events.SessionSubject("a.b", "s-1")
	for name, tc := range map[string]struct {
		err    error
		code   api.Code
		status int
	}{
		"a problem":         {problem.New(api.CodeSessionEnded, "x"), api.CodeSessionEnded, 409},
		"the api's error":   {api.Errf(api.CodeNotFound, "no"), api.CodeNotFound, 404},
		"outcome unknown":   {&eventlog.OutcomeUnknownError{Err: context.DeadlineExceeded}, api.CodeOutcomeUnknown, 503},
		"unknown type":      {&events.UnknownTypeError{Type: "x.y", V: 9}, api.CodeUnknownEventType, 503},
		"foreign type":      {&events.ForeignTypeError{Type: "x.y"}, api.CodeLogFaulted, 503},
		"broken chain":      {&eventlog.ChainError{Subject: "ev.a.s.b"}, api.CodeLogFaulted, 503},
		"name":              {badTenant, api.CodeInvalidRequest, 400},
		"envelope":          {tooLarge, api.CodePayloadTooLarge, 413},
		"deadline":          {context.DeadlineExceeded, api.CodeOutcomeUnknown, 503},
		"cancelled":         {context.Canceled, api.CodeOutcomeUnknown, 503},
		"nobody answers":    {nats.ErrNoResponders, api.CodeNotReady, 503},
		"not connected":     {nats.ErrConnectionClosed, api.CodeNotReady, 503},
		"no stream":         {jetstream.ErrStreamNotFound, api.CodeNotReady, 503},
		"not installed":     {eventlog.ErrNoGenesis, api.CodeNotReady, 503},
		"conflict, retried": {&eventlog.ConflictError{Subject: "x"}, api.CodeInternal, 500},
		"anything":          {errors.New("password is hunter2"), api.CodeInternal, 500},
	} {
		p := problem.From(fmt.Errorf("somewhere: %w", tc.err))
		if p.Code != tc.code || p.Status() != tc.status {
			t.Errorf("%s: %s %d, want %s %d", name, p.Code, p.Status(), tc.code, tc.status)
		}
		if !errors.Is(p, tc.err) {
			t.Errorf("%s: the cause is lost", name)
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), "hunter2") || strings.Contains(string(b), "somewhere") {
			t.Errorf("%s: the client would read %s", name, b)
		}
	}
	if problem.From(nil) != nil {
		t.Error("nil became a problem")
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	p := problem.Newf(api.CodeIllegalTransition, "it is %s", "suspending").In("suspending", "resume", "terminate")
	p.Winner = json.RawMessage(`{"by":"user:bob"}`)
	p = p.At("/runtime", "property is missing")
	p.RetryAfter = time.Second
	got, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"type":"urn:holdfast:problem:illegal-transition","title":"Illegal transition","status":409,` +
		`"detail":"it is suspending","code":"illegal-transition","errors":[{"detail":"property is missing","pointer":"/runtime"}],` +
		`"phase":"suspending","allowed":["resume","terminate"],"winner":{"by":"user:bob"}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var back problem.Error
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatal(err)
	}
	back.RetryAfter = p.RetryAfter
	if !reflect.DeepEqual(fields(&back), fields(p)) {
		t.Errorf("%+v, want %+v", back, *p)
	}
	if err := json.Unmarshal([]byte(`[]`), &back); err == nil {
		t.Error("an array was read as a problem")
	}
}

// fields are what a problem says.
func fields(p *problem.Error) []any {
	return []any{p.Code, p.Detail, p.Phase, p.Allowed, string(p.Winner), p.Errors, p.RetryAfter, p.Status(), p.Title()}
}

// A code of a later version keeps the status and title that it came with.
func TestUnknownCode(t *testing.T) {
	t.Parallel()
	var p problem.Error
	if err := json.Unmarshal([]byte(`{"code":"from-the-future","title":"From the future","status":418}`), &p); err != nil {
		t.Fatal(err)
	}
	if p.Status() != 418 || p.Title() != "From the future" || p.API().Problem.Status != 418 {
		t.Errorf("%d %q", p.Status(), p.Title())
	}
	if err := json.Unmarshal([]byte(`{"code":"x","status":200}`), &p); err != nil || p.Status() != 500 {
		t.Errorf("a problem of status %d, %v", p.Status(), err)
	}
}

func TestIs(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("decide: %w", problem.New(api.CodeRunBusy, "one is open"))
	if !errors.Is(err, problem.New(api.CodeRunBusy, "")) || errors.Is(err, problem.New(api.CodeNotFound, "")) {
		t.Error("errors.Is doesn't compare codes")
	}
}

func TestAPI(t *testing.T) {
	t.Parallel()
	p := problem.New(api.CodeAlreadyDecided, "bob was first")
	p.Winner = json.RawMessage(`{"by":"user:bob","at":"2026-01-02T15:05:05Z","decision":"approve"}`)
	p.RetryAfter = 2 * time.Second
	e := p.API()
	if e.Problem.Winner.By != "user:bob" || e.Problem.Code != p.Code || e.Problem.Status != 409 || e.RetryAfter != p.RetryAfter {
		t.Errorf("%+v", e)
	}
	back := problem.From(fmt.Errorf("client: %w", e))
	if back.Code != p.Code || back.Detail != p.Detail || string(back.Winner) == "" || back.RetryAfter != p.RetryAfter {
		t.Errorf("and back: %+v", back)
	}
	p.Winner = json.RawMessage(`"nobody"`)
	if e := p.API(); e.Cause == nil {
		t.Error("a winner that can't be read is not in the log's error")
	}
}

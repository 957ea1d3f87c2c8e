package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
)

func TestErrorsAreTheirCodes(t *testing.T) {
	err := fmt.Errorf("create: %w", api.Errf(api.CodeQuotaExceeded, "10 sessions are live"))
	if !errors.Is(err, api.Err(api.CodeQuotaExceeded)) || errors.Is(err, api.Err(api.CodeInternal)) {
		t.Errorf("errors.Is goes by something else than the code: %v", err)
	}
	if api.CodeOf(err) != api.CodeQuotaExceeded || api.CodeOf(io.EOF) != "" || api.CodeOf(nil) != "" {
		t.Error("CodeOf")
	}
	if cause := api.Errf(api.CodeInternal, "read: %w", io.EOF); !errors.Is(cause, io.EOF) {
		t.Error("the cause of %w is lost")
	}
}

func TestWrite(t *testing.T) {
	failure := api.Errf(api.CodeQuotaExceeded, "10 sessions are live")
	failure.RetryAfter = 1500 * time.Millisecond
	failure.Cause = errors.New("secret")
	w := httptest.NewRecorder()
	if err := failure.Write(w); err != nil {
		t.Fatal(err)
	}
	if w.Code != 429 || w.Header().Get("Content-Type") != api.ProblemContentType || w.Header().Get("Retry-After") != "2" {
		t.Errorf("got %d, %v", w.Code, w.Header())
	}
	if strings.Contains(w.Body.String(), "secret") {
		t.Error("the cause was sent")
	}
	var problem api.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
		t.Fatal(err)
	}
	if problem.Type != "urn:holdfast:problem:quota-exceeded" || problem.Status != 429 || problem.Title != "Quota exceeded" || problem.Detail != "10 sessions are live" {
		t.Errorf("got %+v", problem)
	}
}

func TestAnUnknownCodeIsAnInternalError(t *testing.T) {
	if c := api.Code("of-tomorrow"); c.Known() || c.Status() != 500 || c.Title() != "Internal error" {
		t.Errorf("got %v %d %s", c.Known(), c.Status(), c.Title())
	}
}

func TestEncodeWSStartsWithTheType(t *testing.T) {
	for message, want := range map[api.WSMessage]string{
		&api.WSPing{}:              `{"type":"ping"}`,
		&api.WSPong{Ref: "1"}:      `{"type":"pong","ref":"1"}`,
		&api.WSSubscribe{Ref: "1"}: `{"type":"subscribe","ref":"1"}`,
	} {
		if got, err := api.EncodeWS(message); err != nil || string(got) != want {
			t.Errorf("got %s, %v; want %s", got, err, want)
		}
	}
	if _, err := api.DecodeWS([]byte(`{"type":"of-tomorrow"}`)); !errors.Is(err, api.ErrUnknownWSType) {
		t.Errorf("got %v", err)
	}
	if !api.CloseCode(4499).Reconnect() || api.CloseCode(4500).Reconnect() || api.CloseCode(4999).Reconnect() || !api.CloseCode(1006).Reconnect() {
		t.Error("the range does not say whether to come back")
	}
}

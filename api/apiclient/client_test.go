package apiclient_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/api/apispec"
)

const session = "s-k3v5d2m7q4x6z2b7c5aa"

// serve answers every request by the handler, after it has been held to the
// document: what the client sends must fit.
func serve(t *testing.T, operationID string, path map[string]string, answer http.HandlerFunc) *apiclient.ClientWithResponses {
	t.Helper()
	op, ok := apispec.ByID(operationID)
	if !ok {
		t.Fatalf("no operation %s", operationID)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := op.Validate(r, path); err != nil {
			t.Errorf("the client's own request: %v", err)
		}
		answer(w, r)
	}))
	t.Cleanup(server.Close)
	client, err := apiclient.New(apiclient.Config{URL: server.URL, Token: "token-of-alice", Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestRequestsSayWhoAndNothingElse(t *testing.T) {
	client := serve(t, "listSessions", nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer token-of-alice" || r.Header.Get(apiclient.HeaderTenant) != "acme" {
			t.Errorf("got %v", r.Header)
		}
		if r.URL.RawQuery != "phase=ready&phase=ended" {
			t.Errorf("query %q: what was not asked must not be sent", r.URL.RawQuery)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"items":[],"next":"abc"}`)
	})
	answer, err := client.ListSessionsWithResponse(context.Background(), &api.ListSessionsParams{
		Phase: &[]api.SessionPhase{api.SessionPhaseReady, api.SessionPhaseEnded},
	})
	if err != nil || answer.JSON200 == nil || answer.JSON200.Next != "abc" {
		t.Fatalf("got %+v, %v", answer, err)
	}
}

func TestWritesCarryTheirKey(t *testing.T) {
	client := serve(t, "createSession", nil, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") != "k1" || r.Header.Get("Prefer") != "wait=30" {
			t.Errorf("got %v", r.Header)
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || string(body) != `{"runtime":"coder"}` {
			t.Errorf("body %s, %v", body, err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"id":"`+session+`"}`)
	})
	answer, err := client.CreateSessionWithResponse(context.Background(),
		&api.CreateSessionParams{IdempotencyKey: new("k1"), Prefer: new("wait=30")}, api.CreateSession{Runtime: "coder"})
	if err != nil || answer.JSON201 == nil || answer.JSON201.ID != session {
		t.Fatalf("got %+v, %v", answer, err)
	}
}

func TestRefusalsAreErrors(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		media  string
		body   string
		want   api.Code
	}{
		{"ours", 409, "application/problem+json", `{"type":"urn:holdfast:problem:illegal-transition","title":"Illegal transition","status":409,"code":"illegal-transition","phase":"suspending","allowed":["resume"]}`, api.CodeIllegalTransition},
		{"charset", 409, "application/problem+json; charset=utf-8", `{"status":409,"code":"run-busy"}`, api.CodeRunBusy},
		{"of tomorrow", 418, "application/problem+json", `{"status":418,"code":"teapot"}`, "teapot"},
		{"a proxy's page", 502, "text/html", `<h1>Bad Gateway</h1>`, api.CodeNotReady},
		{"no type", 404, "", `nope`, api.CodeNotFound},
		{"broken", 500, "application/problem+json", `{"status":`, api.CodeInternal},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := serve(t, "getSession", map[string]string{"id": session}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header()["Content-Type"] = []string{test.media}
				w.Header().Set("Retry-After", "7")
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			_, err := client.GetSessionWithResponse(context.Background(), session, nil)
			failure, ok := errors.AsType[*api.Error](err)
			if !ok || failure.Problem.Code != test.want || failure.Problem.Status != test.status || failure.RetryAfter != 7*time.Second {
				t.Fatalf("got %#v", err)
			}
		})
	}
}

func TestReadyzIsAnAnswer(t *testing.T) {
	client := serve(t, "readyz", nil, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"ready":false,"parts":[]}`)
	})
	answer, err := client.ReadyzWithResponse(context.Background())
	if err != nil || answer.StatusCode() != http.StatusServiceUnavailable {
		t.Fatalf("got %+v, %v", answer, err)
	}
}

func TestFrames(t *testing.T) {
	frame := func(cursor string) string {
		return string(api.AppendSSE(nil, cursor, "control", []byte(`{"cursor":"`+cursor+`","time":"2026-01-02T15:04:05Z","kind":"control","data":{"type":"heartbeat"}}`)))
	}
	whole := frame("c1") + ": beat\n\n" + frame("c2")
	for _, test := range []struct {
		name, stream string
		want         int
		err          error
	}{
		{"whole", whole, 2, nil},
		{"cut", whole[:len(whole)-1], 1, io.ErrUnexpectedEOF},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := serve(t, "streamSession", map[string]string{"id": session}, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("after") != "c0" {
					t.Errorf("query %s", r.URL.RawQuery)
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, test.stream)
			})
			resp, err := client.StreamSession(context.Background(), session, &api.StreamSessionParams{After: new("c0")})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			var last error
			for f, err := range apiclient.Frames(resp.Body) {
				if last = err; err == nil {
					got = append(got, f.Cursor)
				}
			}
			if len(got) != test.want || !errors.Is(last, test.err) {
				t.Errorf("got %v, %v", got, last)
			}
		})
	}
}

func TestFramesCloseTheBody(t *testing.T) {
	body := &closing{Reader: strings.NewReader("data: {}\n\ndata: {}\n\n")}
	for range apiclient.Frames(body) {
		break
	}
	if !body.closed {
		t.Error("left open after a break")
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestNewRefusesWhatIsNoServer(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:7070", "ftp://x", "http://", "://"} {
		if _, err := apiclient.New(apiclient.Config{URL: bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

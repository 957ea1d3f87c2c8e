package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

var quiet = slog.New(slog.DiscardHandler)

var alice = events.Actor{Kind: events.ActorPerson, ID: "alice"}

// pair starts a server of the session service and a client of the gateway, each as
// its own NATS user.
func pair(t *testing.T, limit int, handlers map[string]Handler) (*Server, *Client) {
	t.Helper()
	s := brokertest.Start(t)
	server, err := serve(s.NC(broker.UserSession), events.ServiceSession, handlers, quiet, limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("stop: %v", err)
		}
	})
	return server, &Client{NC: s.NC(broker.UserGateway)}
}

func wantCode(t *testing.T, err error, code api.Code) *problem.Error {
	t.Helper()
	var p *problem.Error
	if !errors.As(err, &p) || p.Code != code {
		t.Fatalf("%v, want problem %s", err, code)
	}
	return p
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	var got Request
	var gotTenant string
	_, c := pair(t, 8, map[string]Handler{
		"send": func(ctx context.Context, tenant string, req Request) (Reply, error) {
			got, gotTenant = req, tenant
			if at, ok := ctx.Deadline(); !ok || !at.Equal(req.Deadline) {
				t.Errorf("handler's deadline is %s, want %s", at, req.Deadline)
			}
			return Result(7, 42, true, map[string]string{"id": "m-1"})
		},
		"refuse": func(context.Context, string, Request) (Reply, error) {
			p := problem.New(api.CodeAlreadyDecided, "bob was first")
			p.Winner, p.Phase, p.Allowed = json.RawMessage(`{"by":"user:bob"}`), "ready", []string{"resume"}
			p.RetryAfter = 1500 * time.Millisecond
			return Reply{N: 3, Seq: 9}, fmt.Errorf("decide: %w", p)
		},
	})
	want := Request{
		CommandID: "cmd-1", Actor: alice, Roles: []string{"developer"}, Groups: []string{"search"},
		Session: "s-1", Deadline: time.Now().Add(5 * time.Second).UTC(), Trace: "00-1-1-00", Body: json.RawMessage(`{"text":"hi"}`),
	}
	reply, err := c.Do(t.Context(), events.ServiceSession, "acme", "send", want)
	if err != nil {
		t.Fatal(err)
	}
	if reply.N != 7 || reply.Seq != 42 || !reply.Repeated || string(reply.Result) != `{"id":"m-1"}` {
		t.Errorf("reply: %+v", reply)
	}
	if gotTenant != "acme" || !reflect.DeepEqual(got, want) {
		t.Errorf("tenant %q, request %+v, want %+v", gotTenant, got, want)
	}

	reply, err = c.Do(t.Context(), events.ServiceSession, "acme", "refuse", Request{Actor: alice})
	p := wantCode(t, err, api.CodeAlreadyDecided)
	if reply.N != 3 || reply.Seq != 9 {
		t.Errorf("beside the problem: %+v", reply)
	}
	if p.Status() != 409 || p.Detail != "bob was first" || p.Phase != "ready" || !reflect.DeepEqual(p.Allowed, []string{"resume"}) ||
		string(p.Winner) != `{"by":"user:bob"}` || p.RetryAfter != 1500*time.Millisecond {
		t.Errorf("problem: %+v", p)
	}
}

// Who is there can be asked without a command: readyz does.
func TestPing(t *testing.T) {
	t.Parallel()
	_, c := pair(t, 8, map[string]Handler{})
	if _, err := c.NC.Request("$SRV.PING.holdfast-session", nil, 10*time.Second); err != nil {
		t.Error(err)
	}
	if _, err := c.NC.Request("$SRV.PING.holdfast-policy", nil, 10*time.Second); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("nobody is there, and yet: %v", err)
	}
}

func TestWhatErrorsBecome(t *testing.T) {
	t.Parallel()
	var logged bytes.Buffer
	var mu sync.Mutex
	log := slog.New(slog.NewTextHandler(lockedWriter{&mu, &logged}, nil))
	s := brokertest.Start(t)
	fail := func(err error) Handler {
		return func(context.Context, string, Request) (Reply, error) { return Reply{}, err }
	}
	server, err := Serve(s.NC(broker.UserSession), events.ServiceSession, map[string]Handler{
		"unknown": fail(&eventlog.OutcomeUnknownError{Subject: "ev.a.s.b", Command: "c", Err: errors.New("secret")}),
		"plain":   fail(errors.New("secret password")),
		"panics":  func(context.Context, string, Request) (Reply, error) { panic("secret state") },
		"late": func(ctx context.Context, _ string, _ Request) (Reply, error) {
			<-ctx.Done()
			return Reply{}, ctx.Err()
		},
		"huge": func(context.Context, string, Request) (Reply, error) {
			return Result(5, 6, false, strings.Repeat("x", MaxBodyBytes))
		},
	}, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop(context.Background()) })
	c := &Client{NC: s.NC(broker.UserGateway)}
	for verb, code := range map[string]api.Code{
		"unknown": api.CodeOutcomeUnknown, "plain": api.CodeInternal, "panics": api.CodeInternal,
		"late": api.CodeOutcomeUnknown, "huge": api.CodeInternal,
	} {
		req := Request{Actor: alice}
		if verb == "late" { // only this one is to run out of time
			req.Deadline = time.Now().Add(200 * time.Millisecond)
		}
		reply, err := c.Do(t.Context(), events.ServiceSession, "acme", verb, req)
		p := wantCode(t, err, code)
		if strings.Contains(p.Error(), "secret") {
			t.Errorf("%s tells the client %q", verb, p)
		}
		if verb == "huge" && (reply.N != 5 || reply.Seq != 6) {
			t.Errorf("huge: %+v", reply)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, text := range []string{"secret password", "secret state", "command_test.go"} {
		if !strings.Contains(logged.String(), text) {
			t.Errorf("the log doesn't say %q", text)
		}
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

// Whatever is sent, the answer is a typed problem and no handler runs.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	_, c := pair(t, 8, map[string]Handler{
		"send": func(context.Context, string, Request) (Reply, error) {
			t.Error("a handler ran")
			return Reply{}, nil
		},
	})
	const rest = `"actor":{"kind":"person","id":"alice"},"deadline":"2999-01-01T00:00:00Z"`
	for name, tc := range map[string]struct {
		subject, body string
		code          api.Code
	}{
		"empty":               {body: "", code: api.CodeInvalidRequest},
		"not json":            {body: "hello", code: api.CodeInvalidRequest},
		"an array":            {body: "[]", code: api.CodeInvalidRequest},
		"null":                {body: "null", code: api.CodeInvalidRequest},
		"two values":          {body: `{"commandId":"c",` + rest + `}{}`, code: api.CodeInvalidRequest},
		"unknown field":       {body: `{"commandId":"c","admin":true,` + rest + `}`, code: api.CodeInvalidRequest},
		"wrong type":          {body: `{"commandId":1,` + rest + `}`, code: api.CodeInvalidRequest},
		"no command id":       {body: `{` + rest + `}`, code: api.CodeInvalidRequest},
		"long command id":     {body: `{"commandId":"` + strings.Repeat("c", 201) + `",` + rest + `}`, code: api.CodeInvalidRequest},
		"no actor":            {body: `{"commandId":"c","deadline":"2999-01-01T00:00:00Z"}`, code: api.CodeInvalidRequest},
		"no deadline":         {body: `{"commandId":"c","actor":{"kind":"person","id":"alice"}}`, code: api.CodeInvalidRequest},
		"session not a token": {body: `{"commandId":"c","session":"a.b",` + rest + `}`, code: api.CodeInvalidRequest},
		"tenant not a token":  {subject: "cmd.session.ACME.send", body: `{"commandId":"c",` + rest + `}`, code: api.CodeInvalidRequest},
		"deadline passed":     {body: `{"commandId":"c","actor":{"kind":"person","id":"a"},"deadline":"2001-01-01T00:00:00Z"}`, code: api.CodeNotReady},
		"too large":           {body: `{"body":"` + strings.Repeat("x", MaxMessageBytes) + `"}`, code: api.CodePayloadTooLarge},
	} {
		subject := tc.subject
		if subject == "" {
			subject = "cmd.session.acme.send"
		}
		m, err := c.NC.Request(subject, []byte(tc.body), 10*time.Second)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		reply, err := decodeReply(m.Data, nil)
		if err != nil || reply.Problem == nil || reply.Problem.Code != tc.code {
			t.Errorf("%s: %+v, %v; want %s", name, reply.Problem, err, tc.code)
		}
	}
}

func TestClientRefusesWhatItCannotSend(t *testing.T) {
	t.Parallel()
	_, c := pair(t, 8, map[string]Handler{})
	ctx := t.Context()
	do := func(tenant string, req Request) error {
		_, err := c.Do(ctx, events.ServiceSession, tenant, "send", req)
		return err
	}
	wantCode(t, do("a.b", Request{Actor: alice}), api.CodeInvalidRequest)
	wantCode(t, do("acme", Request{}), api.CodeInvalidRequest)
	wantCode(t, do("acme", Request{Actor: alice, Body: json.RawMessage("{")}), api.CodeInvalidRequest)
	big, err := json.Marshal(strings.Repeat("x", MaxBodyBytes))
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, do("acme", Request{Actor: alice, Body: big}), api.CodePayloadTooLarge)
	if p := wantCode(t, do("acme", Request{Actor: alice}), api.CodeNotReady); p.RetryAfter <= 0 || !errors.Is(p, nats.ErrNoResponders) {
		t.Errorf("nobody serves it: %+v", p)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = c.Do(cancelled, events.ServiceSession, "acme", "send", Request{Actor: alice})
	wantCode(t, err, api.CodeNotReady)
	c.NC.Close()
	wantCode(t, do("acme", Request{Actor: alice}), api.CodeNotReady)
}

// A service that took a command and doesn't answer leaves its outcome unknown.
func TestNoAnswerIsOutcomeUnknown(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	_, c := pair(t, 8, map[string]Handler{
		"send": func(context.Context, string, Request) (Reply, error) { <-release; return Reply{}, nil },
	})
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := c.Do(ctx, events.ServiceSession, "acme", "send", Request{Actor: alice})
	wantCode(t, err, api.CodeOutcomeUnknown)
}

// The server takes as many as it may at a time and refuses the next at once.
func TestFullServerRefuses(t *testing.T) {
	t.Parallel()
	const limit = 3
	began, release := make(chan struct{}), make(chan struct{})
	_, c := pair(t, limit, map[string]Handler{
		"send": func(context.Context, string, Request) (Reply, error) {
			began <- struct{}{}
			<-release
			return Reply{N: 1}, nil
		},
	})
	var wg sync.WaitGroup
	for range limit {
		wg.Go(func() {
			if _, err := c.Do(t.Context(), events.ServiceSession, "acme", "send", Request{Actor: alice}); err != nil {
				t.Errorf("taken and not done: %v", err)
			}
		})
		<-began
	}
	_, err := c.Do(t.Context(), events.ServiceSession, "acme", "send", Request{Actor: alice})
	if p := wantCode(t, err, api.CodeNotReady); p.RetryAfter <= 0 {
		t.Error("no advice when to come back")
	}
	close(release)
	wg.Wait()
}

// Stop answers what was taken, refuses nothing of it, and can be called again.
func TestStopDrains(t *testing.T) {
	t.Parallel()
	const n = 20
	began, release := make(chan struct{}, n), make(chan struct{})
	server, c := pair(t, n, map[string]Handler{
		"send": func(context.Context, string, Request) (Reply, error) {
			began <- struct{}{}
			<-release
			return Reply{N: 1}, nil
		},
	})
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := c.Do(t.Context(), events.ServiceSession, "acme", "send", Request{Actor: alice}); err != nil {
				t.Errorf("taken and not done: %v", err)
			}
		})
	}
	for range n {
		<-began
	}
	stopped := make(chan error, 2)
	for range 2 {
		go func() { stopped <- server.Stop(context.Background()) }()
	}
	brokertest.Eventually(t, 10*time.Second, "nobody takes commands", func() bool {
		_, err := c.Do(t.Context(), events.ServiceSession, "acme", "send", Request{Actor: alice})
		return errors.Is(err, nats.ErrNoResponders)
	})
	select {
	case <-stopped:
		t.Error("stopped with commands under way")
	default:
	}
	close(release)
	for range 2 {
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

// When Stop's time is over, handlers are cancelled rather than waited for.
func TestStopCancels(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	server, c := pair(t, 1, map[string]Handler{
		"send": func(ctx context.Context, _ string, _ Request) (Reply, error) {
			close(began)
			<-ctx.Done()
			return Reply{}, ctx.Err()
		},
	})
	got := make(chan error, 1)
	go func() {
		_, err := c.Do(t.Context(), events.ServiceSession, "acme", "send", Request{Actor: alice})
		got <- err
	}()
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		t.Error(err)
	}
	wantCode(t, <-got, api.CodeOutcomeUnknown)
}

// A request whose reply would go to a subject of the log is not run at all: the
// service may answer where its client may not publish.
func TestReplyOnlyToInboxes(t *testing.T) {
	t.Parallel()
	ran := make(chan string, 2)
	_, c := pair(t, 8, map[string]Handler{
		"send": func(_ context.Context, _ string, req Request) (Reply, error) {
			ran <- req.CommandID
			return Reply{}, nil
		},
	})
	body := func(id string) []byte {
		b, err := json.Marshal(Request{CommandID: id, Actor: alice, Deadline: time.Now().Add(time.Minute)})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if err := c.NC.PublishRequest("cmd.session.acme.send", "ev.acme.s.s-1", body("evil")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.NC.Request("cmd.session.acme.send", body("good"), 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if id := <-ran; id != "good" {
		t.Errorf("%s ran", id)
	}
}

func TestDecode(t *testing.T) {
	t.Parallel()
	type send struct {
		Text string `json:"text"`
		To   struct {
			N int `json:"n"`
		} `json:"to"`
	}
	got, err := Decode[send](Request{Body: json.RawMessage(`{"text":"hi","to":{"n":3}}`)})
	if err != nil || got.Text != "hi" || got.To.N != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	for body, pointer := range map[string]string{
		``: "", `{"text":"a","more":1}`: "", `{"text":1}`: "/text", `{"to":{"n":"x"}}`: "/to/n", `{} {}`: "", `[`: "",
	} {
		_, err := Decode[send](Request{Body: json.RawMessage(body)})
		if p := wantCode(t, err, api.CodeInvalidRequest); len(p.Errors) != 1 || p.Errors[0].Pointer != pointer {
			t.Errorf("%s: %+v, want the pointer %q", body, p.Errors, pointer)
		}
	}
}

func TestServeLeavesNothingBehind(t *testing.T) {
	s := brokertest.Start(t)
	nc := s.NC(broker.UserSession)
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	if _, err := Serve(nc, events.ServiceSession, map[string]Handler{"a.b": nil}, quiet); err == nil {
		t.Error("a verb of two tokens was taken")
	}
	server, err := Serve(nc, events.ServiceSession, map[string]Handler{
		"send": func(context.Context, string, Request) (Reply, error) { return Reply{}, nil },
	}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"commandId":"c","actor":{"kind":"person","id":"a"},"deadline":"2999-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"commandId":"c"} {}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var req Request
		if err := decodeStrictly(b, &req); err != nil {
			if p := invalidBody(err); p.Status() != 400 {
				t.Errorf("%v became %d", err, p.Status())
			}
			return
		}
		if req.Validate() != nil {
			return
		}
		// What is accepted survives being passed on.
		again, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		var back Request
		if err := decodeStrictly(again, &back); err != nil {
			t.Errorf("%s: %v", again, err)
		}
	})
}

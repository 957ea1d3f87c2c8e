package command

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
	"github.com/holdfast-io/holdfast/services/internal/broker"
	"github.com/holdfast-io/holdfast/services/internal/broker/brokertest"
	"github.com/holdfast-io/holdfast/services/internal/problem"
)

// said is a JSON string of n bytes.
func said(n int) json.RawMessage { return json.RawMessage(`"` + strings.Repeat("x", n-2) + `"`) }

// A body and an answer of any size up to the limit arrive whole, and what a large
// request says besides stays with it.
func TestLargeRoundTrip(t *testing.T) {
	t.Parallel()
	_, c := pair(t, 8, map[string]Handler{
		"echo": func(_ context.Context, tenant string, req Request) (Reply, error) {
			if tenant != "acme" || req.Session != "s-1" || req.Large != nil || len(req.Roles) != 1 {
				t.Errorf("tenant %s, request %+v", tenant, req)
			}
			return Reply{N: 7, Seq: 42, Repeated: true, Result: req.Body}, nil
		},
		"refuse": func(_ context.Context, _ string, req Request) (Reply, error) {
			p := problem.New(api.CodeAlreadyDecided, "bob was first")
			p.Winner = req.Body
			return Reply{N: 3}, p
		},
	})
	for _, n := range []int{MaxMessageBytes - 1000, MaxMessageBytes - 1, MaxMessageBytes, MaxMessageBytes + 1, 1 << 20, 10 << 20, MaxBodyBytes - 200} {
		want := said(n)
		req := Request{CommandID: "c", Actor: alice, Roles: []string{"developer"}, Session: "s-1", Body: want, Deadline: time.Now().Add(time.Minute)}
		reply, err := c.Do(t.Context(), events.ServiceSession, "acme", "echo", req)
		if err != nil || reply.N != 7 || reply.Seq != 42 || !reply.Repeated || string(reply.Result) != string(want) {
			t.Errorf("%d bytes: %d came back, n %d, %v", n, len(reply.Result), reply.N, err)
		}
		req.Deadline = time.Now().Add(time.Minute)
		reply, err = c.Do(t.Context(), events.ServiceSession, "acme", "refuse", req)
		if p := wantCode(t, err, api.CodeAlreadyDecided); string(p.Winner) != string(want) || reply.N != 3 {
			t.Errorf("a refusal of %d bytes: %d came back, n %d", n, len(p.Winner), reply.N)
		}
	}
}

// A parcel of another tenant or service, or one that is gone, is refused; nothing of it
// is handled.
func TestParcelsOfOthers(t *testing.T) {
	t.Parallel()
	handled := false
	_, c := pair(t, 8, map[string]Handler{
		"send": func(context.Context, string, Request) (Reply, error) { handled = true; return Reply{}, nil },
	})
	ask := func(tenant string, p parcel) error {
		raw, err := json.Marshal(Request{CommandID: "c", Actor: alice, Deadline: time.Now().Add(10 * time.Second), Large: &p})
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.NC.Request("cmd.session."+tenant+".send", raw, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := decodeReply(m.Data, nil)
		if err != nil || reply.Problem == nil {
			t.Fatalf("answered with %+v, %v", reply, err)
		}
		return reply.Problem
	}
	sent := func(service events.Service) parcel {
		p, err := send(t.Context(), c.NC, service, "acme", said(1<<20))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	wantCode(t, ask("other", sent(events.ServiceSession)), api.CodeBlobUnavailable)
	wantCode(t, ask("acme", sent(events.ServicePolicy)), api.CodeBlobUnavailable)
	p := sent(events.ServiceSession)
	p.Blob.SHA256 = strings.Repeat("0", 64)
	wantCode(t, ask("acme", p), api.CodeBlobUnavailable)
	p.Name = "*"
	wantCode(t, ask("acme", p), api.CodeInvalidRequest)
	p.Blob.Size = MaxBodyBytes + 1
	wantCode(t, ask("acme", p), api.CodePayloadTooLarge)
	if handled {
		t.Error("a command was handled without its body")
	}
}

// Where TRANSIT can't be written, nothing is sent; where an answer can't be put there,
// it says that it was done.
func TestTransitDown(t *testing.T) {
	t.Parallel()
	s := brokertest.Start(t)
	s.ExpectDenials()
	// The projector may put nothing into TRANSIT.
	denied := s.NC(broker.UserProjector)
	c := &Client{NC: denied}
	_, err := c.Do(t.Context(), events.ServiceSession, "acme", "send", Request{Actor: alice, Body: said(1 << 20), Deadline: time.Now().Add(300 * time.Millisecond)})
	wantCode(t, err, api.CodeBlobUnavailable)

	installer, err := jetstream.New(s.NC(broker.UserInstaller))
	if err != nil {
		t.Fatal(err)
	}
	server, err := serve(s.NC(broker.UserSession), events.ServiceSession, map[string]Handler{
		"tell": func(context.Context, string, Request) (Reply, error) {
			if err := installer.DeleteStream(t.Context(), events.StreamTransit); err != nil {
				t.Error(err)
			}
			return Reply{N: 5, Result: said(1 << 20)}, nil
		},
	}, quiet, 8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(context.Background()); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			t.Errorf("stop: %v", err)
		}
	})
	reply, err := (&Client{NC: s.NC(broker.UserGateway)}).Do(t.Context(), events.ServiceSession, "acme", "tell",
		Request{Actor: alice, Deadline: time.Now().Add(30 * time.Second)})
	wantCode(t, err, api.CodeBlobUnavailable)
	if reply.N != 5 {
		t.Errorf("it was done at n 5, and the answer says %+v", reply)
	}
}

package sandboxapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
)

func TestChannelCarriesMessages(t *testing.T) {
	a, b := net.Pipe()
	sent := []Control{
		{Type: ControlBoot, Boot: &Boot{PodUID: "p", Agent: &AgentProcess{Argv: []string{"x"}, Adapter: "agui"}}},
		{Type: ControlRedeem, Bind: "b"},
		{Type: ControlGranted, Grant: &Grant{Session: "s", Token: "t", Config: json.RawMessage(`{"big":"` + strings.Repeat("x", 200<<10) + `"}`)}},
		{Type: ControlRefused, Reason: "two\nlines"},
		{Type: ControlStop, GraceMillis: 5},
	}
	go func() {
		out := NewChannel(a)
		for _, m := range sent {
			if err := out.Send(m); err != nil {
				t.Error(err)
			}
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	in := NewChannel(b)
	for _, want := range sent {
		got, err := in.Receive()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v", got.Type, err)
		}
	}
	if _, err := in.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
}

func TestChannelRefuses(t *testing.T) {
	for name, line := range map[string]string{
		"not JSON":         "hello\n",
		"an unknown type":  `{"type":"hello"}` + "\n",
		"an unknown field": `{"type":"booted","x":1}` + "\n",
		"two on a line":    `{"type":"booted"}{"type":"booted"}` + "\n",
		"boot of nothing":  `{"type":"boot"}` + "\n",
		"redeem nothing":   `{"type":"redeem"}` + "\n",
		"grant nothing":    `{"type":"granted","grant":{"session":"s"}}` + "\n",
		"an endless line":  strings.Repeat("x", MaxControlBytes+1),
	} {
		rw := struct {
			io.Reader
			io.Writer
		}{strings.NewReader(line), io.Discard}
		if _, err := NewChannel(rw).Receive(); !errors.Is(err, ErrControl) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzControl(f *testing.F) {
	f.Add([]byte(`{"type":"boot","boot":{"podUid":"p","isolation":"none"}}`))
	f.Add([]byte(`{"type":"granted","grant":{"session":"s","token":"t","config":{"a":[1]}}}`))
	f.Add([]byte(`{"type":"stop","graceMillis":-1}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := ParseControl(line)
		if err != nil {
			if !errors.Is(err, ErrControl) {
				t.Fatalf("untyped error: %v", err)
			}
			return
		}
		var buf bytes.Buffer
		c := NewChannel(&buf)
		if err := c.Send(m); err != nil {
			t.Fatalf("a message that was read can't be sent: %v", err)
		}
		if buf.Len() > MaxControlBytes {
			return // escapes may lengthen it
		}
		again, err := c.Receive()
		if err != nil || again.Type != m.Type || again.Bind != m.Bind || again.Reason != m.Reason {
			t.Fatalf("%+v came back as %+v, %v", m, again, err)
		}
	})
}

func TestEndpoints(t *testing.T) {
	for _, bad := range []string{"", "unix:relative", "https://h:1", "http://h", "http://h:1/path", "h:1", "unix:"} {
		if _, err := NewClient(bad, "s", 1); !errors.Is(err, ErrEndpoint) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range []string{"unix:/run/x.sock", "http://127.0.0.1:1", "http://[::1]:1/"} {
		if _, err := NewClient(good, "s", 1); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

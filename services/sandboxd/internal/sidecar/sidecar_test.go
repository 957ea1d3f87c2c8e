package sidecar

import (
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"net"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/supervise"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	whole := map[string]string{
		sandboxapi.EnvPodUID: "uid", sandboxapi.EnvSpool: "/spool", sandboxapi.EnvBindKey: base64.StdEncoding.EncodeToString(make([]byte, 32)),
	}
	for name, test := range map[string]struct {
		env   map[string]string
		wrong string // the variable that is named; "" where it is good
		check func(config) bool
	}{
		"the least": {nil, "", func(c config) bool {
			return c.listen == ":7778" && c.relay == "127.0.0.1:7777" && c.tokenFile == sandboxapi.DefaultTokenFile &&
				c.adapter == supervise.AdapterNone && c.isolation == "none" && c.agent(nil) == nil
		}},
		"a server": {map[string]string{sandboxapi.EnvAgentPort: "8000", sandboxapi.EnvReadyPath: "/ready"}, "", func(c config) bool {
			return c.agent(nil).Serves && c.agent(nil).Adapter == supervise.AdapterNone
		}},
		"exec is agui beside": {map[string]string{sandboxapi.EnvAdapter: "exec", sandboxapi.EnvRunPath: "/mine"}, "", func(c config) bool {
			return c.agentPort == sandboxapi.DefaultExecPort && c.agent(nil).Adapter == supervise.AdapterAGUI && c.agent(nil).RunPath == "/run"
		}},
		"push without a port": {map[string]string{sandboxapi.EnvAdapter: "push"}, "", func(c config) bool {
			return !c.agent(nil).Serves
		}},
		"no uid":            {map[string]string{sandboxapi.EnvPodUID: ""}, sandboxapi.EnvPodUID, nil},
		"no spool":          {map[string]string{sandboxapi.EnvSpool: ""}, sandboxapi.EnvSpool, nil},
		"no key":            {map[string]string{sandboxapi.EnvBindKey: ""}, sandboxapi.EnvBindKey, nil},
		"half a key":        {map[string]string{sandboxapi.EnvBindKey: "AAAA"}, sandboxapi.EnvBindKey, nil},
		"another adapter":   {map[string]string{sandboxapi.EnvAdapter: "telnet"}, sandboxapi.EnvAdapter, nil},
		"agui without port": {map[string]string{sandboxapi.EnvAdapter: "agui"}, sandboxapi.EnvAgentPort, nil},
		"port zero":         {map[string]string{sandboxapi.EnvAgentPort: "0"}, sandboxapi.EnvAgentPort, nil},
		"port of another":   {map[string]string{sandboxapi.EnvAgentPort: "70000"}, sandboxapi.EnvAgentPort, nil},
		"a relative path":   {map[string]string{sandboxapi.EnvReadyPath: "ready"}, sandboxapi.EnvReadyPath, nil},
	} {
		env := maps.Clone(whole)
		maps.Copy(env, test.env)
		c, err := configFrom(func(name string) string { return env[name] })
		switch {
		case test.wrong == "" && (err != nil || !test.check(c)):
			t.Errorf("%s: %+v, %v", name, c, err)
		case test.wrong != "" && (err == nil || !strings.HasPrefix(err.Error(), test.wrong+":")):
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithinPod(t *testing.T) {
	t.Parallel()
	at := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 7778} }
	for _, test := range []struct {
		from string
		to   net.Addr
		want bool
	}{
		{"127.0.0.1:5000", at("127.0.0.1"), true},
		{"127.0.0.9:5000", at("10.0.0.7"), true}, // an agent may choose
		{"[::1]:5000", at("::1"), true},
		{"[::ffff:127.0.0.1]:5000", at("10.0.0.7"), true},
		{"10.0.0.7:5000", at("10.0.0.7"), true},
		{"[::ffff:10.0.0.7]:5000", at("10.0.0.7"), true},
		{"10.0.0.8:5000", at("10.0.0.7"), false},
		{"10.0.0.8:5000", nil, false},
		{"@", nil, true},
	} {
		if got := withinPod(test.from, test.to); got != test.want {
			t.Errorf("from %s to %v: %v", test.from, test.to, got)
		}
	}
}

// TestAdmittedEnds: what nobody accepts any more is closed.
func TestAdmittedEnds(t *testing.T) {
	t.Parallel()
	a := newAdmitted(&net.TCPAddr{})
	ours, theirs := net.Pipe()
	go a.add(theirs)
	got, err := a.Accept()
	if err != nil || got != theirs {
		t.Fatalf("%v, %v", got, err)
	}
	for range 2 {
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	}
	a.add(theirs)
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("it wasn't closed: %v", err)
	}
	if _, err := a.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

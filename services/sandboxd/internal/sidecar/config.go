package sidecar

import (
	"cmp"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/entrypoint"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/supervise"
)

// config is what the environment says; see package sandboxapi for each variable.
type config struct {
	podUID    string
	bindKey   ed25519.PublicKey
	adapter   string
	agentPort int // 0 for none
	readyPath string
	runPath   string
	isolation string
	spoolDir  string
	tokenFile string
	listen    string
	relay     string
}

// configFrom reads the environment, by os.Getenv, and says all that is wrong with it.
func configFrom(getenv func(string) string) (config, error) {
	c := config{
		podUID:    getenv(sandboxapi.EnvPodUID),
		adapter:   cmp.Or(getenv(sandboxapi.EnvAdapter), supervise.AdapterNone),
		readyPath: getenv(sandboxapi.EnvReadyPath),
		runPath:   getenv(sandboxapi.EnvRunPath),
		isolation: cmp.Or(getenv(sandboxapi.EnvIsolation), sandboxapi.IsolationNone),
		spoolDir:  getenv(sandboxapi.EnvSpool),
		tokenFile: cmp.Or(getenv(sandboxapi.EnvTokenFile), sandboxapi.DefaultTokenFile),
		listen:    cmp.Or(getenv(sandboxapi.EnvListen), sandboxapi.DefaultListen),
		relay:     cmp.Or(getenv(sandboxapi.EnvRelay), sandboxapi.DefaultRelay),
	}
	var errs []error
	wrong := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", name, fmt.Sprintf(format, args...)))
	}
	if c.podUID == "" {
		wrong(sandboxapi.EnvPodUID, "is missing: it comes from metadata.uid, by the downward API")
	}
	if c.spoolDir == "" {
		wrong(sandboxapi.EnvSpool, "is missing")
	}
	key, err := base64.StdEncoding.DecodeString(getenv(sandboxapi.EnvBindKey))
	if err != nil || len(key) != ed25519.PublicKeySize {
		wrong(sandboxapi.EnvBindKey, "want base64 of the %d bytes of an Ed25519 public key", ed25519.PublicKeySize)
	}
	c.bindKey = key
	if port := getenv(sandboxapi.EnvAgentPort); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			wrong(sandboxapi.EnvAgentPort, "%q is no port", port)
		}
		c.agentPort = int(n)
	}
	for name, path := range map[string]string{sandboxapi.EnvReadyPath: c.readyPath, sandboxapi.EnvRunPath: c.runPath} {
		if path != "" && !strings.HasPrefix(path, "/") {
			wrong(name, "%q doesn't begin with /", path)
		}
	}
	switch c.adapter {
	case supervise.AdapterExec:
		c.agentPort = cmp.Or(c.agentPort, sandboxapi.DefaultExecPort)
	case supervise.AdapterAGUI:
		if c.agentPort == 0 {
			wrong(sandboxapi.EnvAgentPort, "is missing: where does the agent serve?")
		}
	case supervise.AdapterPush, supervise.AdapterNone:
	default:
		wrong(sandboxapi.EnvAdapter, "%.64q is none of agui, exec, push, none", c.adapter)
	}
	return c, errors.Join(errs...)
}

// agent is who works beside sandboxd; nil where nobody is to be waited for.
func (c config) agent(log *slog.Logger) *supervise.Agent {
	a := &supervise.Agent{Adapter: c.adapter, RunPath: c.runPath, Serves: c.agentPort != 0}
	switch {
	case c.adapter == supervise.AdapterExec:
		// The program is another container's: there `sandboxd exec-agent` runs it, and is an
		// agent of agui to this one.
		a.Adapter, a.RunPath = supervise.AdapterAGUI, supervise.DefaultRunPath
	case c.adapter == supervise.AdapterNone && c.agentPort == 0:
		return nil
	}
	watch := entrypoint.WatchConfig{ReadyPath: c.readyPath, Log: log}
	if c.adapter == supervise.AdapterExec { // the path is the program's, which isn't there yet
		watch.ReadyPath = ""
	}
	if c.agentPort != 0 {
		watch.Addr = net.JoinHostPort(c.loopback(), strconv.Itoa(c.agentPort))
	}
	a.Entry = func(asks supervise.Answers) supervise.Entrypoint {
		watch.Answers = asks
		return entrypoint.Watch(watch)
	}
	return a
}

// loopback is the Pod's, which the agent shares: it serves where it reaches the relay.
func (c config) loopback() string {
	host, _, err := net.SplitHostPort(c.relay)
	if err != nil || host == "" {
		return "127.0.0.1"
	}
	return host
}

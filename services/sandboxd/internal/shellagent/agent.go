// Package shellagent is the runtime `shell`: an AG-UI 1.0 agent that needs no
// model. Each line of the last user message is a command. For each one it asks
// Holdfast, runs what is allowed, streams the output, reports how it ended, and
// says plainly what was not run:
//
//	                       ┌ deny ──────────────────────────────▶ said, next line
//	a line ─▶ propose ─────┼ allow ─▶ start ─▶ run ─▶ result ───▶ next line
//	                       │            └ refused ──────────────▶ said, next line
//	                       └ a person must answer ─▶ STATE_SNAPSHOT, interrupt
//	                                                     │
//	             next run, with resume[] and the state ──┘ goes on at this line
//
// Between runs the agent remembers nothing itself: what is left of a message,
// where it stands, the working directory and the exported variables are in
// AG-UI's state, so that it goes on after its process, or its sandbox, is gone.
// Variables that would change what a later line means are not carried on.
package shellagent

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/agui"
)

// stopTime is left to running commands to be killed and reported at the end.
const stopTime = 2 * time.Second

// maxInput bounds a RunAgentInput, as sandboxd does.
const maxInput = 64 << 20

// Config says how the agent works. All fields are required.
type Config struct {
	// Holdfast is the base URL of the agent API.
	Holdfast *url.URL
	// Modes are the ways to wait for a person that are offered: "hold", "park".
	Modes []string
	// Shell is the program that runs a line by `-c`.
	Shell string
	// Workspace is where the first command of a session runs.
	Workspace string
	// Env is the environment of commands ("K=V").
	Env []string
	// RetryFor is how long Holdfast may be unreachable before a run fails.
	RetryFor time.Duration
}

// Run is the main of `sandboxd shell-agent`. It serves until SIGTERM and returns
// the exit code.
func Run(args []string) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg, addr, err := configure(args, os.Environ())
	if err != nil {
		log.Error("shell agent not started", "err", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	defer stop()
	if err := serve(ctx, cfg, addr); err != nil {
		log.Error("shell agent ended", "err", err)
		return 1
	}
	return 0
}

// configure reads flags and environment. The two variables that are the agent's
// own are kept from its commands.
func configure(args, environ []string) (Config, string, error) {
	flags := flag.NewFlagSet("shell-agent", flag.ContinueOnError)
	modes := flags.String("modes", modePark, "ways to wait for a person, of hold and park, comma-separated")
	if err := flags.Parse(args); err != nil {
		return Config{}, "", err
	}
	cfg := Config{Modes: strings.Split(*modes, ","), RetryFor: retryFor}
	for _, m := range cfg.Modes {
		if m != modeHold && m != modePark {
			return cfg, "", fmt.Errorf("modes: %q is neither hold nor park", m)
		}
	}
	own := make(map[string]string)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if name == sandboxapi.EnvAgentURL || name == sandboxapi.EnvPort {
			own[name] = value
			continue
		}
		cfg.Env = append(cfg.Env, kv)
	}
	base, err := url.Parse(own[sandboxapi.EnvAgentURL])
	if err != nil || base.Host == "" {
		return cfg, "", fmt.Errorf("%s: want a base URL, got %q", sandboxapi.EnvAgentURL, own[sandboxapi.EnvAgentURL])
	}
	cfg.Holdfast = base
	if cfg.Workspace, err = os.Getwd(); err != nil {
		return cfg, "", err
	}
	if cfg.Shell, err = findShell(); err != nil {
		return cfg, "", err
	}
	if own[sandboxapi.EnvPort] == "" {
		return cfg, "", fmt.Errorf("%s isn't set", sandboxapi.EnvPort)
	}
	// It serves where it reaches sandboxd: on the loopback that the two share.
	return cfg, net.JoinHostPort(base.Hostname(), own[sandboxapi.EnvPort]), nil
}

// findShell prefers bash, which people expect, to the system's sh.
func findShell() (string, error) {
	if bash, err := exec.LookPath("bash"); err == nil {
		return bash, nil
	}
	return exec.LookPath("sh")
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// serve serves until ctx ends; then the command that runs is killed.
func serve(ctx context.Context, cfg Config, addr string) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	srv := &http.Server{
		Handler:           NewHandler(cfg),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	// Every request's context has ended with ctx; this waits for what they clean up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	return srv.Shutdown(ctx)
}

// agent is the handler's state: who works.
type agent struct {
	cfg Config
	api *holdfast
	// turn holds the one token of whoever works; a run that was cancelled may
	// still be killing its command when the next one comes.
	turn chan struct{}
}

// NewHandler serves POST /run and GET /health.
func NewHandler(cfg Config) http.Handler {
	cfg.Modes = slices.Clone(cfg.Modes)
	a := &agent{
		cfg:  cfg,
		api:  &holdfast{base: cfg.Holdfast, http: &http.Client{Transport: &http.Transport{}}, retryFor: cfg.RetryFor},
		turn: make(chan struct{}, 1),
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("POST /run", a.run)
	return mux
}

func (a *agent) run(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInput))
	if err != nil {
		http.Error(w, "the input can't be read: "+err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	var in agui.RunInput
	if err := json.Unmarshal(raw, &in); err != nil {
		http.Error(w, "the input isn't a RunAgentInput: "+err.Error(), http.StatusBadRequest)
		return
	}
	if in.ThreadID == "" || in.RunID == "" {
		http.Error(w, "the input needs threadId and runId", http.StatusBadRequest)
		return
	}
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-r.Context().Done():
		return
	}
	t := &turn{cfg: a.cfg, api: a.api, in: in, say: newSpeaker(w)}
	t.run(r.Context())
}

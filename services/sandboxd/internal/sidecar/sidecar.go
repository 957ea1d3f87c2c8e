package sidecar

import (
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/internal/bind"
	"github.com/holdfast-io/holdfast/services/internal/connlimit"
	"github.com/holdfast-io/holdfast/services/internal/sandboxtoken"
	"github.com/holdfast-io/holdfast/services/sandboxd/internal/supervise"
)

// stopGrace is left to those who still read how a run ended.
const stopGrace = 2 * time.Second

// Run is the main of `sandboxd sidecar`. It serves until SIGTERM and returns the exit
// code: 0 after an orderly stop, 1 otherwise.
func Run() int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, unix.SIGTERM, unix.SIGINT)
	defer signal.Stop(terminate)
	cfg, err := configFrom(os.Getenv)
	if err == nil {
		err = run(cfg, log, terminate)
	}
	if err != nil {
		log.Error("sandboxd ends", "err", err)
		return 1
	}
	return 0
}

func run(cfg config, log *slog.Logger, terminate <-chan os.Signal) error {
	verifier, err := sandboxtoken.NewAccessVerifier(cfg.bindKey, nil)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cfg.spoolDir, 0o700); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	relay, err := net.Listen("tcp", cfg.relay)
	if err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	listener, err := net.Listen("tcp", cfg.listen)
	if err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), relay.Close())
	}
	secret := rand.Text()
	sandbox, err := supervise.Start(supervise.Config{
		PodUID: cfg.podUID, Process: bind.ProcessOf(secret), Isolation: cfg.isolation, Relay: relay, SpoolDir: cfg.spoolDir, Agent: cfg.agent(log), Log: log,
		Binder: &redeemer{key: cfg.bindKey, podUID: cfg.podUID, secret: secret, tokenFile: cfg.tokenFile, log: log},
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	gate := newGate(sandbox, verifier, listener.Addr(), log)
	sandbox.Serve(gate.admitted, sandbox.API(), 0)
	sandbox.Serve(connlimit.New(listener, maxConns, side), gate, maxHeader)
	log.Info("sandboxd waits for its bind", "addr", listener.Addr().String(), "relay", relay.Addr().String())
	<-terminate
	return sandbox.Stop(stopGrace)
}

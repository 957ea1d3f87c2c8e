package main

import (
	"bytes"
	"context"
	"errors"
	"os"

	"github.com/holdfast-io/holdfast/api/apiclient"
	"github.com/holdfast-io/holdfast/events/eventlog"
	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
)

// program is everything, as `holdfast dev` starts it.
type program struct {
	dev    *dev.Program
	log    eventlog.Log
	done   func() // with log
	client *apiclient.ClientWithResponses
}

// newProgram starts it, with sandboxes of an isolation. Close it.
func (l *lab) newProgram(ctx context.Context, isolation string) (p *program, err error) {
	dir, err := l.folder("dev")
	if err != nil {
		return nil, err
	}
	return l.startProgram(ctx, dir, isolation)
}

// startProgram starts it on a data directory.
func (l *lab) startProgram(ctx context.Context, dir, isolation string) (p *program, err error) {
	p = &program{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	p.dev, err = dev.Start(context.WithoutCancel(ctx), dev.Config{
		Addr: "127.0.0.1:0", DataDir: dir, Isolation: isolation, SyncAlways: true, Logger: l.logger, Version: "bench",
	})
	if err != nil {
		return p, err
	}
	if p.log, p.done, err = p.dev.OpenLog(ctx); err != nil {
		return p, err
	}
	token, err := cli.TokenOf(dir, "admin")
	if err != nil {
		return p, err
	}
	p.client, err = apiclient.New(apiclient.Config{URL: p.dev.URL, Token: token})
	return p, err
}

// apply applies a runtime.
func (p *program) apply(ctx context.Context, name string, spec any) error {
	_, err := p.client.ApplyRuntimeWithBodyWithResponse(ctx, name, nil, "application/json", bytes.NewReader(mustJSON(spec)))
	return err
}

// applyAgent applies a runtime whose agent is this program, which reports to a UDP
// address.
func (p *program) applyAgent(ctx context.Context, report string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return p.apply(ctx, recipe, map[string]any{
		"name": recipe, "kind": "agent",
		"adapter": map[string]any{"protocol": "agui", "entrypoint": "app", "path": "/run", "resume": "rerun"},
		"sandbox": map[string]any{
			"command": []string{self, "as-agent"}, "env": []any{map[string]string{"name": envReport, "value": report}},
		},
		"workspace":   map[string]string{"path": "/workspace"},
		"entrypoints": []any{map[string]any{"name": "app", "pathPrefix": "/", "port": 8000, "protocol": "HTTP", "ready": "/health"}},
	})
}

// close may be called of a program that was not started.
func (p *program) close() error {
	if p == nil {
		return nil
	}
	if p.done != nil {
		p.done()
	}
	if p.dev != nil {
		return p.dev.Stop()
	}
	return nil
}

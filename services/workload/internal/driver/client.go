package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// Ready waits until the entrypoint behind an endpoint's URL answers, unless it did when
// the sandbox was bound. It is ErrEntrypoint when the entrypoint failed for good. Drivers
// build their Ready on it.
func Ready(ctx context.Context, endpoint string, bound sandboxapi.Health) (sandboxapi.Health, error) {
	if bound.Entrypoint.Answers() {
		return bound, nil
	}
	client, err := sandboxapi.NewClient(endpoint, "", 0)
	if err != nil {
		return sandboxapi.Health{}, err
	}
	defer client.Close()
	health, err := client.WaitReady(ctx)
	return health, classify(err)
}

// Process asks the sandboxd behind an endpoint's URL which process it is; see
// sandboxapi.Health.
func Process(ctx context.Context, endpoint string) (string, error) {
	client, err := sandboxapi.NewClient(endpoint, "", 0)
	if err != nil {
		return "", err
	}
	defer client.Close()
	health, err := client.Health(ctx)
	return health.Process, classify(err)
}

// Bind hands a signed bind to the sandboxd behind an endpoint's URL. It is
// ErrBindRefused when the sandbox is another's or the bind wasn't granted.
// Drivers build their Bind on it.
func Bind(ctx context.Context, endpoint, bind string) (sandboxapi.Health, error) {
	client, err := sandboxapi.NewClient(endpoint, "", 0)
	if err != nil {
		return sandboxapi.Health{}, err
	}
	defer client.Close()
	health, err := client.Bind(ctx, bind)
	return health, classify(err)
}

// classify adds this package's error to what sandboxd answered.
func classify(err error) error {
	problem, ok := errors.AsType[*sandboxapi.Problem](err)
	if !ok {
		return err
	}
	switch problem.Code {
	case sandboxapi.CodeEntrypointFailed:
		return fmt.Errorf("%w: %w", ErrEntrypoint, problem)
	case sandboxapi.CodeStopping:
		return fmt.Errorf("%w: %w", ErrNotRunning, problem)
	case sandboxapi.CodeBindRefused, sandboxapi.CodeBoundToAnother:
		return fmt.Errorf("%w: %w", ErrBindRefused, problem)
	}
	return err
}

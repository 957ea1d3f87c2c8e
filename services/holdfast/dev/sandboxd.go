package dev

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// sandboxdPackage is what is built where there is no sandboxd.
const sandboxdPackage = "github.com/holdfast-io/holdfast/services/sandboxd"

// ErrNoSandboxd says that there is no sandboxd and none can be built.
var ErrNoSandboxd = errors.New("no sandboxd: put it beside the holdfast binary, or name it in HOLDFAST_SANDBOXD")

// FindSandboxd gives the path of the sandboxd binary: the one that is named, the
// one beside this binary, or in a checkout (`go run`) one built now, which Go's
// cache makes quick.
func FindSandboxd(ctx context.Context, into string) (string, error) {
	if path := os.Getenv("HOLDFAST_SANDBOXD"); path != "" {
		return filepath.Abs(path)
	}
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), "sandboxd")
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	if _, err := exec.LookPath("go"); err != nil {
		return "", ErrNoSandboxd
	}
	path := filepath.Join(into, "sandboxd")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", path, sandboxdPackage)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w; building it failed: %w: %s", ErrNoSandboxd, err, strings.TrimSpace(string(out)))
	}
	return path, os.Chmod(path, 0o755)
}

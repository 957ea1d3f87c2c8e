package local

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// Config configures a Driver. Zero values mean the defaults given.
type Config struct {
	// DataDir is the absolute directory below which the driver keeps its own.
	// Required.
	DataDir string
	// SandboxdPath is the sandboxd binary to run. Required.
	SandboxdPath string
	// AgentSocket is the gateway's agent listener: an absolute path of a unix
	// socket that has its directory for itself, because that directory is what
	// sandboxes see. It needs not exist yet. As root the directory must be
	// passable and the socket writable by others (sandboxes have other uids).
	// Required.
	AgentSocket string
	// SharePaths are directories of this host that sandboxes see under the same
	// path, read-only: where agents' code is, besides /usr.
	SharePaths []string
	// Granter redeems binds. Required.
	Granter driver.Granter
	// Isolation is "namespaces" (default), "gvisor" or "none".
	Isolation string
	// RunscPath is gVisor's binary, for isolation "gvisor": runsc in the PATH.
	RunscPath string
	// UIDBase and UIDCount give the range of host uids for sandboxes when the
	// driver runs as root: 1879048192 (beyond what distributions and systemd
	// allot) and 65536.
	UIDBase, UIDCount int
	// TmpBytes bounds a sandbox's /tmp and its shared memory, each: 256 MiB.
	TmpBytes int64
	// Limits are those of a runtime that names none: 1024 processes, half of the
	// host's memory, 4 GiB of workspace; cpu is not limited.
	Limits driver.Limits
	// WorkspaceFiles bounds the files and directories of every workspace: 1,000,000.
	// They are a resource of the disk like its bytes, and they bound the work of
	// measuring a workspace.
	WorkspaceFiles int64
	// ReserveBytes is what sandboxes may not take of the disk that DataDir is on:
	// below it none is started, and the one that writes the most is ended. By default
	// 1 GiB, or 5 % of a disk that is smaller than 20 GiB; negative for none.
	ReserveBytes int64
	// DiskInterval is how often the disk's free space is looked at: 100 ms.
	DiskInterval time.Duration
	// StartTimeout bounds the start of sandboxd (not of the entrypoint): 20 s.
	StartTimeout time.Duration
	// StopGrace is how long an agent may take to end by itself: 3 s.
	StopGrace time.Duration
	// Log takes the driver's and the sandboxes' messages: slog.Default().
	Log *slog.Logger
}

// grades are the isolations of this driver.
var grades = []string{sandboxapi.IsolationNamespaces, sandboxapi.IsolationGVisor, sandboxapi.IsolationNone}

// withDefaults validates c and fills in the defaults.
func (c Config) withDefaults() (Config, error) {
	if c.Isolation == "" {
		c.Isolation = sandboxapi.IsolationNamespaces
	}
	if c.UIDBase == 0 {
		c.UIDBase = 0x70000000
	}
	if c.UIDCount == 0 {
		c.UIDCount = 1 << 16
	}
	if c.TmpBytes == 0 {
		c.TmpBytes = 256 << 20
	}
	c.Limits = overlay(c.Limits, driver.Limits{MemoryBytes: hostMemory() / 2, Pids: 1024, DiskBytes: 4 << 30})
	if c.WorkspaceFiles == 0 {
		c.WorkspaceFiles = 1_000_000
	}
	if c.DiskInterval == 0 {
		c.DiskInterval = 100 * time.Millisecond
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 20 * time.Second
	}
	if c.StopGrace == 0 {
		c.StopGrace = 3 * time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	return c, c.validate()
}

func (c Config) validate() error {
	var errs []error
	if !filepath.IsAbs(c.DataDir) {
		errs = append(errs, errors.New("DataDir must be an absolute path"))
	}
	if !filepath.IsAbs(c.AgentSocket) {
		errs = append(errs, errors.New("AgentSocket must be an absolute path"))
	}
	if info, err := os.Stat(c.SandboxdPath); err != nil {
		errs = append(errs, fmt.Errorf("SandboxdPath: %w", err))
	} else if !info.Mode().IsRegular() {
		errs = append(errs, errors.New("SandboxdPath must be a file"))
	}
	for _, p := range c.SharePaths {
		if err := driver.ValidatePlace(p); err != nil {
			errs = append(errs, fmt.Errorf("SharePaths: %w", err))
		}
	}
	if c.Granter == nil {
		errs = append(errs, errors.New("a Granter is required"))
	}
	if !slices.Contains(grades, c.Isolation) {
		errs = append(errs, fmt.Errorf("Isolation %q is none of %q", c.Isolation, grades))
	}
	if c.UIDBase < 1000 || c.UIDCount < 1 || int64(c.UIDBase)+int64(c.UIDCount) > 0xfffffffe {
		errs = append(errs, errors.New("UIDBase and UIDCount must give unprivileged 32-bit uids"))
	}
	if c.TmpBytes < 0 || c.WorkspaceFiles < 0 || c.DiskInterval < 0 || c.StartTimeout < 0 || c.StopGrace < 0 {
		errs = append(errs, errors.New("TmpBytes, WorkspaceFiles, DiskInterval, StartTimeout and StopGrace can't be negative"))
	}
	if err := c.Limits.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("local driver: %w: %w", driver.ErrInvalid, err)
	}
	return nil
}

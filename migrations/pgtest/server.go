package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-io/holdfast/migrations/pgserver"
)

// startTimeout is generous: on a busy machine initdb takes seconds.
const startTimeout = 2 * time.Minute

// running is this process's server.
var running struct {
	sync.Mutex
	asked   bool
	url     string
	err     error
	srv     *pgserver.Server
	cleaner io.Closer
	cleaned func() error
}

// server returns the URL of the server for tests, starting it on first use.
// A failure is as final as a success: the next test would wait for nothing.
func server() (string, error) {
	if u := os.Getenv(EnvURL); u != "" {
		return u, nil
	}
	running.Lock()
	defer running.Unlock()
	if !running.asked {
		running.asked = true
		running.err = start()
	}
	return running.url, running.err
}

// settings trade everything for speed: the data need not outlive the process.
var settings = map[string]string{
	"fsync":              "off",
	"synchronous_commit": "off",
	"full_page_writes":   "off",
	"wal_level":          "minimal",
	"max_wal_senders":    "0",
	"shared_buffers":     "32MB",
	"max_connections":    "200",
	"autovacuum":         "off",
	"jit":                "off",
	"checkpoint_timeout": "1d",
	"min_wal_size":       "32MB",
	"log_min_messages":   "warning",
	"deadlock_timeout":   "200ms",
}

func start() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	dir, err := os.MkdirTemp(root(), "holdfast-pgtest-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	if err := startCleaner(dir); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if err := copyCluster(ctx, dir); err != nil {
		return err
	}
	srv, err := pgserver.Start(ctx, pgserver.Config{
		Dir: dir, Database: "postgres", Settings: settings, NoSync: true,
	})
	if err != nil {
		return err
	}
	running.srv, running.url = srv, srv.DSN()
	return nil
}

// root is where the data goes: shared memory where there is enough of it.
func root() string {
	const shm, enough = "/dev/shm", 1 << 30
	var st syscall.Statfs_t
	if err := syscall.Statfs(shm, &st); err != nil || st.Bavail*uint64(st.Bsize) < enough {
		return ""
	}
	if err := syscall.Access(shm, 0x2 /* W_OK */); err != nil {
		return ""
	}
	return shm
}

// startCleaner starts a child that removes dir when this process has ended,
// however it ended: the kernel closes the pipe that the child reads from. It
// tries again for as long as a dying server may still write there.
func startCleaner(dir string) error {
	const script = `read -r _; for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$0" && exit 0; sleep 0.2; done; exit 1`
	cmd := exec.Command("/bin/sh", "-c", script, dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is not for it
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start the child that cleans up: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the child that cleans up: %w", err)
	}
	running.cleaner, running.cleaned = pipe, cmd.Wait
	return nil
}

// stop ends the server, if there is one, and waits for its data to be gone.
func stop() error {
	running.Lock()
	defer running.Unlock()
	var err error
	if running.srv != nil {
		err = running.srv.Stop()
	}
	if running.cleaner != nil {
		err = errors.Join(err, running.cleaner.Close(), running.cleaned())
	}
	running.srv, running.cleaner, running.cleaned = nil, nil, nil
	running.url, running.err = "", errStopped
	return err
}

var errStopped = errors.New("the server has been stopped: the package's tests have run")

// copyCluster copies a cluster that an earlier test process has kept, making it
// first if there is none: initdb costs a second of CPU, the copy a twentieth.
// Without a cache folder it does nothing, and the server's start runs initdb.
func copyCluster(ctx context.Context, dir string) error {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil //nolint:nilerr // no home: the slow way
	}
	programs, err := pgserver.Find(ctx, "", 0)
	if err != nil {
		return err
	}
	kept := filepath.Join(cache, "holdfast", "pgtest", strconv.Itoa(programs.Major))
	if err := os.MkdirAll(kept, 0o700); err != nil {
		return nil //nolint:nilerr // a home that can't be written to: the slow way
	}
	unlock, err := exclusive(filepath.Join(kept, "making"))
	if err != nil {
		return err
	}
	// With fsync, unlike its copies: this one has to survive a power cut.
	if err = pgserver.Init(ctx, pgserver.Config{Dir: kept}); err == nil {
		err = pgserver.Clone(kept, dir)
	}
	if err := errors.Join(err, unlock()); err != nil {
		return fmt.Errorf("copy the kept cluster: %w", err)
	}
	return nil
}

// exclusive waits for the lock in path: test processes start together.
func exclusive(path string) (unlock func() error, _ error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the kept cluster: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the kept cluster: %w", err), f.Close())
	}
	return f.Close, nil
}

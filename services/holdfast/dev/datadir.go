package dev

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/services/internal/dirlock"
	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

// DefaultDataDir is where dev keeps its data: /var/lib/holdfast as root, else
// below the user's state folder.
func DefaultDataDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/holdfast", nil
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "holdfast"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no place for data: %w; name one with --data-dir", err)
	}
	return filepath.Join(home, ".local", "state", "holdfast"), nil
}

// Tenant is the one that dev has.
const Tenant = "default"

// BusyError says that another dev runs on the same data.
type BusyError struct {
	Dir string
	PID int
}

// Error names the way out.
func (e *BusyError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = "process " + strconv.Itoa(e.PID)
	}
	return fmt.Sprintf("%s runs holdfast dev on %s: stop it, or use another --data-dir", who, e.Dir)
}

// dataDir is a locked data directory.
type dataDir struct {
	path string
	lock *os.File
}

func openDataDir(path string, reset bool) (*dataDir, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, fmt.Errorf("data directory: %w; name another with --data-dir", err)
	}
	lock, err := os.OpenFile(filepath.Join(abs, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w; name another with --data-dir", err)
	}
	d := &dataDir{path: abs, lock: lock}
	if err := dirlock.Lock(lock); err != nil {
		defer lock.Close()
		if !errors.Is(err, dirlock.ErrHeld) {
			return nil, fmt.Errorf("lock the data directory: %w", err)
		}
		raw := make([]byte, 20)
		n, _ := lock.ReadAt(raw, 0)
		pid, _ := strconv.Atoi(strings.TrimSpace(string(raw[:n])))
		return nil, &BusyError{Dir: abs, PID: pid}
	}
	if err := d.begin(reset); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return d, nil
}

// begin writes down whose the lock is and, on reset, removes everything else. The
// tokens stay: they are the people's, not the log's.
func (d *dataDir) begin(reset bool) error {
	pid := []byte(strconv.Itoa(os.Getpid()) + "\n")
	if err := d.lock.Truncate(0); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if _, err := d.lock.WriteAt(pid, 0); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	if !reset {
		return nil
	}
	for _, name := range []string{"nats", "postgres", "local", "agent", "host", "server.json"} {
		if err := os.RemoveAll(filepath.Join(d.path, name)); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	return nil
}

func (d *dataDir) in(names ...string) string {
	return filepath.Join(append([]string{d.path}, names...)...)
}

// close gives the lock back.
func (d *dataDir) close() error {
	return errors.Join(ignoreMissing(os.Remove(d.in("server.json"))), d.lock.Close())
}

func ignoreMissing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Server is what server.json says of a running dev.
type Server struct {
	URL string `json:"url"`
	PID int    `json:"pid"`
}

// ReadServer finds the dev that runs on a data directory.
func ReadServer(dir string) (Server, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "server.json"))
	if err != nil {
		return Server{}, err
	}
	var s Server
	return s, json.Unmarshal(raw, &s)
}

func (d *dataDir) writeServer(s Server) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(d.in("server.json"), raw, 0o600)
}

// TokensFile is the path of a data directory's tokens.
func TokensFile(dir string) string { return filepath.Join(dir, "tokens.yaml") }

// tokens makes the tokens file where there is none.
func (d *dataDir) tokens() (string, error) {
	path := TokensFile(d.path)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return path, err
	}
	entry := func(name string, roles ...api.Role) tokenfile.Entry {
		return tokenfile.Entry{Name: name, Token: tokenfile.NewToken(), Roles: roles, Tenants: []string{Tenant}}
	}
	return path, tokenfile.Write(path, []tokenfile.Entry{
		entry("admin", api.RoleAdmin, api.RoleDeveloper, api.RoleOperator, api.RoleApprover, api.RoleAuditor),
		entry("alice", api.RoleDeveloper),
		entry("bob", api.RoleApprover),
	})
}

package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-io/holdfast/services/workload/internal/driver"
)

// stateWarm is the state of a sandbox that belongs to nobody yet.
const stateWarm driver.State = "warm"

// record is what is known of a sandbox on disk.
type record struct {
	// Version of this format; see recordVersion.
	Version int `json:"version"`
	// Ref is zero while the sandbox is warm.
	driver.Ref
	SandboxUID string       `json:"sandboxUid"`
	PodUID     string       `json:"podUid"`
	Intent     uint64       `json:"intent"`
	Epoch      string       `json:"epoch"`
	State      driver.State `json:"state"`
	Cause      string       `json:"cause,omitempty"`
	HasVolume  bool         `json:"hasVolume"`
	// Since is since when the session has it.
	Since time.Time `json:"since,omitzero"`
	// UID is the host's uid and gid of the sandbox.
	UID int `json:"uid"`
	// Cgroups are the control groups of the current incarnation.
	Cgroups []string `json:"cgroups,omitempty"`
	// Process is the current incarnation's sandboxd.
	Process *processID `json:"process,omitempty"`
	// Socket is the current incarnation's endpoint.
	Socket string `json:"socket,omitempty"`
}

const recordVersion = 1

// layout knows where things are below <DataDir>/local.
type layout struct{ root string }

func (l layout) lock() string                   { return filepath.Join(l.root, "lock") }
func (l layout) bin() string                    { return filepath.Join(l.root, "bin") }
func (l layout) sandboxes() string              { return filepath.Join(l.root, "sandboxes") }
func (l layout) sandbox(uid string) string      { return filepath.Join(l.sandboxes(), uid) }
func (l layout) record(uid string) string       { return filepath.Join(l.sandbox(uid), "record.json") }
func (l layout) spool(uid string) string        { return filepath.Join(l.sandbox(uid), "spool") }
func (l layout) ownWorkspace(uid string) string { return filepath.Join(l.sandbox(uid), "workspace") }
func (l layout) sessions() string               { return filepath.Join(l.root, "sessions") }
func (l layout) session(k driver.SessionKey) string {
	return filepath.Join(l.sessions(), k.Tenant, k.Session)
}

func (l layout) intent(k driver.SessionKey) string { return filepath.Join(l.session(k), "intent") }

func (l layout) volume(k driver.SessionKey) string { return filepath.Join(l.session(k), "workspace") }

func (l layout) outgrown(k driver.SessionKey) string { return filepath.Join(l.session(k), "outgrown") }

func (l layout) workspace(r record) string {
	if r.HasVolume && r.State != stateWarm {
		return l.volume(r.Key())
	}
	return l.ownWorkspace(r.SandboxUID)
}

// save writes the record so that it is the old or the new one after any crash.
func (l layout) save(r record) error {
	r.Version = recordVersion
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("record of sandbox %s: %w", r.SandboxUID, err)
	}
	return replaceFile(l.record(r.SandboxUID), raw)
}

// load reads the record of a sandbox.
func (l layout) load(uid string) (record, error) {
	raw, err := os.ReadFile(l.record(uid))
	if err != nil {
		return record{}, err
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil {
		return record{}, fmt.Errorf("record of sandbox %s: %w", uid, err)
	}
	if r.Version != recordVersion || r.SandboxUID != uid {
		return record{}, fmt.Errorf("record of sandbox %s: version %d of sandbox %q", uid, r.Version, r.SandboxUID)
	}
	return r, nil
}

// saveIntent keeps the newest intent of a session beyond its sandboxes.
func (l layout) saveIntent(k driver.SessionKey, intent uint64) error {
	if err := os.MkdirAll(l.session(k), 0o700); err != nil {
		return err
	}
	return replaceFile(l.intent(k), []byte(strconv.FormatUint(intent, 10)))
}

// loadIntent returns the newest kept intent of a session, 0 for none.
func (l layout) loadIntent(k driver.SessionKey) (uint64, error) {
	raw, err := os.ReadFile(l.intent(k))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("intent of session %s: %w", k.Session, err)
	}
	return n, nil
}

// replaceFile writes path by rename and syncs file and directory.
func replaceFile(path string, data []byte) error {
	tmp := path + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes renames in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

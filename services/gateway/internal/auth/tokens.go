package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/holdfast-io/holdfast/services/internal/tokenfile"
)

// reloadEvery is how soon a changed file counts.
const reloadEvery = 2 * time.Second

// Tokens are the people of a tokens file. Only hashes of tokens stay in memory.
type Tokens struct {
	path    string
	current atomic.Pointer[table]
}

// table is one reading of the file.
type table struct {
	version os.FileInfo
	people  []person
}

type person struct {
	hash      [sha256.Size]byte
	principal Principal
}

// LoadTokens reads a tokens file (see package tokenfile).
func LoadTokens(path string) (*Tokens, error) {
	t := &Tokens{path: path}
	if err := t.Reload(); err != nil {
		return nil, err
	}
	return t, nil
}

// Reload reads the file again. On error what was read before stays in force.
func (t *Tokens) Reload() error {
	info, err := os.Stat(t.path)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	entries, err := tokenfile.Read(t.path)
	if err != nil {
		return err
	}
	next := &table{version: info, people: make([]person, len(entries))}
	for i, e := range entries {
		next.people[i] = person{
			hash: sha256.Sum256([]byte(e.Token)),
			principal: Principal{
				Name: e.Name, Tenants: e.Tenants, Roles: e.Roles, Groups: e.Groups, Via: ViaBearer,
			},
		}
	}
	t.current.Store(next)
	return nil
}

// Watch reloads the file whenever it changes, until ctx ends.
func (t *Tokens) Watch(ctx context.Context, logger *slog.Logger) {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !t.changed() {
			continue
		}
		if err := t.Reload(); err != nil {
			logger.Warn("tokens file not reloaded, the old one counts", "err", err)
			continue
		}
		logger.Info("tokens file reloaded", "people", len(t.current.Load().people))
	}
}

func (t *Tokens) changed() bool {
	info, err := os.Stat(t.path)
	if err != nil {
		return false // gone for a moment, or for good: the old one counts
	}
	before := t.current.Load().version
	return !os.SameFile(before, info) || !info.ModTime().Equal(before.ModTime()) || info.Size() != before.Size()
}

// Lookup finds whose token it is. It compares hashes, all of them and in
// constant time, so that how long it takes tells nothing.
func (t *Tokens) Lookup(token string) (Principal, bool) {
	hash := sha256.Sum256([]byte(token))
	found := -1
	people := t.current.Load().people
	for i := range people {
		if subtle.ConstantTimeCompare(hash[:], people[i].hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Principal{}, false
	}
	return people[found].principal, true
}

// Person finds somebody by name, as the file has it now.
func (t *Tokens) Person(name string) (Principal, bool) {
	for _, p := range t.current.Load().people {
		if p.principal.Name == name {
			return p.principal, true
		}
	}
	return Principal{}, false
}

// Package tokenfile reads and writes the file of people's tokens that dev and
// small installations use in the place of OIDC:
//
//	tokens:
//	  - {name: alice, token: hf_…, roles: [developer], groups: [search], tenants: [default]}
//
// The file holds secrets, so it is written with mode 0600 and refused when
// others may read it, but for the group of a file that is root's.
package tokenfile

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"sigs.k8s.io/yaml"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/events"
)

const (
	// MinTokenLength keeps tokens out of reach of guessing.
	MinTokenLength = 16
	// maxFileBytes bounds what is read: a file of tokens is small.
	maxFileBytes = 1 << 20
	// maxNameLength is what fits into an actor's id with room for its kind.
	maxNameLength = 128
	tokenPrefix   = "hf_"
)

// ErrInvalid is wrapped by every error that says what is wrong with a file.
var ErrInvalid = errors.New("invalid tokens file")

// Entry is one person.
type Entry struct {
	// Name is who it is, without "user:".
	Name string `json:"name"`
	// Token is the bearer token.
	Token string `json:"token"`
	// Roles hold in all of Tenants.
	Roles []api.Role `json:"roles"`
	// Groups are those that policies name as "group:<name>".
	Groups []string `json:"groups,omitempty"`
	// Tenants are where it may act; the first is the default.
	Tenants []string `json:"tenants"`
}

// document is the file.
type document struct {
	Tokens []Entry `json:"tokens"`
}

// NewToken makes a token of 160 random bits.
func NewToken() string {
	var b [20]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// Read gives the entries of a file. Errors are ErrInvalid or the file system's,
// and never hold a token.
func Read(path string) ([]Entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	if readByOthers(info, os.Geteuid()) {
		return nil, fmt.Errorf("%w: %s may be read by others: chmod 600 it", ErrInvalid, path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	entries, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return entries, nil
}

// readByOthers says whether somebody else than the file's owner and the process, whose
// user is uid, may read it. A file of root's may be read by a group: so a Secret of Kubernetes
// comes into a Pod whose process is nobody's root.
func readByOthers(info fs.FileInfo, uid int) bool {
	allowed := fs.FileMode(0o600)
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid == 0 && uid != 0 {
		allowed = 0o640
	}
	return info.Mode().Perm()&0o077&^allowed != 0
}

// Parse reads the file's YAML and checks it.
func Parse(data []byte) ([]Entry, error) {
	if len(data) > maxFileBytes {
		return nil, fmt.Errorf("%w: larger than %d bytes", ErrInvalid, maxFileBytes)
	}
	var doc document
	if err := yaml.UnmarshalStrict(data, &doc); err != nil {
		// The decoder's own words may quote a token, so they stay here.
		return nil, fmt.Errorf("%w: not the YAML of a list of tokens", ErrInvalid)
	}
	return doc.Tokens, check(doc.Tokens)
}

func check(entries []Entry) error {
	seen := map[string]bool{}
	for i, e := range entries {
		switch {
		case e.Name == "" || len(e.Name) > maxNameLength:
			return fmt.Errorf("%w: entry %d: a name has 1 to %d characters", ErrInvalid, i, maxNameLength)
		case len(e.Token) < MinTokenLength:
			return fmt.Errorf("%w: %s: a token has at least %d characters", ErrInvalid, e.Name, MinTokenLength)
		case seen[e.Token]:
			return fmt.Errorf("%w: %s: the token is another one's already", ErrInvalid, e.Name)
		case len(e.Tenants) == 0:
			return fmt.Errorf("%w: %s: no tenants", ErrInvalid, e.Name)
		}
		seen[e.Token] = true
		if bad := slices.IndexFunc(e.Tenants, func(t string) bool { return !events.ValidToken(t) }); bad >= 0 {
			return fmt.Errorf("%w: %s: %q can't be a tenant's name", ErrInvalid, e.Name, e.Tenants[bad])
		}
		if bad := slices.IndexFunc(e.Roles, func(r api.Role) bool { return !r.Valid() }); bad >= 0 {
			return fmt.Errorf("%w: %s: %q is no role", ErrInvalid, e.Name, e.Roles[bad])
		}
	}
	return nil
}

// Write puts the entries into a file of mode 0600, in one step: whoever reads
// meanwhile sees the old ones or the new ones.
func Write(path string, entries []Entry) error {
	if err := check(entries); err != nil {
		return err
	}
	data, err := yaml.Marshal(document{Tokens: entries})
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tokens-*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	_, err = io.Copy(f, bytes.NewReader(data))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("tokens: %w", err), os.Remove(f.Name()))
	}
	return nil
}

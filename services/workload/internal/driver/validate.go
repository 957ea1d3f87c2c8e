package driver

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// token is what names of tenants and sessions look like: they name directories and
// objects of a cluster.
var token = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// reserved are the places of a sandbox that no other mount may cover.
var reserved = []string{"/bin", "/dev", "/etc", "/holdfast", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/run", "/sbin", "/sys", "/usr"}

// Validate is ErrInvalid for a reference that can name no sandbox.
func (r Ref) Validate() error {
	if !token.MatchString(r.Tenant) || !token.MatchString(r.Session) {
		return fmt.Errorf("%w: tenant %q, session %q", ErrInvalid, r.Tenant, r.Session)
	}
	return nil
}

// Compare orders sandboxes by tenant, session and generation.
func (r Ref) Compare(other Ref) int {
	return cmp.Or(cmp.Compare(r.Tenant, other.Tenant), cmp.Compare(r.Session, other.Session), cmp.Compare(r.Generation, other.Generation))
}

// Validate is ErrInvalid for a claim that no driver could carry out.
func (c Claim) Validate() error { return errors.Join(c.Ref.Validate(), c.Runtime.Validate()) }

// Validate is ErrInvalid for a runtime that no driver could run.
func (s RuntimeSpec) Validate() error {
	if err := ValidatePlace(s.WorkspacePath); err != nil {
		return fmt.Errorf("%w: runtime %s: workspace path: %w", ErrInvalid, s.Name, err)
	}
	if err := s.Limits.Validate(); err != nil {
		return fmt.Errorf("%w: runtime %s: %w", ErrInvalid, s.Name, err)
	}
	return nil
}

// Validate refuses negative limits.
func (l Limits) Validate() error {
	if l.MemoryBytes < 0 || l.CPUMillis < 0 || l.Pids < 0 || l.DiskBytes < 0 {
		return errors.New("negative limits")
	}
	return nil
}

// ValidatePlace checks a path at which something is mounted in sandboxes.
func ValidatePlace(p string) error {
	if !filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/" || p == "/tmp" {
		return fmt.Errorf("%q is no clean absolute path of a directory of its own", p)
	}
	if slices.ContainsFunc(reserved, func(r string) bool { return p == r || strings.HasPrefix(p, r+"/") }) {
		return fmt.Errorf("%q belongs to the system", p)
	}
	return nil
}

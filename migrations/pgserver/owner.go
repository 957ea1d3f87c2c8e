package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// owner is the user that the server runs as. The zero value is this process's
// own user.
type owner struct {
	uid, gid uint32
	other    bool // not this process's own user
}

// ownerOf decides who runs the server whose cluster is, or will be, in data.
func ownerOf(data string) (owner, error) {
	if os.Geteuid() != 0 {
		return owner{}, nil
	}
	// Data that is there decides: it stays readable when a user named postgres
	// appears later, and for whoever started it without root.
	if info, err := os.Stat(data); err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 {
			return owner{uid: st.Uid, gid: st.Gid, other: true}, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return owner{}, fmt.Errorf("look for existing data: %w", err)
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil || uid == 0 {
			continue
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			continue
		}
		return owner{uid: uint32(uid), gid: uint32(gid), other: true}, nil
	}
	return owner{}, errors.New("PostgreSQL does not run as root, and this machine has neither a user postgres nor nobody to run it as: " +
		"add one (useradd --system postgres), or start as an ordinary user")
}

// give makes the owner own path.
func (o owner) give(path string) error {
	if !o.other {
		return nil
	}
	if err := os.Lchown(path, int(o.uid), int(o.gid)); err != nil {
		return fmt.Errorf("hand over to the server's user: %w", err)
	}
	return nil
}

// reaches reports whether the owner may pass through all folders above path.
// Only modes are looked at: a wrong yes would show as an error of the server.
func (o owner) reaches(path string) bool {
	if !o.other {
		return true
	}
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return false
		}
		need := fs.FileMode(0o001)
		switch {
		case st.Uid == o.uid:
			need = 0o100
		case st.Gid == o.gid:
			need = 0o010
		}
		if info.Mode()&need == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// attributes are those of a child of ours that runs as the owner.
func (o owner) attributes(onParentDeath syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attr, onParentDeath)
	if o.other {
		attr.Credential = &syscall.Credential{Uid: o.uid, Gid: o.gid}
	}
	return attr
}

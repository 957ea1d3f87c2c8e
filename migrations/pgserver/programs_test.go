package pgserver_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-io/holdfast/migrations/pgserver"
)

// install makes a folder with programs that only tell their version.
func install(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\necho '%s'\n", version)
	for _, name := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		version string
		major   int // 0: refused
	}{
		{"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", 15},
		{"postgres (PostgreSQL) 17beta1", 17},
		{"postgres (PostgreSQL) 18.0", 18},
		{"postgres (PostgreSQL) 14.9", 0},
		{"postgres (PostgreSQL) ", 0},
		{"something else", 0},
		{"", 0},
	} {
		got, err := pgserver.Find(t.Context(), install(t, c.version), 0)
		_, missing := errors.AsType[*pgserver.MissingError](err)
		switch {
		case c.major == 0 && !missing:
			t.Errorf("%q: got %v and %v, want a MissingError", c.version, got, err)
		case c.major != 0 && (err != nil || got.Major != c.major):
			t.Errorf("%q: got %v and %v, want %d", c.version, got, err, c.major)
		}
	}
}

func TestMissingProgramsAreNamed(t *testing.T) {
	empty := t.TempDir()
	t.Setenv(pgserver.EnvBin, empty)
	_, err := pgserver.Start(t.Context(), quick(t.TempDir()))
	if _, ok := errors.AsType[*pgserver.MissingError](err); !ok {
		t.Fatalf("a start without programs gave %v", err)
	}
	for _, part := range []string{empty + " has no initdb", "PostgreSQL 15", "apt-get install postgresql", pgserver.EnvBin} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q: %v", part, err)
		}
	}
}

// An explicit folder wins over the environment and is not passed over.
func TestAnExplicitFolderWins(t *testing.T) {
	t.Setenv(pgserver.EnvBin, install(t, "postgres (PostgreSQL) 16.1"))
	if p, err := pgserver.Find(t.Context(), "", 15); err != nil || p.Major != 16 {
		t.Errorf("by the environment: %v, %v", p, err)
	}
	if p, err := pgserver.Find(t.Context(), install(t, "postgres (PostgreSQL) 17.1"), 15); err != nil || p.Major != 17 {
		t.Errorf("by the configuration: %v, %v", p, err)
	}
}

func TestDataOfAnotherVersionIsNamed(t *testing.T) {
	t.Parallel()
	c := quick(t.TempDir())
	data := filepath.Join(c.Dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := pgserver.Start(t.Context(), c)
	var version *pgserver.VersionError
	if !errors.As(err, &version) || version.Data != 9 || version.Found < pgserver.MinMajor {
		t.Fatalf("data of PostgreSQL 9 gave %v", err)
	}
}

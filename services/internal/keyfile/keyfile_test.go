package keyfile_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast/services/internal/keyfile"
)

func TestEnsureMakesOnceAndKeeps(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys", "sandbox.pem")
	made, err := keyfile.Ensure(path)
	if err != nil {
		t.Fatal(err)
	}
	again, err := keyfile.Ensure(path)
	if err != nil || !bytes.Equal(made, again) {
		t.Fatalf("another key the second time (%v)", err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("private key has mode %v (%v)", info.Mode(), err)
	}
	for _, file := range []string{path, path + keyfile.PublicSuffix} {
		public, err := keyfile.Public(file)
		if err != nil || !public.Equal(made.Public()) {
			t.Errorf("%s: not the public half (%v)", filepath.Base(file), err)
		}
	}
	if _, err := keyfile.Private(path + keyfile.PublicSuffix); !errors.Is(err, keyfile.ErrNoKey) {
		t.Errorf("a public key passed for a private one: %v", err)
	}
}

func TestWhatIsNoKeyIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := keyfile.Private(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	for name, content := range map[string]string{
		"text":  "hello",
		"empty": "",
		"other": "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := keyfile.Ensure(path); !errors.Is(err, keyfile.ErrNoKey) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := keyfile.Public(path); !errors.Is(err, keyfile.ErrNoKey) {
			t.Errorf("%s as public: %v", name, err)
		}
	}
}

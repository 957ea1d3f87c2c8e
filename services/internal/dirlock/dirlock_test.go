package dirlock_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-io/holdfast/services/internal/dirlock"
)

func TestOneHolderAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	first, second := open(), open()
	if err := dirlock.Lock(first); err != nil {
		t.Fatal(err)
	}
	if err := dirlock.Lock(second); !errors.Is(err, dirlock.ErrHeld) {
		t.Fatalf("a second holder: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := dirlock.Lock(second); err != nil {
		t.Fatalf("not given back: %v", err)
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
}

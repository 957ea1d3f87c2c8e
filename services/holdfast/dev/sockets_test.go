package dev

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The agents' socket is where it is said to be, whatever its name and however long its
// path, in place of one that was left there, and open to sandboxes' users.
func TestListenForAgents(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), strings.Repeat("long-", 30), "mine.sock")
	for range 2 {
		l, err := ListenForAgents(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != os.ModeSocket|0o666 {
			t.Errorf("%s is %s", path, info.Mode())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := net.Dial("unix", path); err == nil {
		t.Error("somebody answers")
	}
}

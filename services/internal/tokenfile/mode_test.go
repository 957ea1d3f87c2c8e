package tokenfile

import (
	"io/fs"
	"syscall"
	"testing"
	"testing/fstest"
)

func TestReadByOthers(t *testing.T) {
	for _, c := range []struct {
		name      string
		mode      fs.FileMode
		owner     uint32
		uid       int
		mayBeRead bool
	}{
		{"a person's own", 0o600, 1000, 1000, false},
		{"a person's own, for a group", 0o640, 1000, 1000, true},
		{"a Secret in a Pod", 0o440, 0, 10001, false},
		{"a Secret that all may read", 0o444, 0, 10001, true},
		{"root's, for root", 0o640, 0, 0, true},
	} {
		file := fstest.MapFS{"tokens.yaml": {Mode: c.mode, Sys: &syscall.Stat_t{Uid: c.owner}}}
		info, err := file.Stat("tokens.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if got := readByOthers(info, c.uid); got != c.mayBeRead {
			t.Errorf("%s: readByOthers(%v of %d, as %d) = %v", c.name, c.mode, c.owner, c.uid, got)
		}
	}
}

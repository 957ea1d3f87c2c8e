package drive

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// envFull holds the directory of TestFullDisk's child.
const envFull = "HOLDFAST_TEST_FULL"

// TestFullDisk runs its other half in a process whose files can't grow beyond
// some KiB, as those on a full disk: the limit counts for a whole process.
func TestFullDisk(t *testing.T) {
	if dir := os.Getenv(envFull); dir != "" {
		fullDisk(t, dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), envFull+"="+t.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestFullDisk")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// fullDisk: a run whose spool can't be written is over, and its readers are told
// so instead of waiting for an end.
func fullDisk(t *testing.T, dir string) {
	const limit = 2 << 10
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}))
	f := newFixture(t, say(runStarted, textStart, `{"type":"TEXT_MESSAGE_CONTENT","messageId":"m","delta":"`+strings.Repeat("x", limit)+`"}`, textEnd, runEnded))
	f.driver.cfg.Dir = dir
	_, err := f.driver.Start(request("r-1"))
	must(t, err)
	s, err := f.driver.Spool("r-1")
	if err == nil { // it may be broken by now
		err = s.Follow(t.Context(), 1, time.Hour, func([]byte) error { return nil })
		if !errors.Is(err, unix.EFBIG) {
			t.Errorf("a reader that was there: %v", err)
		}
	}
	f.driver.Stop()
	if f.driver.OpenRun() != "" {
		t.Error("the run is still open")
	}
	must(t, f.driver.Cancel("r-1"))
	_, err = f.driver.Spool("r-1")
	if !errors.Is(err, ErrGone) || !errors.Is(err, unix.EFBIG) || strings.Contains(err.Error(), dir) {
		t.Errorf("a reader that comes again: %v", err)
	}

	// A sandboxd that takes this up can write no end either.
	must(t, os.Truncate(filepath.Join(dir, "r-1"+spoolSuffix), 0))
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: limit}))
	f.dir = dir
	if _, err := f.open(nil).Spool("r-1"); !errors.Is(err, ErrGone) {
		t.Errorf("as the successor tells it: %v", err)
	}
}

package idle_test

import (
	"os"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/services/sandboxd/internal/idle"
)

// It stays until it is asked to end. Not parallel: the signal is the whole process's.
func TestStaysUntilAsked(t *testing.T) {
	guard := make(chan os.Signal, 1) // keeps the test alive should the signal come too early
	signal.Notify(guard, unix.SIGTERM)
	defer signal.Stop(guard)
	ended := make(chan int, 1)
	go func() { ended <- idle.Run() }()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	late := time.After(10 * time.Second)
	for asked := false; ; {
		select {
		case code := <-ended:
			if code != 0 || !asked {
				t.Errorf("ended with %d, asked: %t", code, asked)
			}
			return
		case <-again.C: // it may not have listened yet
			asked = true
			if err := unix.Kill(os.Getpid(), unix.SIGTERM); err != nil {
				t.Fatal(err)
			}
		case <-late:
			t.Fatal("doesn't end")
		}
	}
}

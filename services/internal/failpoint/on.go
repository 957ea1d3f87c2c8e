//go:build failpoint

package failpoint

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

var (
	mu   sync.Mutex
	hits = map[string]int{}
)

// Hit kills the process when the environment names this place.
func Hit(name string) {
	want, nth, _ := strings.Cut(os.Getenv("HOLDFAST_FAILPOINT"), "#")
	if want != name {
		return
	}
	at := 1
	if n, err := strconv.Atoi(nth); err == nil {
		at = n
	}
	mu.Lock()
	defer mu.Unlock()
	hits[name]++
	if hits[name] != at {
		return
	}
	if file := os.Getenv("HOLDFAST_FAILPOINT_FILE"); file != "" {
		if err := os.WriteFile(file, []byte(name), 0o600); err != nil {
			panic(err) // a test that can't prove the place was reached must not go on
		}
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // nothing after this place may run
}

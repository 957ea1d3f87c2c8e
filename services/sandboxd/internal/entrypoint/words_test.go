package entrypoint

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// TestWordsAreBounded: of whatever is printed in whatever pieces the end is kept.
func TestWordsAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var v words
		var all []byte
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 3*wordsBytes), 0, 8).Draw(t, "pieces") {
			piece := make([]byte, n)
			for i := range piece {
				piece[i] = byte(len(all) + i*7)
			}
			v.keep(piece)
			all = append(all, piece...)
		}
		if want := all[max(0, len(all)-wordsBytes):]; string(v.end) != string(want) || cap(v.end) > 2*wordsBytes {
			t.Fatalf("%d bytes of %d are kept, want %d, in %d", len(v.end), len(all), len(want), cap(v.end))
		}
	})
}

func TestClean(t *testing.T) {
	for said, want := range map[string]string{
		"": "", "\n ok \n": "ok", "a\tb\nc": "a\tb\nc", "\x1b]0;title\a\x00x\r\n": "]0;titlex", "half \xc3": "half", "\u202ereversed": "reversed",
	} {
		if got := clean([]byte(said)); got != want {
			t.Errorf("%q is %q, want %q", said, got, want)
		}
	}
}

// TestFailedEntrypointsWords: the end of what it printed is there, the reason has
// none of it, and one that prints without end isn't waited for.
func TestFailedEntrypointsWords(t *testing.T) {
	e := shell(t, `yes s3cret | head -c 3000000; (setsid yes s3cret & echo); echo why >&2; exit 3`)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := e.WaitReady(ctx); !errors.Is(err, ErrFailed) || strings.Contains(err.Error(), "s3cret") {
		t.Fatalf("%v", err)
	}
	status, _ := e.Status()
	if status.State != sandboxapi.EntrypointFailed || strings.Contains(status.Reason, "s3cret") ||
		!strings.Contains(status.Said, "s3cret") || len(status.Said) > wordsBytes {
		t.Errorf("%+v", status)
	}
}

// TestHiddenWriter: who keeps the descriptor out of reach delays the end, but
// doesn't prevent it.
func TestHiddenWriter(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }() // it hides until here
	v := &words{r: r, w: w, done: make(chan struct{})}
	go v.read()
	if _, err := w.WriteString("why\n"); err != nil {
		t.Fatal(err)
	}
	if got := v.finish(); got != "why" {
		t.Errorf("it said %q", got)
	}
}

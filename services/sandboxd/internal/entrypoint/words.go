package entrypoint

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	// wordsBytes is how much of the end of what an agent prints is kept.
	wordsBytes = 4 << 10
	// wordsWait is left for the last of it after the process and all that it
	// started have been killed; only who hid its descriptor lets it pass.
	wordsWait = 200 * time.Millisecond
)

// words is the end of what one incarnation prints. An agent prints secrets, and
// without end: so it is read here, and nothing of it goes where sandboxd's own log
// goes. The pipe never fills up, so that printing blocks nobody.
type words struct {
	r, w *os.File
	done chan struct{}

	mu  sync.Mutex
	end []byte
}

// listen makes cmd print into a pipe. [words.started] must follow the start.
func listen(cmd *exec.Cmd) (*words, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("pipe for output: %w", err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	v := &words{r: r, w: w, done: make(chan struct{})}
	go v.read()
	return v, nil
}

func (v *words) read() {
	defer close(v.done)
	buf := make([]byte, 8*wordsBytes)
	for {
		n, err := v.r.Read(buf)
		v.keep(buf[:n])
		if err != nil { // the end, or the deadline of finish
			return
		}
	}
}

func (v *words) keep(said []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	said = said[max(0, len(said)-wordsBytes):]
	if over := len(v.end) + len(said) - wordsBytes; over > 0 {
		v.end = v.end[:copy(v.end, v.end[over:])]
	}
	v.end = append(v.end, said...)
}

// started gives up our copy of the writing end, which would hide the end.
func (v *words) started() { _ = v.w.Close() } // nothing waits in it

// finish waits for the last words, but not for those who hid, and returns the
// end of them all without control characters.
func (v *words) finish() string {
	if v.r.SetReadDeadline(time.Now().Add(wordsWait)) == nil { // a pipe has deadlines
		<-v.done
	}
	_ = v.r.Close() // only read from
	<-v.done
	v.mu.Lock()
	defer v.mu.Unlock()
	return clean(v.end)
}

// clean makes text of what was printed: valid, and in lines.
func clean(said []byte) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.ToValidUTF8(string(said), "")))
}

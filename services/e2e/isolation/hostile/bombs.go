package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// forkBomb starts Count processes; the proof is that all came to be.
func forkBomb(o Order) (string, error) {
	var started []*exec.Cmd
	defer func() {
		for _, cmd := range started {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()
	for len(started) < o.Count {
		cmd := exec.Command("/bin/sleep", "100")
		if err := cmd.Start(); err != nil {
			return "", fmt.Errorf("%d processes, then: %w", len(started), err)
		}
		started = append(started, cmd)
	}
	return fmt.Sprintf("%d processes", len(started)), nil
}

// memoryBomb has a process of its own hold Count MiB; the proof is that it lives.
func memoryBomb(o Order) (string, error) {
	out, err := exec.Command(self(), "grab", strconv.Itoa(o.Count)).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w %.200s", err, out)
	}
	return string(out), nil
}

// grab takes memory and touches it.
func grab(mib string) {
	n, err := strconv.Atoi(mib)
	if err != nil {
		os.Exit(1)
	}
	held, err := unix.Mmap(-1, 0, n<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		fmt.Fprintln(os.Stdout, err)
		os.Exit(1)
	}
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
	}
	fmt.Fprintf(os.Stdout, "held %d MiB", n)
}

// fill writes files of 1 MiB below Path until Count MiB are there.
func fill(o Order) (string, error) {
	block := make([]byte, 1<<20)
	for i := range o.Count {
		if err := os.WriteFile(filepath.Join(o.Path, fmt.Sprintf("fill-%d", i)), block, 0o600); err != nil {
			return "", fmt.Errorf("%d MiB, then: %w", i, err)
		}
	}
	return fmt.Sprintf("%d MiB", o.Count), nil
}

// perMessage is how many pieces of 64 KiB a message has.
const perMessage = 64

// misbehave answers an AG-UI run with what its input asks for: "endless" or "huge".
func misbehave(w http.ResponseWriter, r *http.Request) {
	var input strings.Builder
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Body.Read(buf)
		input.Write(buf[:n])
		if err != nil {
			break
		}
	}
	thread, run := field(input.String(), "threadId"), field(input.String(), "runId")
	w.Header().Set("Content-Type", "text/event-stream")
	say := func(event string) bool {
		_, err := fmt.Fprintf(w, "data: %s\n\n", event)
		return err == nil
	}
	say(fmt.Sprintf(`{"type":"RUN_STARTED","threadId":%q,"runId":%q}`, thread, run))
	say(`{"type":"TEXT_MESSAGE_START","messageId":"m-0","role":"assistant"}`)
	chunk := strings.Repeat("x", 64<<10)
	if strings.Contains(input.String(), "huge") {
		chunk = strings.Repeat("x", 20<<20)
	}
	for begin, i := time.Now(), 0; time.Since(begin) < time.Minute; i++ {
		ok := say(fmt.Sprintf(`{"type":"TEXT_MESSAGE_CONTENT","messageId":"m-%d","delta":%q}`, i/perMessage, chunk))
		if i%perMessage == perMessage-1 {
			ok = ok && say(fmt.Sprintf(`{"type":"TEXT_MESSAGE_END","messageId":"m-%d"}`, i/perMessage)) &&
				say(fmt.Sprintf(`{"type":"TEXT_MESSAGE_START","messageId":"m-%d","role":"assistant"}`, i/perMessage+1))
		}
		if !ok {
			return
		}
	}
}

// field finds a string field of JSON, whatever else is in there.
func field(raw, name string) string {
	_, after, _ := strings.Cut(raw, `"`+name+`":"`)
	value, _, _ := strings.Cut(after, `"`)
	return value
}

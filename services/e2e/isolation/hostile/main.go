// Command hostile is the agent of the hostile suite: an entrypoint that tries what
// it is told to, from inside a sandbox, and says honestly whether it got it.
//
//	GET  /health  200
//	GET  /mark    the value of MARK, which is this sandbox's own secret
//	POST /try     an Order; answered with an Outcome
//	POST /run     an AG-UI run that misbehaves as its last message says
//
// Each attempt is a process of its own, so that none spoils the next.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
)

// Order is one attempt. What the fields beside Attack mean is the attack's matter.
type Order struct {
	Attack  string `json:"attack"`
	Path    string `json:"path,omitempty"`
	Network string `json:"network,omitempty"`
	Address string `json:"address,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Text    string `json:"text,omitempty"`
	Count   int    `json:"count,omitempty"`
}

// Outcome says what came of an Order.
type Outcome struct {
	// Got is true where the attempt succeeded; Detail is its proof, or why not.
	Got    bool   `json:"got"`
	Detail string `json:"detail"`
	// Absent says that the kernel doesn't have what was tried.
	Absent bool `json:"absent,omitempty"`
}

// tryTimeout bounds an attempt.
const tryTimeout = 30 * time.Second

func main() {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "try":
		tryHere(os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == "sleep":
		time.Sleep(time.Hour) //nolint:forbidigo // what bombs start: only a limit ends it
	case len(os.Args) == 3 && os.Args[1] == "grab":
		grab(os.Args[2])
	default:
		serve()
	}
}

func serve() {
	http.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("GET /mark", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, os.Getenv("MARK")) })
	http.HandleFunc("POST /try", try)
	http.HandleFunc("POST /run", misbehave)
	server := http.Server{Addr: "127.0.0.1:" + os.Getenv("PORT"), ReadHeaderTimeout: 10 * time.Second}
	slog.Error("can't serve", "err", server.ListenAndServe())
	os.Exit(1)
}

// try hands an order to a process of its own.
func try(w http.ResponseWriter, r *http.Request) {
	order, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), tryTimeout)
	defer cancel()
	var out, said bytes.Buffer
	cmd := exec.CommandContext(ctx, self(), "try", string(order))
	cmd.Stdout, cmd.Stderr = &out, &said
	cmd.WaitDelay = time.Second
	if err := cmd.Run(); err != nil {
		// Killed on its way: by a filter, a limit, or the deadline.
		out.Reset()
		tell(&out, Outcome{Detail: fmt.Sprintf("the attempt died: %v %s", err, said.String())})
	}
	if _, err := w.Write(out.Bytes()); err != nil {
		slog.Warn("the caller is gone", "err", err)
	}
}

// self is this program, also where /proc can't be trusted to say so.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}

// tryHere tries an order in this process and prints the outcome.
func tryHere(raw string) {
	var o Order
	if err := json.Unmarshal([]byte(raw), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	attack, ok := attacks[o.Attack]
	if !ok {
		fmt.Fprintf(os.Stderr, "there is no attack %q\n", o.Attack)
		os.Exit(1)
	}
	proof, err := attack(o)
	outcome := Outcome{Got: err == nil, Detail: proof, Absent: errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EAFNOSUPPORT)}
	if err != nil {
		outcome.Detail = err.Error()
	}
	tell(os.Stdout, outcome)
}

func tell(w io.Writer, outcome Outcome) {
	if err := json.NewEncoder(w).Encode(outcome); err != nil {
		slog.Error("can't tell the outcome", "err", err)
	}
}

// attacks by their names; each gives its proof, or why it failed.
var attacks = map[string]func(Order) (string, error){
	"read": readFile, "list": listDirectory, "overwrite": overwrite, "create": create, "open for writing": openForWriting,
	"mknod": makeNode, "setuid": setUID, "handle": openByHandle,
	"environments": environments, "memory": memory, "vm-readv": vmReadv, "ptrace": ptraceAttach, "signal": signal,
	"descriptors": descriptorsOf, "pidfd-getfd": stealDescriptor, "inherited": inheritedSockets,
	"connect": connect, "fetch": fetch, "interfaces": interfaces, "route": route, "socket": openSocket,
	"syscall": rawSyscall, "clone": cloneNamespace, "terminal": typeIntoTerminal, "setns": enterNamespace,
	"agent-api": agentAPI, "flood": flood, "fork-bomb": forkBomb, "memory-bomb": memoryBomb, "fill": fill,
}

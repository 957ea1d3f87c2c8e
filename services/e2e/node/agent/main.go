// Command agent is the agent of the node's suite: it does at once, and without being
// asked why, what agents should not.
//
//	GET  /health            200
//	POST /eat               takes memory until something ends it
//	POST /run               the body is a shell's script; answers what it wrote
//	GET  /reach?to=a:b,…    one line for each address: whether a connection was made
package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// reachTimeout is short: what drops packets answers nothing.
const reachTimeout = 2 * time.Second

func main() {
	http.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("POST /eat", func(http.ResponseWriter, *http.Request) { eat() })
	http.HandleFunc("POST /run", script)
	http.HandleFunc("GET /reach", reach)
	server := http.Server{Addr: "127.0.0.1:" + os.Getenv("PORT"), ReadHeaderTimeout: 10 * time.Second}
	slog.Error("can't serve", "err", server.ListenAndServe())
	os.Exit(1)
}

// eat takes eight megabytes at a time, and writes to each page: only then it is there.
func eat() {
	for held := [][]byte{}; ; {
		more := make([]byte, 8<<20)
		for i := 0; i < len(more); i += os.Getpagesize() {
			more[i] = 1
		}
		held = append(held, more)
	}
}

func script(w http.ResponseWriter, r *http.Request) {
	cmd := exec.CommandContext(r.Context(), "sh", "-e")
	cmd.Stdin = r.Body
	wrote, err := cmd.CombinedOutput()
	if err != nil {
		http.Error(w, fmt.Sprintf("%v: %s", err, wrote), http.StatusUnprocessableEntity)
		return
	}
	_, _ = w.Write(wrote)
}

func reach(w http.ResponseWriter, r *http.Request) {
	addresses := strings.Split(r.URL.Query().Get("to"), ",")
	found := make([]string, len(addresses))
	var all sync.WaitGroup
	for i, a := range addresses {
		all.Go(func() {
			conn, err := net.DialTimeout("tcp", a, reachTimeout)
			if err != nil {
				found[i] = "no: " + err.Error()
				return
			}
			found[i] = "yes"
			_ = conn.Close()
		})
	}
	all.Wait()
	for i, a := range addresses {
		fmt.Fprintf(w, "%s %s\n", a, found[i])
	}
}

// Command probeagent is the agent of the drivers' suite: an HTTP server that
// runs what it is sent, so that a test can look around from inside a sandbox.
//
//	GET  /health   200
//	POST /sh       runs the body by /bin/sh -c in the working directory and
//	               answers its output and errors, in a header Exit its exit code
//	GET  /holdfast asks Holdfast for the session, the only way out of a sandbox,
//	               and answers what came back
package main

import (
	"cmp"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"
)

func main() {
	http.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("POST /sh", run)
	http.HandleFunc("GET /holdfast", askHoldfast)
	// Where Pods are processes of one machine, each has another address for its loopback.
	address := net.JoinHostPort(cmp.Or(os.Getenv("LOOPBACK"), "127.0.0.1"), os.Getenv("PORT"))
	server := http.Server{Addr: address, ReadHeaderTimeout: 10 * time.Second}
	slog.Error("can't serve", "err", server.ListenAndServe())
	os.Exit(1)
}

func run(w http.ResponseWriter, r *http.Request) {
	script, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	out, err := exec.CommandContext(r.Context(), "/bin/sh", "-c", string(script)).CombinedOutput()
	code := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	} else if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Exit", strconv.Itoa(code))
	if _, err := w.Write(out); err != nil {
		slog.Warn("the caller is gone", "err", err)
	}
}

func askHoldfast(w http.ResponseWriter, r *http.Request) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, os.Getenv("HOLDFAST_URL")+"/v1/agent/session", nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
	if _, err := io.Copy(w, resp.Body); err != nil {
		slog.Warn("the caller is gone", "err", err)
	}
}

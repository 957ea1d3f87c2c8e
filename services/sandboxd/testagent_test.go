package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/coder/websocket"

	"github.com/holdfast-io/holdfast/services/internal/sandboxapi"
)

// serveTestAgent is an entrypoint that tells what it was given and echoes.
func serveTestAgent() int {
	inherited := openDescriptors()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {})
	mux.HandleFunc("GET /descriptors", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(inherited)
	})
	mux.HandleFunc("GET /relay", func(w http.ResponseWriter, r *http.Request) {
		resp, err := http.Get(os.Getenv(sandboxapi.EnvAgentURL) + r.URL.Query().Get("path"))
		if err != nil {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		w.WriteHeader(resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	})
	mux.HandleFunc("GET /socket", func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = conn.CloseNow() }()
		for {
			kind, data, err := conn.Read(r.Context())
			if err != nil || conn.Write(r.Context(), kind, data) != nil {
				return
			}
		}
	})
	// A mux would answer unclean paths with a redirect.
	all := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/echo/") {
			mux.ServeHTTP(w, r)
			return
		}
		body, _ := io.ReadAll(r.Body)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"uri": r.RequestURI, "method": r.Method, "body": string(body), "headers": r.Header,
		})
	})
	relay, err := url.Parse(os.Getenv(sandboxapi.EnvAgentURL))
	if err != nil || http.ListenAndServe(net.JoinHostPort(relay.Hostname(), os.Getenv(sandboxapi.EnvPort)), all) != nil {
		return 1
	}
	return 0
}

// openDescriptors lists what this process had when it started, by what it is.
func openDescriptors() []string {
	var list []string
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return []string{err.Error()}
	}
	for _, name := range names {
		if target, err := os.Readlink("/proc/self/fd/" + name); err == nil {
			list = append(list, name+" "+target)
		}
	}
	return list
}

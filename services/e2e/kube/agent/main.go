// Command agent is an agent for the suite's calls into a sandbox.
//
//	GET /health  200
//	GET /wait    answers when the caller has gone, or the agent
package main

import (
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

func main() {
	http.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	http.HandleFunc("GET /wait", func(_ http.ResponseWriter, r *http.Request) {
		slog.Info("somebody waits")
		<-r.Context().Done()
	})
	relay, err := url.Parse(os.Getenv("HOLDFAST_URL"))
	if err != nil {
		slog.Error("HOLDFAST_URL is no URL", "err", err)
		os.Exit(1)
	}
	// It serves on the loopback that it shares with sandboxd.
	server := http.Server{Addr: net.JoinHostPort(relay.Hostname(), os.Getenv("PORT")), ReadHeaderTimeout: 10 * time.Second}
	slog.Error("can't serve", "err", server.ListenAndServe())
	os.Exit(1)
}

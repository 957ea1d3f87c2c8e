// Package dev is `holdfast dev`: the whole control plane in one process, with an
// embedded NATS, its own Postgres, and the local driver. It is also how tests run
// the whole program.
//
//	<data-dir>/
//	  lock            held while a dev runs on it
//	  server.json     where the running one answers, for the CLI
//	  tokens.yaml     tokens of admin, alice and bob (0600)
//	  keys/           what signs sandboxes' tokens (0600)
//	  nats/           JetStream: the log
//	  postgres/       the views
//	  agent/          the listener for agents, a unix socket
//	  host/           the way to sandboxes, a unix socket
//	  local/          sandboxes and workspaces
//	  bin/            sandboxd, where it had to be built
package dev

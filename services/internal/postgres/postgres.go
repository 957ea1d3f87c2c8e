// Package postgres runs the Postgres of `holdfast dev`: one server of the
// programs installed on this machine, on a unix socket, with durable settings
// and the modest appetite of something beside an editor and a browser. How a
// server is started, watched and kept from outliving its parent is package
// pgserver's, which tests use with other settings.
//
// Whoever has a server already sets [EnvURL] and needs none of this.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/holdfast-io/holdfast/migrations/pgserver"
)

// EnvURL names the environment variable with the URL of a Postgres to use
// instead of starting one.
const EnvURL = "HOLDFAST_POSTGRES_URL"

// The errors that a start can be told by, and what runs.
type (
	// Server is a running PostgreSQL: DSN, Done and Err, Stop.
	Server = pgserver.Server
	// MissingError says that no usable PostgreSQL programs were found.
	MissingError = pgserver.MissingError
	// VersionError says that the data is of a version that isn't installed.
	VersionError = pgserver.VersionError
	// InUseError names the process that has the folder.
	InUseError = pgserver.InUseError
	// ExitError says that the server ended by itself, or never came up.
	ExitError = pgserver.ExitError
)

// Config says where the server lives.
type Config struct {
	// Dir is the server's folder, made when it isn't there. Required. As root
	// the server runs as an unprivileged user, which the folders above need
	// not let in.
	Dir string
	// BinDir is the folder with initdb and postgres. Empty: the one that
	// HOLDFAST_POSTGRES_BIN names, else PATH and where distributions put them.
	BinDir string
	// Logger gets the server's log: at debug level, its last words at warn.
	Logger *slog.Logger
}

// settings are for one developer's machine. What was committed is on disk;
// there is no standby to feed.
var settings = map[string]string{
	"fsync":              "on",
	"synchronous_commit": "on",
	"full_page_writes":   "on",
	"shared_buffers":     "64MB",
	"max_connections":    "100",
	"wal_level":          "minimal",
	"max_wal_senders":    "0",
	"max_wal_size":       "256MB",
	"jit":                "off", // compiling costs more than our short queries
}

// Start starts the server, making its data the first time (about a second;
// afterwards a tenth), and returns when it answers on [Server.DSN]. ctx bounds
// the start only. Stop it before this process ends for an orderly shutdown; if
// this process is killed, the server ends with it and the next start recovers.
//
// Errors to tell apart: *[MissingError], *[VersionError], *[InUseError],
// *[ExitError]; each says the way out.
func Start(ctx context.Context, c Config) (*Server, error) {
	srv, err := pgserver.Start(ctx, pgserver.Config{
		Dir: c.Dir, BinDir: c.BinDir, Settings: settings, Logger: c.Logger,
	})
	if _, ok := errors.AsType[*MissingError](err); ok {
		return nil, fmt.Errorf("%w, or set %s to the URL of a running server", err, EnvURL)
	}
	if err != nil {
		return nil, fmt.Errorf("dev's Postgres: %w", err)
	}
	return srv, nil
}

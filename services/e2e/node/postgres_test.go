//go:build node

package node_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/holdfast-io/holdfast/migrations/pgserver"
	"github.com/holdfast-io/holdfast/services/e2e/node/onenode"
)

// postgresImage is the machine's PostgreSQL, started as the public image starts its own.
func postgresImage(ctx context.Context) (onenode.Image, error) {
	found, err := pgserver.Find(ctx, "", 0)
	if err != nil {
		return onenode.Image{}, err
	}
	var folders [2]string // what all programs share, and what the server loads
	for i, which := range []string{"--sharedir", "--pkglibdir"} {
		out, err := exec.CommandContext(ctx, filepath.Join(found.Bin, "pg_config"), which).Output()
		if err != nil {
			return onenode.Image{}, fmt.Errorf("pg_config %s: %w", which, err)
		}
		folders[i] = string(bytes.TrimSpace(out))
	}
	// initdb asks for the name of the user that it runs as: the chart's.
	users := filepath.Join(os.Getenv(onenode.EnvRoot), "passwd")
	if err := os.WriteFile(users, []byte("postgres:x:999:999::/tmp:/bin/sh\n"), 0o600); err != nil {
		return onenode.Image{}, err
	}
	image := onenode.Image{
		Name: sqlImage + ":" + tag, Shell: true, User: "999:999", Entrypoint: []string{"docker-entrypoint.sh", "postgres"},
		Files: map[string]string{
			"/etc/passwd":                         users,
			"/usr/local/bin/docker-entrypoint.sh": filepath.Join(root, "deploy/stand-ins/postgres-entrypoint.sh"),
		},
		Here: []string{folders[0], "/usr/share/zoneinfo", "/usr/lib/locale/C.utf8"},
		Env:  []string{"PATH=" + found.Bin + ":/usr/bin:/bin:/usr/local/bin", "LANG=C.UTF-8"},
	}
	for _, program := range []string{"postgres", "initdb", "pg_isready"} {
		image.Here = append(image.Here, filepath.Join(found.Bin, program))
	}
	for _, module := range []string{"plpgsql.so", "dict_snowball.so"} { // initdb wants them
		image.Here = append(image.Here, filepath.Join(folders[1], module))
	}
	return image, nil
}

package migrations

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

//go:embed sql
var files embed.FS

// Files are the embedded migrations, sql/views and sql/public, for what needs
// to know when they change.
func Files() fs.FS { return files }

// The folders of [files].
const (
	viewsDir  = "sql/views"
	publicDir = "sql/public"
)

// lockID is the advisory lock that serialises [Up] over all processes; the
// number means nothing, it must only be ours and never change.
const lockID int64 = 0x686f6c6466617374 // "holdfast"

// How long [Up] waits for another process's Up: 300 tries, a second apart.
const (
	lockPeriod = 1
	lockTries  = 300
)

// Up brings the database behind dsn (a URL or key=value string, as pgx reads
// them) to [Latest]. It is safe to call again and from several processes at
// once; each migration commits together with its version, so an Up that was
// cut short goes on where it stopped.
func Up(ctx context.Context, dsn string) error {
	return withProvider(dsn, func(p *goose.Provider) error {
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
		return nil
	})
}

// Version reports the version of the database behind dsn: 0 when nothing was
// ever applied.
func Version(ctx context.Context, dsn string) (int64, error) {
	var version int64
	err := withProvider(dsn, func(p *goose.Provider) (err error) {
		if version, err = p.GetDBVersion(ctx); err != nil {
			return fmt.Errorf("read the schema's version: %w", err)
		}
		return nil
	})
	return version, err
}

// Latest is the version that this build's [Up] leads to.
func Latest() int64 {
	all := must(allFiles())
	return all[len(all)-1].version
}

// withProvider runs f with a goose provider on a connection of its own: a
// service's pool is not tied up by waiting for the lock.
func withProvider(dsn string, f func(*goose.Provider) error) error {
	conf, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("parse the database's address: %w", err)
	}
	// goose's version table is always public's, whatever the caller's path.
	conf.RuntimeParams["search_path"] = publicSchema
	db := stdlib.OpenDB(*conf)
	defer db.Close()
	p, err := newProvider(db)
	if err != nil {
		return err
	}
	return f(p)
}

func newProvider(db *sql.DB) (*goose.Provider, error) {
	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(lockID),
		lock.WithLockTimeout(lockPeriod, lockTries),
	)
	if err != nil {
		return nil, fmt.Errorf("make the migrations' lock: %w", err)
	}
	var views []*goose.Migration
	for _, f := range must(filesIn(viewsDir)) {
		views = append(views, goose.NewGoMigration(f.version, &goose.GoFunc{
			RunTx: func(ctx context.Context, tx *sql.Tx) error {
				return f.apply(ctx, sqlTx{tx}, Views)
			},
		}, nil))
	}
	p, err := goose.NewProvider(database.DialectPostgres, db, must(fs.Sub(files, publicDir)),
		goose.WithSessionLocker(locker),
		goose.WithGoMigrations(views...),
		goose.WithDisableGlobalRegistry(true),
		goose.WithSlog(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return nil, fmt.Errorf("read the migrations: %w", err)
	}
	return p, nil
}

// file is one embedded migration.
type file struct {
	version int64
	path    string
	text    string
}

// filesIn reads a folder's migrations in order of version.
func filesIn(dir string) ([]file, error) {
	entries, err := files.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read embedded migrations: %w", err)
	}
	var out []file
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("name of embedded migration %s: %w", e.Name(), err)
		}
		text, err := files.ReadFile(path.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("read embedded migration: %w", err)
		}
		out = append(out, file{version: version, path: path.Join(dir, e.Name()), text: string(text)})
	}
	slices.SortFunc(out, byVersion)
	return out, nil
}

// allFiles reads both folders as the one sequence that they are.
func allFiles() ([]file, error) {
	var all []file
	for _, dir := range []string{viewsDir, publicDir} {
		in, err := filesIn(dir)
		if err != nil {
			return nil, err
		}
		all = append(all, in...)
	}
	slices.SortFunc(all, byVersion)
	return all, nil
}

func byVersion(a, b file) int { return int(a.version - b.version) }

// must is for what is compiled in: it can only fail in a build whose tests fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

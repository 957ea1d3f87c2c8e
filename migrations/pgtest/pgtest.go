package pgtest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", for pgtestdb
	"github.com/peterldowns/pgtestdb"

	"github.com/holdfast-io/holdfast/migrations"
)

// EnvURL names the environment variable with the URL of a server to use instead
// of starting one.
const EnvURL = "HOLDFAST_TEST_POSTGRES_URL"

// New makes a database with all migrations applied and returns its URL. It is
// dropped when the test ends, unless the test failed. A connection that is
// still open then fails the test: it is a leak.
func New(t testing.TB) string {
	t.Helper()
	return database(t, migrator{})
}

// Empty makes a database with nothing in it and returns its URL.
func Empty(t testing.TB) string {
	t.Helper()
	return database(t, pgtestdb.NoopMigrator{})
}

// Pool opens a pool on a new migrated database, with the search_path that
// queries on the read models need. It is closed when the test ends.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	return OpenPool(t, New(t), migrations.Views)
}

// OpenPool opens a pool on the database behind dsn, with the search_path for
// the read models of schema. It is closed when the test ends.
func OpenPool(t testing.TB, dsn, schema string) *pgxpool.Pool {
	t.Helper()
	conf, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	conf.ConnConfig.RuntimeParams["search_path"] = migrations.SearchPath(schema)
	pool, err := pgxpool.NewWithConfig(context.Background(), conf)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func database(t testing.TB, m pgtestdb.Migrator) string {
	t.Helper()
	base, err := server()
	if err != nil {
		t.Fatalf("pgtest: tests need a PostgreSQL server: %v; or set %s to the URL of a running one", err, EnvURL)
	}
	conf, err := config(base)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return pgtestdb.Custom(t, conf, m).URL()
}

// config takes a URL apart the way pgtestdb wants it. A unix socket's folder
// can't be a URL's host; it stays in the options.
func config(base string) (pgtestdb.Config, error) {
	u, err := url.Parse(base)
	if err != nil {
		return pgtestdb.Config{}, fmt.Errorf("URL of the server: %w", err)
	}
	password, _ := u.User.Password()
	conf := pgtestdb.Config{
		DriverName: "pgx",
		Host:       u.Hostname(), Port: u.Port(),
		User: u.User.Username(), Password: url.QueryEscape(password),
		Database: "postgres",
		Options:  u.RawQuery,
	}
	if conf.Port == "" {
		conf.Port = "5432"
	}
	if name := u.Path; len(name) > 1 {
		conf.Database = name[1:]
	}
	return conf, nil
}

// migrator makes pgtestdb's template by the product's own Up.
type migrator struct{}

// Hash names the template after everything that shapes it, so that a server
// that outlives a change of the SQL doesn't offer the old schema.
func (migrator) Hash() (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(migrations.Files(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.Files(), path)
		if err != nil {
			return err
		}
		fmt.Fprintf(sum, "%s %d\n%s", path, len(text), text)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hash the migrations: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// Migrate brings the template to the latest version.
func (migrator) Migrate(ctx context.Context, _ *sql.DB, conf pgtestdb.Config) error {
	return migrations.Up(ctx, conf.URL())
}

// Main wraps a package's tests so that the server is stopped, and its data
// removed, when they have run: for what takes tests by this interface, as
// goleak's VerifyTestMain does.
func Main(m *testing.M) interface{ Run() int } { return wrapped{m} }

// Exit runs a package's tests, stops the server, and ends the process.
func Exit(m *testing.M) { os.Exit(Main(m).Run()) }

type wrapped struct{ m *testing.M }

// Run runs the tests, then stops the server if any test has started it.
func (w wrapped) Run() int {
	code := w.m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return max(code, 1)
	}
	return code
}

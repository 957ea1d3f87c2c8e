package postgres_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/migrations"
	"github.com/holdfast-io/holdfast/services/internal/postgres"
)

// envHold makes the test binary the process that a test kills: it starts a
// server on the folder, says so, and waits.
const envHold = "POSTGRES_TEST_HOLD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(envHold); dir != "" {
		if _, err := postgres.Start(context.Background(), postgres.Config{Dir: dir}); err != nil {
			fmt.Fprintln(os.Stdout, err)
			os.Exit(1)
		}
		fmt.Fprintln(os.Stdout, "up")
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	goleak.VerifyTestMain(m)
}

func start(t *testing.T, dir string) *postgres.Server {
	t.Helper()
	srv, err := postgres.Start(t.Context(), postgres.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
	return srv
}

// text runs a query for one value.
func text(t *testing.T, srv *postgres.Server, query string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), srv.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var out string
	if err := conn.QueryRow(t.Context(), query).Scan(&out); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return out
}

// What dev does, through an end of the process that nobody could prepare for.
func TestDataOutlivesAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	srv := start(t, dir)
	if err := migrations.Up(t.Context(), srv.DSN()); err != nil {
		t.Fatal(err)
	}
	if err := srv.Stop(); err != nil {
		t.Fatal(err)
	}

	other := exec.Command("/proc/self/exe")
	other.Env = append(os.Environ(), envHold+"="+dir)
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "up\n" {
		t.Fatalf("the other process could not start: %s (%v)", line, err)
	}
	if err := other.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait() // "signal: killed"

	srv = start(t, dir)
	version, err := migrations.Version(t.Context(), srv.DSN())
	if err != nil || version != migrations.Latest() {
		t.Errorf("after a kill the schema's version is %d (%v), want %d", version, err, migrations.Latest())
	}
}

func TestCommitsAreOnDisk(t *testing.T) {
	t.Parallel()
	srv := start(t, t.TempDir())
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got := text(t, srv, "SHOW "+name); got != "on" {
			t.Errorf("%s is %s: a crash could lose what was committed", name, got)
		}
	}
	if got := text(t, srv, "SHOW listen_addresses"); got != "" {
		t.Errorf("the server listens on %q, want nothing but its socket", got)
	}
}

func TestASecondDevOnTheSameDataIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	start(t, dir)
	_, err := postgres.Start(t.Context(), postgres.Config{Dir: dir})
	var inUse *postgres.InUseError
	if !errors.As(err, &inUse) || inUse.PID != os.Getpid() {
		t.Errorf("a second start gave %v", err)
	}
}

func TestAMissingPostgresIsNamedWithAllWaysOut(t *testing.T) {
	t.Parallel()
	_, err := postgres.Start(t.Context(), postgres.Config{Dir: t.TempDir(), BinDir: t.TempDir()})
	if _, ok := errors.AsType[*postgres.MissingError](err); !ok {
		t.Fatalf("a start without programs gave %v", err)
	}
	for _, way := range []string{"apt-get install postgresql", "HOLDFAST_POSTGRES_BIN", postgres.EnvURL} {
		if !strings.Contains(err.Error(), way) {
			t.Errorf("the error does not say %q: %v", way, err)
		}
	}
}

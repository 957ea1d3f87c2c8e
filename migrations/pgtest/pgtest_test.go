package pgtest_test

import (
	"bufio"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/holdfast-io/holdfast/migrations/pgserver"
	"github.com/holdfast-io/holdfast/migrations/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

func TestPoolFindsTheReadModels(t *testing.T) {
	t.Parallel()
	var rows int
	if err := pgtest.Pool(t).QueryRow(t.Context(), "SELECT count(*) FROM sessions").Scan(&rows); err != nil {
		t.Error(err)
	}
}

func TestEmptyIsEmpty(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.Empty(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var tables int
	err = conn.QueryRow(t.Context(),
		"SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')").Scan(&tables)
	if err != nil || tables != 0 {
		t.Errorf("an empty database has %d tables (%v)", tables, err)
	}
}

// envHold makes [TestHold] hold a database, in a test process of its own.
const envHold = "PGTEST_TEST_HOLD"

// TestHold is no test of its own: others run it in another process.
func TestHold(t *testing.T) {
	if os.Getenv(envHold) == "" {
		t.Skip("runs in a process of its own, started by other tests")
	}
	fmt.Fprintf(os.Stdout, "database %s\n", pgtest.New(t))
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// child is this test binary once more, running TestHold.
func child(t *testing.T, env ...string) (*exec.Cmd, *bufio.Reader, io.Closer) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestHold$")
	cmd.Env = append(append(os.Environ(), envHold+"=1"), env...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close(); _ = cmd.Wait() })
	return cmd, bufio.NewReader(stdout), stdin
}

// socketOf reads the child's database and returns the folder of its socket.
func socketOf(t *testing.T, out *bufio.Reader) string {
	t.Helper()
	line, err := out.ReadString('\n')
	dsn, ok := strings.CutPrefix(strings.TrimSpace(line), "database ")
	if err != nil || !ok {
		rest, _ := io.ReadAll(out)
		t.Fatalf("the child has no database (%v): %s%s", err, line, rest)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("host")
}

func TestAKilledTestLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd, out, _ := child(t, pgtest.EnvURL+"=")
	dir := filepath.Dir(socketOf(t, out))
	if _, err := os.Stat(filepath.Join(dir, "data", "PG_VERSION")); err != nil {
		t.Fatalf("the child's data is not where it is looked for: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); ; {
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("%s is left", dir)
		case <-tick.C:
		}
	}
}

func TestAnotherServerMayBeUsed(t *testing.T) {
	t.Parallel()
	srv, err := pgserver.Start(t.Context(), pgserver.Config{
		Dir: t.TempDir(), NoSync: true, Settings: map[string]string{"fsync": "off"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := srv.Stop(); err != nil {
			t.Error(err)
		}
	})
	cmd, out, stdin := child(t, pgtest.EnvURL+"="+srv.DSN())
	u, err := url.Parse(srv.DSN())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := socketOf(t, out), u.Query().Get("host"); got != want {
		t.Errorf("the child's database is on %s, want %s", got, want)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	if rest, _ := io.ReadAll(out); !strings.Contains(string(rest), "PASS") {
		t.Errorf("the child failed: %s", rest)
	}
	_ = cmd.Wait()
}

func TestMissingProgramsFailWithTheWayOut(t *testing.T) {
	t.Parallel()
	_, out, _ := child(t, pgtest.EnvURL+"=", pgserver.EnvBin+"="+t.TempDir())
	text, err := io.ReadAll(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"--- FAIL: TestHold", "apt-get install postgresql", pgtest.EnvURL} {
		if !strings.Contains(string(text), part) {
			t.Errorf("the failure does not say %q:\n%s", part, text)
		}
	}
}

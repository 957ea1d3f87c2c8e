package pgserver_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-io/holdfast/migrations/pgserver"
)

// quick is a configuration that doesn't wait for disks.
func quick(dir string) pgserver.Config {
	return pgserver.Config{Dir: dir, NoSync: true, Settings: map[string]string{"fsync": "off"}}
}

// cluster is made once for all tests that are not about a first start.
var cluster = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "cluster-")
	if err != nil {
		return "", err
	}
	return dir, pgserver.Init(context.Background(), quick(dir))
})

// withCluster makes a folder whose server has run initdb.
func withCluster(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	clone(t, dir)
	return dir
}

var cloning sync.Mutex // a cluster being copied is held

func clone(t *testing.T, dir string) {
	t.Helper()
	cloning.Lock()
	defer cloning.Unlock()
	from, err := cluster()
	if err == nil {
		err = pgserver.Clone(from, dir)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, c pgserver.Config) *pgserver.Server {
	t.Helper()
	srv, err := pgserver.Start(t.Context(), c)
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

func stop(t *testing.T, srv *pgserver.Server) {
	t.Helper()
	if err := srv.Stop(); err != nil {
		t.Fatal(err)
	}
}

// query runs statements and returns the last one's single value as text.
func query(t *testing.T, srv *pgserver.Server, statements ...string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), srv.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var out string
	for i, s := range statements {
		if i < len(statements)-1 {
			_, err = conn.Exec(t.Context(), s)
		} else {
			err = conn.QueryRow(t.Context(), s).Scan(&out)
		}
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return out
}

const (
	makeRow  = "CREATE TABLE kept AS SELECT 'here'::text AS what"
	checkRow = "SELECT what FROM kept"
)

func TestRestartKeepsRows(t *testing.T) {
	t.Parallel()
	c := quick(t.TempDir())
	srv := start(t, c)
	query(t, srv, makeRow, checkRow)
	stop(t, srv)

	begin := time.Now()
	srv = start(t, c)
	took := time.Since(begin)
	if got := query(t, srv, checkRow); got != "here" {
		t.Errorf("after a restart the row says %q", got)
	}
	t.Logf("a start on existing data took %s", took)
	if took > 10*time.Second {
		t.Errorf("a start on existing data took %s, under 1 s is usual", took)
	}
	if got := query(t, srv, "SHOW listen_addresses"); got != "" {
		t.Errorf("the server listens on %q, want nothing but its socket", got)
	}
}

func TestKillOfTheParentTakesTheServer(t *testing.T) {
	t.Parallel()
	dir := withCluster(t)
	other := startHolder(t, dir)
	other.kill(t)
	awaitGone(t, other.server, 10*time.Second)
	start(t, quick(dir))
}

func TestStartRightAfterAKillWaitsForTheOrphan(t *testing.T) {
	t.Parallel()
	dir := withCluster(t)
	srv := start(t, quick(dir))
	query(t, srv, makeRow, checkRow)
	stop(t, srv)

	other := startHolder(t, dir)
	other.kill(t)
	srv = start(t, quick(dir))
	if running(other.server) {
		t.Errorf("two servers run on %s", dir)
	}
	if got := query(t, srv, checkRow); got != "here" {
		t.Errorf("after a kill the row says %q", got)
	}
}

func TestSecondStartIsRefused(t *testing.T) {
	t.Parallel()
	dir := withCluster(t)
	start(t, quick(dir))
	var inUse *pgserver.InUseError
	if _, err := pgserver.Start(t.Context(), quick(dir)); !errors.As(err, &inUse) {
		t.Fatalf("a second start gave %v", err)
	}
	if inUse.PID != os.Getpid() || inUse.Server || inUse.Dir != dir {
		t.Errorf("the error says %+v, want this process and %s", inUse, dir)
	}
}

func TestSecondStartIsRefusedInAnotherProcess(t *testing.T) {
	t.Parallel()
	dir := withCluster(t)
	other := startHolder(t, dir)
	var inUse *pgserver.InUseError
	if _, err := pgserver.Start(t.Context(), quick(dir)); !errors.As(err, &inUse) {
		t.Fatalf("a second start gave %v", err)
	}
	if inUse.PID != other.cmd.Process.Pid {
		t.Errorf("the error names process %d, want %d", inUse.PID, other.cmd.Process.Pid)
	}
	if !running(other.server) {
		t.Error("the refused start ended the other's server")
	}
}

// A server that somebody runs by hand on our cluster.
func TestAForeignServerIsNamed(t *testing.T) {
	t.Parallel()
	dir := withCluster(t)
	stop(t, start(t, quick(dir)))
	data := filepath.Join(dir, "data")
	foreign := runByHand(t, data)
	var inUse *pgserver.InUseError
	if _, err := pgserver.Start(t.Context(), quick(dir)); !errors.As(err, &inUse) {
		t.Fatalf("a start beside a foreign server gave %v", err)
	}
	if !inUse.Server || inUse.PID != foreign {
		t.Errorf("the error says %+v, want server %d", inUse, foreign)
	}
	if !running(foreign) {
		t.Error("the foreign server was ended")
	}
}

// runByHand runs postgres on data without this package and returns its
// process id when its pid file is there.
func runByHand(t *testing.T, data string) int {
	t.Helper()
	programs, err := pgserver.Find(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(data)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.Open(data)
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	cmd := exec.Command(filepath.Join(programs.Bin, "postgres"), "-D", "/proc/self/fd/3",
		"-c", "listen_addresses=", "-c", "unix_socket_directories=/proc/self/fd/3")
	cmd.ExtraFiles = []*os.File{folder}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if st := info.Sys().(*syscall.Stat_t); os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: st.Uid, Gid: st.Gid}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGQUIT); _ = cmd.Wait() })
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(20 * time.Second); ; {
		text, _ := os.ReadFile(filepath.Join(data, "postmaster.pid"))
		if strings.HasPrefix(string(text), strconv.Itoa(cmd.Process.Pid)+"\n") {
			return cmd.Process.Pid
		}
		select {
		case <-deadline:
			t.Fatal("the server by hand does not come up")
		case <-tick.C:
		}
	}
}

// The pid file of a server that was killed, with an id that somebody else has
// by now: PostgreSQL itself would refuse to start.
func TestAStalePidFileIsRemoved(t *testing.T) {
	t.Parallel()
	dir := withCluster(t)
	stop(t, start(t, quick(dir)))
	stale := strconv.Itoa(os.Getppid()) + "\n" + dir + "\n"
	if err := os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, quick(dir))
}

func TestAnUnfinishedClusterIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	unfinished := filepath.Join(dir, "fresh-123")
	if err := os.MkdirAll(filepath.Join(unfinished, "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	start(t, quick(dir))
	if _, err := os.Stat(unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished cluster is still there (%v)", err)
	}
}

func TestACancelledStartLeavesNothing(t *testing.T) {
	t.Parallel()
	why := errors.New("changed my mind")
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		cancelled(ctx, t, t.TempDir(), why)
	})
	t.Run("during initdb", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			defer cancel(why)
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				if made, _ := filepath.Glob(filepath.Join(dir, "fresh-*", "PG_VERSION")); len(made) > 0 || t.Context().Err() != nil {
					return
				}
			}
		}()
		cancelled(ctx, t, dir, why)
	})
}

// cancelled checks a start on dir that ctx ends, and that another goes well.
func cancelled(ctx context.Context, t *testing.T, dir string, why error) {
	t.Helper()
	if _, err := pgserver.Start(ctx, quick(dir)); !errors.Is(err, why) {
		t.Fatalf("a cancelled start gave %v", err)
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		if entry.Name() != "lock" {
			t.Errorf("a cancelled start left %s", entry.Name())
		}
	}
	start(t, quick(dir))
}

func TestALongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	clone(t, dir)
	srv := start(t, quick(dir))
	query(t, srv, makeRow, checkRow)
	short := socketDir(t, srv)
	if len(short) > 90 {
		t.Errorf("the socket's folder %s is not short", short)
	}
	stop(t, srv)
	for _, path := range []string{short, filepath.Join(dir, "run")} {
		if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left (%v)", path, err)
		}
	}

	// After a kill the short folder is found again, not made anew.
	other := startHolder(t, dir)
	before, err := os.Readlink(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	other.kill(t)
	srv = start(t, quick(dir))
	if after := socketDir(t, srv); after != before {
		t.Errorf("after a kill the socket is in %s, before it was in %s", after, before)
	}
	if got := query(t, srv, checkRow); got != "here" {
		t.Errorf("after a kill the row says %q", got)
	}
}

// Where the path is short and open to the server's user, the socket is in the
// server's own folder: the DSN stays the same and nothing is made elsewhere.
func TestTheSocketIsInTheFolder(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "own-") //nolint:usetesting // t.TempDir is closed to the server's user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	clone(t, dir)
	srv := start(t, quick(dir))
	if got, want := socketDir(t, srv), filepath.Join(dir, "run"); got != want {
		t.Errorf("the socket is in %s, want %s", got, want)
	}
	stop(t, srv)
}

func socketDir(t *testing.T, srv *pgserver.Server) string {
	t.Helper()
	u, err := url.Parse(srv.DSN())
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("host")
}

func TestTheSocketIsClosedToOthers(t *testing.T) {
	t.Parallel()
	srv := start(t, quick(withCluster(t)))
	info, err := os.Stat(socketDir(t, srv))
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o700 {
		t.Errorf("the socket's folder has mode %o, want 700: there is no password", mode)
	}
}

func TestAServerThatDiesTells(t *testing.T) {
	t.Parallel()
	c := quick(withCluster(t))
	srv := start(t, c)
	if err := srv.Err(); err != nil {
		t.Errorf("a running server has the error %v", err)
	}
	if err := syscall.Kill(srv.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-srv.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("Done tells nothing of the server's end")
	}
	var exit *pgserver.ExitError
	if err := srv.Err(); !errors.As(err, &exit) || exit.Status != "signal: killed" {
		t.Errorf("the server ended with %v", err)
	}
	if err := srv.Stop(); err != nil {
		t.Errorf("stopping a dead server: %v", err)
	}
	start(t, c)
}

func TestAServerThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	c := quick(withCluster(t))
	c.Settings["shared_buffers"] = "a lot"
	_, err := pgserver.Start(t.Context(), c)
	var exit *pgserver.ExitError
	if !errors.As(err, &exit) || !strings.Contains(err.Error(), "shared_buffers") {
		t.Errorf("a bad setting gave %v", err)
	}
	delete(c.Settings, "shared_buffers")
	start(t, c)
}

func TestStopIsRepeatable(t *testing.T) {
	t.Parallel()
	srv := start(t, quick(withCluster(t)))
	// An open connection does not hold a stop up.
	conn, err := pgx.Connect(t.Context(), srv.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := srv.Stop(); err != nil {
				t.Error(err)
			}
			if running(srv.PID()) {
				t.Error("Stop returned before the server was gone")
			}
		})
	}
	all.Wait()
	if err := srv.Err(); err != nil {
		t.Errorf("a stopped server has the error %v", err)
	}
}

func TestTheEnvironmentDoesNotLeadElsewhere(t *testing.T) {
	for name, value := range map[string]string{
		"PGPORT": "1", "PGHOST": "/nonexistent", "PGUSER": "mallory", "PGDATABASE": "none", "PGDATA": "/nonexistent",
	} {
		t.Setenv(name, value)
	}
	srv := start(t, quick(withCluster(t)))
	if got := query(t, srv, "SELECT current_user || '@' || current_database()"); got != "holdfast@holdfast" {
		t.Errorf("connected as %s", got)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	if _, err := pgserver.Start(t.Context(), pgserver.Config{}); err == nil {
		t.Error("a server without a folder started")
	}
	c := quick(t.TempDir())
	c.Settings["listen_addresses"] = "*"
	if _, err := pgserver.Start(t.Context(), c); err == nil {
		t.Error("a server that listens to the world started")
	}
}

package pgserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SQLSTATE codes that a start meets.
const (
	noSuchDatabase = "3D000" // invalid_catalog_name
	startingUp     = "57P03" // cannot_connect_now
)

// Config says where and how a server runs.
type Config struct {
	// Dir is the server's folder, made when it isn't there. Required.
	Dir string
	// BinDir is the folder of PostgreSQL's programs; empty: [Find] looks.
	BinDir string
	// Database is made when it isn't there, and [Server.DSN] leads to it.
	// Default "holdfast".
	Database string
	// Settings are those of postgresql.conf, over the defaults. Where the
	// server listens is not among them: a unix socket, nothing else.
	Settings map[string]string
	// NoSync skips initdb's fsync, for data that nobody will miss. (The
	// server's own is the setting fsync.)
	NoSync bool
	// Logger gets the server's log: at debug level, its last words at warn.
	// Default: nowhere.
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("a PostgreSQL server needs a folder: Dir is empty")
	}
	if c.Database == "" {
		c.Database = "holdfast"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, ours := range []string{"listen_addresses", "port", "unix_socket_directories", "unix_socket_permissions"} {
		if _, ok := c.Settings[ours]; ok {
			return c, fmt.Errorf("setting %s is not for the caller to choose", ours)
		}
	}
	return c, nil
}

// Server is a running PostgreSQL.
type Server struct {
	folder *folder
	socket string // folder of the socket
	dsn    string
	log    *tail
	proc   *os.Process

	stop   sync.Once
	asked  atomic.Bool   // to stop
	exited chan struct{} // closed when the process is gone and the folder free
	// Both are written before exited is closed, and read after it.
	err     error // why it ended by itself
	cleanup error // what could not be cleaned up
}

// Start runs a server on c.Dir, making its cluster the first time, and returns
// when it answers. ctx bounds the start only; the server runs until
// [Server.Stop] or this process's end. A start after a crash takes as long as
// recovery does.
//
// Errors to tell apart: *[MissingError], *[VersionError], *[InUseError],
// *[ExitError].
func Start(ctx context.Context, c Config) (*Server, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	f, programs, err := prepare(ctx, c)
	if err != nil {
		return nil, err
	}
	s := &Server{folder: f, log: &tail{logger: c.Logger}, exited: make(chan struct{})}
	if err := s.launch(programs, c); err != nil {
		return nil, errors.Join(err, f.release())
	}
	if err := s.awaitReady(ctx, c.Database); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Init makes the cluster in c.Dir/data when there is none, without running a
// server, and lets go of the folder.
func Init(ctx context.Context, c Config) error {
	c, err := c.withDefaults()
	if err != nil {
		return err
	}
	f, _, err := prepare(ctx, c)
	if err != nil {
		return err
	}
	return f.release()
}

// prepare takes the folder and sees that it has a cluster that nobody serves.
func prepare(ctx context.Context, c Config) (_ *folder, _ Programs, err error) {
	f, err := hold(c.Dir)
	if err != nil {
		return nil, Programs{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.release())
		}
	}()
	major, err := f.version()
	if err != nil {
		return nil, Programs{}, err
	}
	programs, err := Find(ctx, c.BinDir, major)
	switch {
	case err != nil:
		return nil, Programs{}, err
	case major == 0:
		return f, programs, f.create(ctx, programs, c.NoSync)
	case major != programs.Major:
		return nil, Programs{}, &VersionError{Dir: f.dir, Data: major, Found: programs.Major}
	}
	return f, programs, f.waitForOrphan(ctx)
}

// launch starts the process and its supervision.
func (s *Server) launch(programs Programs, c Config) error {
	var err error
	if s.socket, err = s.folder.socketDir(); err != nil {
		return err
	}
	if err := clearSocket(s.socket); err != nil {
		return err
	}
	settings := map[string]string{"log_line_prefix": "", "log_checkpoints": "off", "timezone": "UTC", "log_timezone": "UTC"}
	maps.Copy(settings, c.Settings)
	settings["listen_addresses"] = ""
	settings["port"] = "5432"
	settings["unix_socket_directories"] = `"` + strings.ReplaceAll(s.socket, `"`, `""`) + `"`
	settings["unix_socket_permissions"] = "0700"
	var args []string
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	// SIGQUIT is the immediate shutdown: no longer than a crash needs to be.
	cmd, done, err := s.folder.command(filepath.Join(programs.Bin, "postgres"), s.folder.data(), args, syscall.SIGQUIT)
	if err != nil {
		return err
	}
	defer done()
	cmd.Stdout, cmd.Stderr = s.log, s.log
	// A killed server's last processes keep the pipe for a moment.
	cmd.WaitDelay = 5 * time.Second
	started := make(chan error)
	go s.supervise(cmd, started)
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return nil
}

// supervise owns the process from start to end, on one thread: the kernel
// takes that thread's end for the parent's death.
func (s *Server) supervise(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	if err == nil {
		s.proc = cmd.Process
	}
	started <- err
	if err != nil {
		return
	}
	status := "exit status 0"
	if err := cmd.Wait(); err != nil {
		status = err.Error()
	}
	if !s.asked.Load() {
		s.err = &ExitError{Status: status, Log: s.log.last()}
	}
	s.cleanup = errors.Join(s.folder.dropSocketDir(s.socket), s.folder.release())
	close(s.exited)
}

// awaitReady returns when the server answers on the database, which it makes
// if needed.
func (s *Server) awaitReady(ctx context.Context, database string) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ping(ctx, s.address(database))
		if hasCode(err, noSuchDatabase) {
			err = makeDatabase(ctx, s.address("postgres"), database)
		}
		if err == nil {
			s.dsn = s.address(database)
			return nil
		}
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code != startingUp {
			return fmt.Errorf("connect to the new server: %w", err)
		}
		select {
		case <-s.exited:
			return s.err
		case <-ctx.Done():
			return fmt.Errorf("wait for PostgreSQL to answer: %w", errors.Join(context.Cause(ctx), err))
		case <-tick.C:
		}
	}
}

// ping connects as a client does. A bare dial would not do: the server holds
// its shutdown for a connection that never sends its first packet.
func ping(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	return conn.Close(ctx)
}

func makeDatabase(ctx context.Context, dsn, name string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()); err != nil {
		return fmt.Errorf("make database %s: %w", name, err)
	}
	return nil
}

func hasCode(err error, code string) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == code
}

// address is a URL for one of the server's databases. It says everything, so
// that no PG… variable of the environment can change where it leads.
func (s *Server) address(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(superuser), Path: "/" + database,
		RawQuery: url.Values{"host": {s.socket}, "port": {"5432"}, "sslmode": {"disable"}}.Encode(),
	}
	return u.String()
}

// DSN is the URL of the configured database, for pgx; it stays the same over
// restarts on the same folder where the folder's path is short.
func (s *Server) DSN() string { return s.dsn }

// PID is the server's process.
func (s *Server) PID() int { return s.proc.Pid }

// Done is closed when the server has ended, for whatever reason, and its
// folder is free again.
func (s *Server) Done() <-chan struct{} { return s.exited }

// Err says why the server ended: nil while it runs and after a Stop, an
// *[ExitError] when it ended by itself.
func (s *Server) Err() error {
	select {
	case <-s.exited:
		return s.err
	default:
		return nil
	}
}

// The steps of a stop, each with the time that it gets.
var stopSteps = []struct {
	signal syscall.Signal
	grace  time.Duration
}{
	{syscall.SIGINT, 10 * time.Second}, // fast: roll back, write a checkpoint
	{syscall.SIGQUIT, 5 * time.Second}, // immediate: recover at the next start
	{syscall.SIGKILL, 5 * time.Second},
}

// Stop ends the server and returns when it is gone and its folder is free: by
// a fast shutdown, then by force. It may be called again and from several
// goroutines. The error is about what could not be ended or cleaned up.
func (s *Server) Stop() error {
	s.stop.Do(func() {
		if s.Err() == nil {
			s.asked.Store(true)
		}
		for _, step := range stopSteps {
			if s.endedWithin(0) {
				return
			}
			// Not an error: it may end between the check and the signal.
			_ = s.proc.Signal(step.signal)
			if s.endedWithin(step.grace) {
				return
			}
		}
	})
	if !s.endedWithin(0) {
		return fmt.Errorf("PostgreSQL (process %d) did not end on SIGKILL", s.proc.Pid)
	}
	return s.cleanup
}

// endedWithin waits at most d for the server's end.
func (s *Server) endedWithin(d time.Duration) bool {
	select {
	case <-s.exited:
		return true
	default:
	}
	if d == 0 {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.exited:
		return true
	case <-timer.C:
		return false
	}
}

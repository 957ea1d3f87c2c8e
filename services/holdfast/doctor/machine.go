package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-io/holdfast/migrations/pgserver"
	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/internal/brake"
	"github.com/holdfast-io/holdfast/services/workload"
)

const (
	// fewFiles is how many open files a process has to be allowed: a socket a viewer,
	// and those of NATS and Postgres.
	fewFiles = 4096
	// littleSpace is what should be free for a log and workspaces, and fillingUp how
	// much of a disk may be used, as the log's brake counts it, before it is worth a word.
	littleSpace = 2 << 30
	fillingUp   = 0.7
	// slowSync is how long a write may take to be on the disk: every command waits for
	// at least one.
	slowSync = 20 * time.Millisecond
)

func examineMachine(ctx context.Context, o *cli.Options) []Finding {
	found := append([]Finding{postgresPrograms(ctx)}, isolation(ctx)...)
	found = append(found, openFiles())
	dir, err := o.Directory()
	if err != nil {
		return append(found, broken("machine.data", err.Error(), "name a directory with --data-dir"))
	}
	return append(found, dataDir(ctx, dir)...)
}

func postgresPrograms(ctx context.Context) Finding {
	const name = "machine.postgres"
	programs, err := pgserver.Find(ctx, "", 0)
	if err != nil {
		return warning(name, err.Error(), "install Debian's postgresql (or your distribution's) for 'holdfast dev', or set HOLDFAST_POSTGRES_URL")
	}
	return fine(name, "PostgreSQL %d in %s", programs.Major, programs.Bin)
}

func isolation(ctx context.Context) []Finding {
	const name = "machine.isolation"
	one := func(f Finding) []Finding { return []Finding{f} }
	dir, err := os.MkdirTemp("", "hf-doctor-")
	if err != nil {
		return one(broken(name, err.Error(), "make a directory for temporary files that can be written to (TMPDIR)"))
	}
	defer os.RemoveAll(dir)
	sandboxd, err := dev.FindSandboxd(ctx, dir)
	if err != nil {
		return one(broken(name, err.Error(), "put the sandboxd binary beside holdfast, or name it in HOLDFAST_SANDBOXD"))
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // the probe runs the binary as another user
		return one(broken(name, err.Error(), "let the user who runs Holdfast write to "+dir))
	}
	r := workload.Probe(ctx, filepath.Clean(sandboxd))
	if r.Isolation == "none" {
		return one(broken(name, "missing: "+r.Missing, r.WayOut))
	}
	uids := "one uid for all sandboxes (as root each has its own)"
	if r.OwnUIDs {
		uids = "a uid for each sandbox"
	}
	return []Finding{
		fine(name, "%s; limits by %s; %s", r.Isolation, r.Limits, uids),
		gvisor(r),
	}
}

// gvisor words what is known of gVisor, which nobody has to have: only one that is
// there and doesn't run needs a hand.
func gvisor(r workload.Report) Finding {
	const name = "machine.gvisor"
	switch {
	case r.GVisor == "":
		return fine(name, "--isolation=gvisor would need runsc in the PATH")
	case r.GVisorMissing != "":
		return warning(name, "--isolation=gvisor can't be had: "+r.GVisorMissing, r.GVisorWayOut)
	}
	return fine(name, "--isolation=gvisor works, by %s", r.GVisor)
}

func openFiles() Finding {
	const name = "machine.files"
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return warning(name, err.Error(), "see 'ulimit -n'")
	}
	if limit.Max < fewFiles {
		return warning(name, fmt.Sprintf("at most %d open files", limit.Max), fmt.Sprintf("allow at least %d (ulimit -n, or LimitNOFILE of the unit)", fewFiles))
	}
	return fine(name, "%d open files", limit.Max)
}

// dataDir looks at where dev keeps its data, or will.
func dataDir(ctx context.Context, dir string) []Finding {
	there := dir
	for ; ; there = filepath.Dir(there) { // where it will be made
		if _, err := os.Stat(there); err == nil || there == filepath.Dir(there) {
			break
		}
	}
	found := []Finding{space(ctx, dir, there), tokens(dir)}
	if there == dir {
		found = append(found, syncing(dir))
	}
	return found
}

func space(ctx context.Context, dir, there string) Finding {
	const name = "machine.disk"
	var fsys unix.Statfs_t
	err := unix.Statfs(there, &fsys)
	var counted []brake.Usage
	if err == nil {
		counted, err = brake.Disk(there)(ctx)
	}
	if err != nil {
		return broken(name, fmt.Sprintf("%s: %v", there, err), "name a directory that can be read with --data-dir")
	}
	free := fsys.Bavail * uint64(fsys.Bsize)
	text := fmt.Sprintf("%s: %.1f GiB free", dir, float64(free)/(1<<30))
	if fsys.Type == unix.TMPFS_MAGIC {
		return warning(name, text+"; it is in memory", "keep the data on a disk: what is in memory does not survive a restart of the machine")
	}
	if free < littleSpace || slices.ContainsFunc(counted, func(u brake.Usage) bool { return u.Share() > fillingUp }) {
		return warning(name, text, fmt.Sprintf("make room: with %.1f GiB free the log takes only what ends something", brakesAt(counted)))
	}
	return fine(name, "%s", text)
}

// brakesAt is how many GiB are left where the log's brake is set.
func brakesAt(counted []brake.Usage) float64 {
	var most uint64
	for _, u := range counted {
		most = max(most, u.Limit)
	}
	return (1 - brake.SetAt) * float64(most) / (1 << 30)
}

func tokens(dir string) Finding {
	const name = "machine.tokens"
	path := dev.TokensFile(dir)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fine(name, "none yet; the first 'holdfast dev' makes them")
	case err != nil:
		return broken(name, err.Error(), "let the user who runs Holdfast read it")
	case info.Mode().Perm()&0o077 != 0:
		return broken(name, fmt.Sprintf("%s can be read by others (%v)", path, info.Mode().Perm()), "chmod 600 "+path)
	}
	return fine(name, "%s, readable by its owner alone", path)
}

// syncing measures how long a small write takes to be on the disk.
func syncing(dir string) Finding {
	const name, rounds = "machine.sync", 9
	f, err := os.CreateTemp(dir, ".doctor-")
	if err != nil {
		return broken(name, err.Error(), "let the user who runs Holdfast write to "+dir)
	}
	defer func() { _ = errors.Join(f.Close(), os.Remove(f.Name())) }()
	took := make([]time.Duration, rounds)
	for i := range took {
		begin := time.Now()
		if _, err = f.Write(make([]byte, 512)); err == nil {
			err = f.Sync()
		}
		if err != nil {
			return broken(name, err.Error(), "look at the disk of "+dir)
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	text := fmt.Sprintf("a write is on the disk after %s", took[rounds/2].Round(10*time.Microsecond))
	if took[rounds/2] > slowSync {
		return warning(name, text, "every command waits for at least one: use a faster disk for the log")
	}
	return fine(name, "%s", text)
}

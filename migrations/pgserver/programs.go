package pgserver

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Programs are one installation of PostgreSQL.
type Programs struct {
	// Bin is the absolute folder with initdb and postgres.
	Bin string
	// Major is their version, 15 or more.
	Major int
}

// usual are the folders of distributions and of an installation from source.
var usual = []string{
	"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
	"/usr/libexec/postgresql*",  // Alpine
	"/usr/pgsql-*/bin",          // PGDG's RPMs
	"/usr/local/pgsql/bin",      // from source
	"/opt/homebrew/opt/postgresql*/bin",
}

// Find looks for PostgreSQL's programs: in bin when it is not empty, else in
// the folder that [EnvBin] names, else in PATH and the usual folders. An
// explicit folder is never passed over for another. Of several it takes the
// major version wanted, or the newest when wanted is 0 or not there. The error
// is a *[MissingError].
func Find(ctx context.Context, bin string, wanted int) (Programs, error) {
	var found []Programs
	missing := &MissingError{}
	for _, dir := range candidates(bin) {
		p, err := inspect(ctx, dir)
		if ctx.Err() != nil {
			return Programs{}, fmt.Errorf("look for PostgreSQL's programs: %w", context.Cause(ctx))
		}
		if err != nil {
			missing.Looked = append(missing.Looked, err.Error())
			continue
		}
		found = append(found, p)
	}
	if len(found) == 0 {
		if cmp.Or(bin, os.Getenv(EnvBin)) == "" {
			missing.Looked = append([]string{"PATH"}, append(missing.Looked, usual...)...)
		}
		return Programs{}, missing
	}
	if i := slices.IndexFunc(found, func(p Programs) bool { return p.Major == wanted }); i >= 0 {
		return found[i], nil
	}
	return slices.MaxFunc(found, func(a, b Programs) int { return a.Major - b.Major }), nil
}

func candidates(bin string) []string {
	if explicit := cmp.Or(bin, os.Getenv(EnvBin)); explicit != "" {
		return []string{explicit}
	}
	var dirs []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// A link in PATH says little; its target has initdb beside it.
		if target, err := filepath.EvalSymlinks(path); err == nil {
			dirs = append(dirs, filepath.Dir(target))
		}
	}
	for _, pattern := range usual {
		matches, _ := filepath.Glob(pattern) // the patterns are ours and well-formed
		dirs = append(dirs, matches...)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// inspect asks the programs in dir for their version.
func inspect(ctx context.Context, dir string) (Programs, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Programs{}, fmt.Errorf("%s: %w", dir, err)
	}
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(abs, name)); err != nil {
			return Programs{}, fmt.Errorf("%s has no %s", abs, name)
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(abs, "postgres"), "--version").Output()
	if err != nil {
		return Programs{}, fmt.Errorf("%s/postgres --version: %w", abs, err)
	}
	major, err := parseMajor(string(out))
	if err != nil {
		return Programs{}, fmt.Errorf("%s/postgres --version: %w", abs, err)
	}
	if major < MinMajor {
		return Programs{}, fmt.Errorf("%s is version %d", abs, major)
	}
	return Programs{Bin: abs, Major: major}, nil
}

// parseMajor reads "postgres (PostgreSQL) 15.18 (Debian …)", also "17beta1".
func parseMajor(version string) (int, error) {
	_, after, ok := strings.Cut(version, "(PostgreSQL) ")
	if !ok {
		return 0, fmt.Errorf("unexpected version %q", strings.TrimSpace(version))
	}
	digits := after[:len(after)-len(strings.TrimLeft(after, "0123456789"))]
	major, err := strconv.Atoi(digits)
	if err != nil {
		return 0, fmt.Errorf("unexpected version %q", strings.TrimSpace(version))
	}
	return major, nil
}

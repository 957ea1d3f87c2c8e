package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/api"
	"github.com/holdfast-io/holdfast/migrations/pgserver"
	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/holdfast/dev"
	"github.com/holdfast-io/holdfast/services/workload"
)

// finding is one thing that doctor looked at.
type finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	// WayOut says what to do where it isn't OK.
	WayOut string `json:"wayOut,omitempty"`
}

// Doctor is `holdfast doctor`.
func Doctor(o *cli.Options) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look at what this machine and the server can do, and say what to do about the rest", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found := examine(cmd.Context(), o)
			if o.Output == "json" {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				if err := enc.Encode(found); err != nil {
					return err
				}
			} else {
				prescribe(cmd.OutOrStdout(), found)
			}
			for _, f := range found {
				if !f.OK {
					return errors.New("not everything is well")
				}
			}
			return nil
		},
	}
}

func prescribe(w io.Writer, found []finding) {
	for _, f := range found {
		mark := "✓"
		if !f.OK {
			mark = "✗"
		}
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%s %-18s %s", mark, f.Name, f.Detail), " "))
		if f.WayOut != "" {
			fmt.Fprintf(w, "  %-18s → %s\n", "", f.WayOut)
		}
	}
}

func examine(ctx context.Context, o *cli.Options) []finding {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return append([]finding{examinePostgres(ctx), examineIsolation(ctx)}, examineServer(ctx, o)...)
}

func examinePostgres(ctx context.Context) finding {
	f := finding{Name: "programs"}
	programs, err := pgserver.Find(ctx, "", 0)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	f.OK, f.Detail = true, fmt.Sprintf("PostgreSQL %d in %s", programs.Major, programs.Bin)
	return f
}

func examineIsolation(ctx context.Context) finding {
	f := finding{Name: "isolation"}
	dir, err := os.MkdirTemp("", "hf-doctor-")
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	defer os.RemoveAll(dir)
	sandboxd, err := dev.FindSandboxd(ctx, dir)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	_ = os.Chmod(dir, 0o755) //nolint:gosec // the probe runs the binary as another user
	r := workload.Probe(ctx, filepath.Clean(sandboxd))
	f.OK = r.Isolation != "none"
	f.Detail = fmt.Sprintf("%s; limits by %s; a uid for each sandbox: %v", r.Isolation, r.Limits, r.OwnUIDs)
	if !f.OK {
		f.Detail, f.WayOut = "missing: "+r.Missing, r.WayOut
	}
	return f
}

func examineServer(ctx context.Context, o *cli.Options) []finding {
	url, _, err := o.Resolve()
	if err != nil {
		return []finding{{Name: "server", Detail: "none is running here", WayOut: err.Error()}}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return []finding{{Name: "server", Detail: err.Error()}}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return []finding{{Name: "server", Detail: err.Error(), WayOut: "start it with 'holdfast dev', or correct HOLDFAST_URL"}}
	}
	defer resp.Body.Close()
	var r api.Readiness
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&r); err != nil {
		return []finding{{Name: "server", Detail: url + " does not answer as Holdfast does", WayOut: "correct HOLDFAST_URL"}}
	}
	found := []finding{{Name: "server", OK: r.Ready, Detail: url}}
	for _, p := range r.Parts {
		f := finding{Name: "server." + p.Name, OK: p.Ready && !p.Degraded, Detail: p.Detail}
		if p.Degraded {
			f.WayOut = "see docs/operations.md"
		}
		found = append(found, f)
	}
	return found
}

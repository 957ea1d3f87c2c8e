// Package doctor looks at all that Holdfast stands on and says what to do about what
// isn't well: this machine (machine.go), the server that is reached from here
// (server.go), and, where their addresses are in the environment, the NATS and the
// Postgres of an installation (installation.go). It changes nothing.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/services/holdfast/cli"
)

// Grade says how much a finding matters.
type Grade string

// The grades.
const (
	// Fine needs nothing.
	Fine Grade = "ok"
	// Warning works, and somebody should know.
	Warning Grade = "warning"
	// Broken doesn't work.
	Broken Grade = "broken"
)

// Finding is one thing that was looked at.
type Finding struct {
	// Name says what, such as machine.isolation.
	Name   string `json:"name"`
	Grade  Grade  `json:"grade"`
	Detail string `json:"detail"`
	// WayOut says what to do; it is set unless all is fine.
	WayOut string `json:"wayOut,omitempty"`
}

func fine(name, format string, args ...any) Finding {
	return Finding{Name: name, Grade: Fine, Detail: fmt.Sprintf(format, args...)}
}

func warning(name, detail, wayOut string) Finding {
	return Finding{Name: name, Grade: Warning, Detail: detail, WayOut: wayOut}
}

func broken(name, detail, wayOut string) Finding {
	return Finding{Name: name, Grade: Broken, Detail: detail, WayOut: wayOut}
}

// within bounds the whole examination.
const within = time.Minute

// errNotWell is the exit of a doctor who found something broken.
var errNotWell = errors.New("not everything works")

// Command is `holdfast doctor`. It fails where something is broken; a warning is none.
func Command(o *cli.Options) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Look at what this machine, the server and the installation can do, and say what to do about the rest", Args: cobra.NoArgs,
		Long: "Looks at this machine, and at the server that is reached from here. Where HOLDFAST_NATS_URL or HOLDFAST_POSTGRES_URL\n" +
			"are set it looks at that installation, too. It changes nothing.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), within)
			defer cancel()
			found := examineMachine(ctx, o)
			found = append(found, examineServer(ctx, o)...)
			found = append(found, examineInstallation(ctx)...)
			err := o.Show(cmd.OutOrStdout(), found, func(w io.Writer) { prescribe(w, found) })
			for _, f := range found {
				if f.Grade == Broken {
					return errors.Join(err, errNotWell)
				}
			}
			return err
		},
	}
}

// prescribe words findings for a terminal.
func prescribe(w io.Writer, found []Finding) {
	marks := map[Grade]string{Fine: "✓", Warning: "!", Broken: "✗"}
	wide := 0
	for _, f := range found {
		wide = max(wide, len(f.Name))
	}
	for _, f := range found {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%s %-*s  %s", marks[f.Grade], wide, f.Name, f.Detail), " "))
		if f.WayOut != "" {
			fmt.Fprintf(w, "  %-*s  → %s\n", wide, "", f.WayOut)
		}
	}
}

// Package doctor looks at all that Holdfast stands on and says what to do about what
// isn't well: this machine (machine.go), the server that is reached from here
// (server.go), and, where their addresses are in the environment, the NATS and the
// Postgres of an installation (installation.go). With --kube it looks at a Kubernetes
// instead of the machine: what is there and who may do what (kube.go, kubestate.go), and
// with --probe at what a sandbox of each runtime class gets to from inside (kubeprobe.go
// makes it, kubeverdict.go judges it). It changes nothing, but that --probe makes those
// sandboxes and removes them.
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

// within bounds the examination of each: machine and server, cluster, installation. Each
// probed sandbox has time of its own.
const within = time.Minute

// errNotWell is the exit of a doctor who found something broken.
var errNotWell = errors.New("not everything works")

// Command is `holdfast doctor`. It fails where something is broken; a warning is none.
func Command(o *cli.Options) *cobra.Command {
	var f kubeFlags
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look at what this machine, the server and the installation can do, and say what to do about the rest", Args: cobra.NoArgs,
		Long: "Looks at this machine, and at the server that is reached from here. Where HOLDFAST_NATS_URL or HOLDFAST_POSTGRES_URL\n" +
			"are set it looks at that installation, too. It changes nothing.\n\n" +
			"With --kube it looks at the Kubernetes of KUBECONFIG, or of the Pod that it runs in, instead of at the machine:\n" +
			"agent-sandbox and its versions, rights, runtime classes, the controller, tenants' namespaces. --probe starts a\n" +
			"sandbox of each runtime class in each tenant's namespace, or in those of --tenant alone, which tries from inside what\n" +
			"it can reach and looks what holds it, and removes it.",
		Example: "  kubectl exec deploy/holdfast-workload -- holdfast doctor --kube --probe\n" +
			"  holdfast doctor --kube --cluster-file cluster.yaml --as system:serviceaccount:holdfast-system:holdfast-workload",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return cli.Usage(err)
			}
			found := f.examine(cmd.Context(), o)
			err := o.Show(cmd.OutOrStdout(), found, func(w io.Writer) { prescribe(w, found) })
			for _, f := range found {
				if f.Grade == Broken {
					return errors.Join(err, errNotWell)
				}
			}
			return err
		},
	}
	f.flags(cmd)
	return cmd
}

// examine looks at what the flags name.
func (f *kubeFlags) examine(ctx context.Context, o *cli.Options) []Finding {
	var found []Finding
	if f.on {
		found = examineKube(ctx, f)
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if !f.on {
		found = append(examineMachine(ctx, o), examineServer(ctx, o)...)
	}
	return append(found, examineInstallation(ctx)...)
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

package operate

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/holdfast-io/holdfast/services/holdfast/cli"
	"github.com/holdfast-io/holdfast/services/internal/correlate"
	"github.com/holdfast-io/holdfast/services/internal/ops"
)

// observing are the flags of a long-lived process that say how it is looked at.
type observing struct {
	verbose             bool
	format, profileAddr string
}

func (o *observing) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log everything")
	f.StringVar(&o.format, "log-format", "text", "logs: text or json, to the standard error; lines of one request have its id and trace")
	f.StringVar(&o.profileAddr, "profile-addr", "", "address of Go's profiles (/debug/pprof/): they show what is in memory, so keep it on loopback")
	if err := cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{"text", "json"}, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag: a mistake in this function
	}
}

// logger logs from a level on, or everything where that is asked for.
func (o *observing) logger(w io.Writer, from slog.Level) (*slog.Logger, error) {
	if o.verbose {
		from = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: from}
	switch o.format {
	case "text":
		return slog.New(correlate.Handler(slog.NewTextHandler(w, options))), nil
	case "json":
		return slog.New(correlate.Handler(slog.NewJSONHandler(w, options))), nil
	}
	return nil, cli.Usage(fmt.Errorf("log format %q: use text or json", o.format))
}

// profiles answers where profiles are asked for; stop ends it.
func (o *observing) profiles(ctx context.Context, log *slog.Logger) (stop func(), err error) {
	if o.profileAddr == "" {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	s, err := ops.Profiles(ctx, o.profileAddr, log)
	if err != nil {
		cancel()
		return nil, err
	}
	log.Warn("profiles are served", "address", s.Addr)
	return func() { cancel(); s.Wait() }, nil
}

// plainLogger is that of a command that ends by itself.
func plainLogger(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"regexp"
	"runtime/pprof"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// benchmark is one of what can be measured.
type benchmark struct {
	name string
	run  func(ctx context.Context, l *lab) (finding, error)
}

// benchmarks are all, in the order in which they run: what needs the quietest
// machine first.
var benchmarks = []benchmark{
	{"command", measureCommand},
	{"throughput", measureThroughput},
	{"cluster", measureCluster},
	{"remote", measureRemote},
	{"ready", measureReady},
	{"answer", measureAnswer},
	{"flow", measureFlow},
	{"projector", measureProjector},
	{"load", measureLoad},
	{"timeline", measureTimeline},
	{"startup", measureStartup},
	{"viewers", measureViewers},
}

// lab is what benchmarks run in.
type lab struct {
	// dir is for data, removed afterwards; on a real disk, or syncing means nothing.
	dir string
	// short shrinks everything until it only shows that it works.
	short  bool
	logger *slog.Logger
}

// size gives how much to measure.
func (l *lab) size(full, short int) int {
	if l.short {
		return short
	}
	return full
}

// folder makes an empty folder for one part of a benchmark.
func (l *lab) folder(name string) (string, error) { return os.MkdirTemp(l.dir, name+"-") }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if code, mine := child(ctx, os.Args[1:]); mine {
		os.Exit(code) //nolint:gocritic // nothing is deferred that a child needs
	}
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is the program.
func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	only := flags.String("run", "", "run only the benchmarks that match this `regexp`: "+names())
	short := flags.Bool("short", false, "measure next to nothing: shows only that it works")
	markdown := flags.Bool("md", false, "print the tables of docs/benchmarks.md")
	into := flags.String("into", "", "write the tables into this `file`, between its marks, instead of printing them")
	profile := flags.String("cpuprofile", "", "write a CPU profile to this `file`")
	verbose := flags.Bool("v", false, "show the logs of what is measured")
	if err := flags.Parse(args); err != nil {
		return err
	}
	selected, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if *profile != "" {
		stop, err := startProfile(*profile)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	l := &lab{short: *short, logger: slog.New(slog.DiscardHandler)}
	if *verbose {
		l.logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	if l.dir, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(l.dir)) }()

	m := thisMachine()
	found, err := l.measure(ctx, selected)
	if err != nil {
		return err
	}
	switch {
	case *into != "":
		return writeInto(*into, m, found)
	case *markdown:
		return printMarkdown(os.Stdout, m, found)
	default:
		return printText(os.Stdout, m, found)
	}
}

// measure runs the selected benchmarks one after the other.
func (l *lab) measure(ctx context.Context, selected *regexp.Regexp) ([]finding, error) {
	var found []finding
	for _, b := range benchmarks {
		if !selected.MatchString(b.name) {
			continue
		}
		begin := time.Now()
		fmt.Fprintf(os.Stderr, "%s …", b.name)
		f, err := b.run(ctx, l)
		if err != nil {
			fmt.Fprintln(os.Stderr)
			return nil, fmt.Errorf("%s: %w", b.name, err)
		}
		fmt.Fprintf(os.Stderr, " %.1f s\n", time.Since(begin).Seconds())
		found = append(found, f)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("-run selects none of: %s", names())
	}
	return found, nil
}

func names() string {
	all := make([]string, len(benchmarks))
	for i, b := range benchmarks {
		all[i] = b.name
	}
	return strings.Join(all, ", ")
}

func startProfile(path string) (stop func() error, err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
